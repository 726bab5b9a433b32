//! All commands over a server that is given: memcached and Situ answer the same.

use situ_client::{
    AsyncClient, Attributes, Cas, Client, Error, Expiry, Item, Options, Outcome, TransportChoice, TransportKind,
};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Returns true in the virtual machine of `scripts/soft-roce.sh`, where everything is slow.
pub(crate) fn is_emulated() -> bool {
    std::env::var_os("SOFT_ROCE").is_some()
}

/// Options with the patience of a loaded machine.
pub(crate) fn options(address: &str) -> Options {
    let mut options = Options::new([address]);
    options.timeout = Duration::from_secs(if is_emulated() { 200 } else { 20 });
    options
}

/// Returns the time for calls that must fail. They have a connection by then.
pub(crate) fn impatience() -> Duration {
    Duration::from_millis(if is_emulated() { 1000 } else { 150 })
}

fn item(value: impl Into<Vec<u8>>, flags: u32) -> Option<Item> {
    Some(Item { value: value.into(), flags })
}

/// Runs all commands of both clients, over the transport that the choice leads to. The server refuses a value of one
/// byte more than `refused_above`.
pub(crate) fn all_commands(address: &str, (choice, transport): (TransportChoice, TransportKind), refused_above: usize) {
    let mut options = options(address);
    options.transport = choice;
    all_commands_by(&options, transport, refused_above);
}

/// Runs all commands of both clients with these options, of which the connections get `transport`.
pub(crate) fn all_commands_by(options: &Options, transport: TransportKind, refused_above: usize) {
    let address = options.servers[0].as_str();
    let client = Client::open(options).unwrap();
    assert_eq!(client.transports()[0].1, None);
    client.flush_all(Duration::ZERO).unwrap();
    storing(&client);
    counting(&client);
    expiring(&client);
    many_keys(&client);
    sizes(&client, refused_above);
    refusals(&client, refused_above);
    about_servers(&client, address);
    let asynchronous = AsyncClient::open(options).unwrap();
    futures(&asynchronous);
    client.flush_all(Duration::ZERO).unwrap();
    assert_eq!(client.get("visits").unwrap(), None);
    for transports in [client.transports(), asynchronous.transports()] {
        assert_eq!(transports, [(Arc::from(address), Some(transport))]);
    }
}

fn storing(client: &Client) {
    assert_eq!(client.get("key").unwrap(), None);
    assert!(!client.replace("key", "no", ()).unwrap());
    assert!(!client.append("key", "no").unwrap());
    assert!(!client.prepend("key", "no").unwrap());
    assert!(!client.delete("key").unwrap());
    assert!(client.add("key", "b", Attributes::default().with_flags(9)).unwrap());
    assert!(!client.add("key", "no", ()).unwrap());
    assert!(client.append("key", "c").unwrap());
    assert!(client.prepend("key", "a").unwrap());
    assert_eq!(client.get("key").unwrap(), item("abc", 9));
    assert!(client.replace("key", "\r\n\0", Attributes::default().with_flags(u32::MAX)).unwrap());
    assert_eq!(client.get("key").unwrap(), item("\r\n\0", u32::MAX));
    client.set("key", "", ()).unwrap();
    assert_eq!(client.get("key").unwrap(), item("", 0));

    let (old, version) = client.gets("key").unwrap().unwrap();
    assert_eq!(Some(old), item("", 0));
    assert_eq!(client.cas("key", "new", Attributes::default().with_flags(1), version).unwrap(), Cas::Stored);
    assert_eq!(client.cas("key", "newer", (), version).unwrap(), Cas::Changed);
    assert_eq!(client.cas("nothing", "new", (), version).unwrap(), Cas::Missing);
    assert_eq!(client.gets("nothing").unwrap(), None);
    assert_eq!(client.get("key").unwrap(), item("new", 1));
    assert!(client.delete("key").unwrap());

    let longest = "k".repeat(250);
    client.set(&longest, "value", ()).unwrap();
    client.set("Schlüssel", "Wert", ()).unwrap();
    assert_eq!(client.get(longest).unwrap(), item("value", 0));
    assert_eq!(client.get("Schlüssel").unwrap(), item("Wert", 0));
}

fn counting(client: &Client) {
    assert_eq!(client.increment("visits", 1).unwrap(), None);
    client.set("visits", "41", ()).unwrap();
    assert_eq!(client.increment("visits", 1).unwrap(), Some(42));
    assert_eq!(client.decrement("visits", 40).unwrap(), Some(2));
    assert_eq!(client.decrement("visits", 40).unwrap(), Some(0));
    client.set("visits", u64::MAX.to_string(), ()).unwrap();
    assert_eq!(client.increment("visits", 3).unwrap(), Some(2));
}

fn expiring(client: &Client) {
    client.set("gone", "x", Duration::ZERO).unwrap();
    assert_eq!(client.get("gone").unwrap(), None);
    client.set("past", "x", Expiry::At(SystemTime::now() - Duration::from_secs(10))).unwrap();
    assert_eq!(client.get("past").unwrap(), None);
    client.set("month", "x", Duration::from_secs(40 * 86_400)).unwrap();
    assert_eq!(client.get("month").unwrap(), item("x", 0));
    assert!(!client.touch("gone", Expiry::Never).unwrap());
    assert_eq!(client.get_and_touch("gone", Expiry::Never).unwrap(), None);
    client.set("short", "x", Attributes::from(Duration::from_secs(1000)).with_flags(5)).unwrap();
    assert_eq!(client.get_and_touch("short", Duration::from_secs(500)).unwrap(), item("x", 5));
    assert!(client.touch("short", Expiry::In(Duration::ZERO)).unwrap());
    assert_eq!(client.get("short").unwrap(), None);
    client.set("second", "x", Duration::from_millis(1)).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(client.get("second").unwrap(), None);
}

fn many_keys(client: &Client) {
    // More than fit into one line.
    let keys: Vec<String> = (0..500).map(|n| format!("many:{n:04}")).collect();
    for (n, key) in keys.iter().enumerate().filter(|(n, _)| n % 3 != 0) {
        client.set(key, format!("value {n}"), Attributes::default().with_flags(n as u32)).unwrap();
    }
    for (n, found) in client.get_many(&keys).unwrap().into_iter().enumerate() {
        assert_eq!(found, if n % 3 == 0 { None } else { item(format!("value {n}"), n as u32) }, "{n}");
    }
    let twice = client.get_many(&["many:0001", "many:0000", "many:0001"]).unwrap();
    assert_eq!(twice, [item("value 1", 1), None, item("value 1", 1)]);
    assert_eq!(client.get_many::<&str>(&[]).unwrap(), []);
    let versions = client.gets_many(&["many:0001", "many:0000"]).unwrap();
    let (_, version) = versions[0].clone().unwrap();
    assert_eq!(client.cas("many:0001", "x", (), version).unwrap(), Cas::Stored);
    assert_eq!(versions[1], None);
}

fn sizes(client: &Client, refused_above: usize) {
    let mut room = Vec::new();
    for length in [1, 2, 1000, 4095, 16 << 10, (16 << 10) + 1, 100_000, 900_000] {
        let value: Vec<u8> = (0..length.min(refused_above)).map(|n| (n % 253) as u8).collect();
        client.set("sized", &value, Attributes::default().with_flags(2)).unwrap();
        assert_eq!(client.get_into("sized", &mut room).unwrap(), Some(2));
        assert!(room == value, "a value of {length} bytes");
    }
    let (place, length) = (room.as_ptr(), room.len());
    assert_eq!(client.get_into("sized", &mut room).unwrap(), Some(2));
    assert_eq!((room.as_ptr(), room.len()), (place, length), "the memory is used again");
    assert_eq!(client.get_into("nothing", &mut room).unwrap(), None);
    assert!(room.is_empty());
}

fn refusals(client: &Client, refused_above: usize) {
    let refused = |error: Error| {
        assert_eq!(error.outcome(), Outcome::NotDone);
        match error {
            Error::Refused { answer, .. } => answer,
            other => panic!("{other}"),
        }
    };
    let too_large = vec![1; refused_above + 1];
    let begun = Instant::now();
    assert!(refused(client.set("large", &too_large, ()).unwrap_err()).starts_with("SERVER_ERROR"));
    assert!(begun.elapsed() < Duration::from_secs(10), "an early refusal was waited for until the deadline");
    client.set("word", "one", ()).unwrap();
    assert!(refused(client.increment("word", 1).unwrap_err()).starts_with("CLIENT_ERROR"));
    assert!(matches!(client.get("two words"), Err(Error::Key { .. })));
    assert!(matches!(client.get_many(&["a", ""]), Err(Error::Key { .. })));
    // The connection is still in step.
    assert_eq!(client.get("word").unwrap(), item("one", 0));
    assert_eq!(client.get("large").unwrap(), None);
}

fn about_servers(client: &Client, address: &str) {
    let [(server, version)] = &client.version()[..] else { panic!("one server") };
    assert_eq!(&**server, address);
    assert!(version.as_ref().unwrap().starts_with("1."));
    let (_, statistics) = client.stats("").unwrap().remove(0);
    let statistics = statistics.unwrap();
    let value = |name| statistics.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
    assert!(value("curr_items").unwrap().parse::<u64>().unwrap() > 0);
    assert!(value("pid").unwrap().parse::<u64>().unwrap() > 0);
    client.stats("settings").unwrap().remove(0).1.unwrap();
    client.stats("reset").unwrap().remove(0).1.unwrap();
    assert!(matches!(client.stats("a\r\nflush_all"), Err(Error::Option(_))));
}

fn futures(client: &AsyncClient) {
    let sets: Vec<_> = (0..1000).map(|n| client.set(format!("f{n}"), n.to_string(), ())).collect();
    sets.into_iter().for_each(|reply| reply.wait().unwrap());
    let gets: Vec<_> = (0..1001).map(|n| client.get(format!("f{n}"))).collect();
    for (n, reply) in gets.into_iter().enumerate() {
        assert_eq!(reply.wait().unwrap(), if n < 1000 { item(n.to_string(), 0) } else { None });
    }
    let large = vec![3; 300_000];
    // Requests and answers together are longer than all buffers on the way.
    let sets: Vec<_> = (0..20).map(|n| client.set(format!("l{n}"), large.clone(), ())).collect();
    let both: Vec<_> =
        (0..20).map(|n| (client.get(format!("l{n}")), client.append(format!("l{n}"), vec![4]))).collect();
    sets.into_iter().for_each(|reply| reply.wait().unwrap());
    for (get, append) in both {
        assert_eq!(get.wait().unwrap().unwrap().value, large);
        assert!(append.wait().unwrap());
    }
    let (_, version) = client.gets("f1").wait().unwrap().unwrap();
    let both = (client.cas("f1", "x", (), version), client.cas("f1", "y", (), version));
    assert_eq!((both.0.wait().unwrap(), both.1.wait().unwrap()), (Cas::Stored, Cas::Changed));
    assert_eq!(client.increment("f41", 1).wait().unwrap(), Some(42));
    assert_eq!(client.decrement("f41", 50).wait().unwrap(), Some(0));
    assert!(client.touch("f2", Expiry::Never).wait().unwrap());
    assert_eq!(client.get_and_touch("f2", Duration::ZERO).wait().unwrap(), item("2", 0));
    assert!(!client.delete("f2").wait().unwrap());
    assert!(client.add("f2", "again", ()).wait().unwrap());
    assert!(client.replace("f2", "b", ()).wait().unwrap());
    assert!(client.prepend("f2", "a").wait().unwrap());
    let keys: Vec<String> = (0..700).map(|n| format!("f{}", n * 2)).collect();
    let items = client.get_many(&keys).wait().unwrap();
    assert_eq!(items.iter().filter(|item| item.is_some()).count(), 500);
    assert_eq!(items[1], item("ab", 0));
    assert!(matches!(client.get("two words").wait(), Err(Error::Key { .. })));
    assert!(matches!(client.get_many(&["two words"]).wait(), Err(Error::Key { .. })));
    assert!(matches!(client.increment("l1", 1).wait(), Err(Error::Refused { .. })));
    assert!(client.version().remove(0).1.wait().unwrap().starts_with("1."));
    assert!(!client.stats("").unwrap().remove(0).1.wait().unwrap().is_empty());
    client.flush_all(Duration::ZERO).remove(0).1.wait().unwrap();
}
