use super::*;
use crate::memory::SharedMemory;
use std::sync::atomic::AtomicUsize;

fn pair() -> (Arc<SharedMemory>, Rings, Rings) {
    let memory = Arc::new(SharedMemory::allocate(HEADER_BYTES + 2 * RING_BYTES_MIN as usize));
    let server = Rings::of_server(Arc::clone(&memory), RING_BYTES_MIN);
    let client = Rings::of_client(Arc::clone(&memory), RING_BYTES_MIN).unwrap();
    (memory, server, client)
}

/// Returns bytes that differ from their neighbours in the ring.
fn pattern(from: usize, bytes: usize) -> Vec<u8> {
    (from..from + bytes).map(|at| (at * 31 / 7) as u8).collect()
}

#[test]
fn bytes_come_out_as_they_went_in_over_every_wrap() {
    let (_, mut server, mut client) = pair();
    let (mut written, mut read) = (0, 0);
    for step in 0..400 {
        let all = pattern(written, 1 + step * 7 % 3000);
        let (first, rest) = all.split_at(all.len() / 5);
        let (second, third) = rest.split_at(rest.len() / 3);
        let bytes = client.write_parts(&[first, second, &[], third].map(IoSlice::new)).unwrap();
        written += bytes;
        let mut into = Vec::with_capacity(1 + step * 11 % 2500);
        assert_eq!(server.read_to(&mut into).unwrap(), into.len());
        assert_eq!(into, pattern(read, into.len()));
        read += into.len();
    }
    assert!(written > 20 * RING_BYTES_MIN as usize && written - read <= RING_BYTES_MIN as usize);
    let mut rest = vec![0; RING_BYTES_MIN as usize + 1];
    let bytes = server.read(&mut rest).unwrap();
    assert_eq!(rest[..bytes], pattern(read, written - read));
    assert_eq!((server.read(&mut rest).unwrap(), server.readable_bytes().unwrap()), (0, 0));
}

#[test]
fn a_full_ring_takes_nothing_until_it_is_read() {
    let (_, mut server, mut client) = pair();
    let all = RING_BYTES_MIN as usize;
    assert_eq!(client.write(&vec![1; all + 5]).unwrap(), all);
    assert_eq!(client.write(b"x").unwrap(), 0);
    assert!(!client.is_ready(true).unwrap(), "no room");
    let mut some = [0; 3];
    assert_eq!(server.read(&mut some).unwrap(), 3);
    assert!(client.is_ready(true).unwrap(), "room");
    assert_eq!(client.write(b"abcde").unwrap(), 3);
}

#[test]
fn bells_are_rung_for_what_the_other_side_waits_for_and_once() {
    let (_, mut server, mut client) = pair();
    client.write(b"a").unwrap();
    assert!(!client.must_ring(), "the server is awake");
    assert!(!server.may_sleep(true).unwrap(), "there is a byte to read");
    server.read(&mut [0; 9]).unwrap();
    assert!(server.may_sleep(true).unwrap());
    client.read(&mut [0; 9]).unwrap();
    assert!(!client.must_ring(), "nothing was done");
    client.write(b"b").unwrap();
    assert!(client.must_ring());
    client.write(b"c").unwrap();
    assert!(!client.must_ring(), "it was rung for already");
    // The server waits for bytes and not for room: that its answers are read does not wake it.
    server.read(&mut [0; 9]).unwrap();
    server.write(b"answer").unwrap();
    assert!(server.may_sleep(true).unwrap());
    client.read(&mut [0; 9]).unwrap();
    assert!(!client.must_ring());
    // Now it waits for room.
    server.write(&[0; RING_BYTES_MIN as usize]).unwrap();
    server.write(b"more").unwrap();
    assert!(server.may_sleep(true).unwrap());
    client.read(&mut [0; 9]).unwrap();
    assert!(client.must_ring());
}

#[test]
fn impossible_counts_are_a_breach() {
    for (field, value) in [
        (at::TO_SERVER_WRITTEN, RING_BYTES_MIN + 1),
        (at::TO_SERVER_WRITTEN, u64::MAX),
        (at::TO_CLIENT_READ, 1),
        (at::TO_CLIENT_READ, u64::MAX),
    ] {
        let (memory, mut server, _) = pair();
        memory.count(field).store(value, Ordering::Release);
        let read = server.read(&mut [0; 9]);
        let written = server.write(b"x");
        assert!(read == Err(Breach) || written == Err(Breach), "{field} {value}: {read:?}, {written:?}");
    }
    // A count that goes back.
    let (memory, mut server, mut client) = pair();
    server.write(&[1; 100]).unwrap();
    client.read(&mut [0; 100]).unwrap();
    server.write(b"x").unwrap();
    memory.count(at::TO_CLIENT_READ).store(50, Ordering::Release);
    assert_eq!(server.write(b"x"), Err(Breach));
}

/// Two threads that sleep and wake each other never both sleep while there is something to do.
#[test]
fn no_bell_is_lost() {
    let (_, mut server, mut client) = pair();
    let total = if cfg!(miri) { 3_000 } else { 3_000_000 };
    let bells = [std::sync::mpsc::channel(), std::sync::mpsc::channel()];
    let [(to_server, of_server), (to_client, of_client)] = bells;
    let sleeps = AtomicUsize::new(0);
    let wait = |rings: &mut Rings, bells: &std::sync::mpsc::Receiver<()>| {
        while rings.may_sleep(true).unwrap() {
            sleeps.fetch_add(1, Ordering::Relaxed);
            let rung = bells.recv_timeout(std::time::Duration::from_secs(60));
            assert!(rung.is_ok(), "a bell was lost");
            rings.awake();
        }
    };
    let wait = &wait;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Gives back all that it gets.
            let (mut done, mut held) = (0, Vec::new());
            while done < total {
                let mut into = Vec::with_capacity(700);
                server.read_to(&mut into).unwrap();
                held.extend(into);
                let written = server.write(&held).unwrap();
                held.drain(..written);
                done += written;
                if server.must_ring() {
                    to_client.send(()).unwrap();
                }
                if done < total && !server.is_ready(true).unwrap() {
                    wait(&mut server, &of_server);
                }
            }
        });
        let (mut sent, mut got) = (0, 0);
        while got < total {
            sent += client.write(&pattern(sent, 1000.min(total - sent))).unwrap();
            let mut into = [0; 900];
            let bytes = client.read(&mut into).unwrap();
            assert_eq!(into[..bytes], pattern(got, bytes));
            got += bytes;
            if client.must_ring() {
                to_server.send(()).unwrap();
            }
            if got < total && !client.is_ready(true).unwrap() {
                wait(&mut client, &of_client);
            }
        }
    });
    assert!(sleeps.into_inner() > 0, "nobody ever slept");
}

/// The page has the layout that the code has.
#[test]
fn the_page_tells_the_layout() {
    let page = include_str!("../../../../docs/formats/shared-memory.md");
    let fields = [
        (at::MAGIC, "magic"),
        (at::RING_BYTES, "ring_bytes"),
        (at::TO_SERVER_WRITTEN, "to_server_written"),
        (at::TO_SERVER_READ, "to_server_read"),
        (at::TO_CLIENT_WRITTEN, "to_client_written"),
        (at::TO_CLIENT_READ, "to_client_read"),
        (at::SERVER_SLEEPS, "server_sleeps"),
        (at::CLIENT_SLEEPS, "client_sleeps"),
    ];
    for (offset, name) in fields {
        let begins = format!("| {offset} | ");
        assert!(page.lines().any(|line| line.starts_with(&begins) && line.contains(&format!("`{name}`"))), "{name}");
    }
    assert!(page.contains(&format!("| {HEADER_BYTES} | `ring_bytes` | requests |")));
    assert!(page.contains("a power of two from 4096 to 4,194,304"));
    assert_eq!((RING_BYTES_MIN, RING_BYTES_MAX), (4096, 4_194_304));
    assert_eq!(&MAGIC.to_le_bytes(), b"situshm1");
}

#[test]
fn the_time_of_a_look_shrinks_with_long_waits_and_is_tried_again() {
    let mut spin = Spin::default();
    let long = 2 * Spin::MAX;
    let times: Vec<_> = (0..15)
        .map(|_| {
            spin.learn(long);
            spin.time()
        })
        .collect();
    assert!(times.windows(2).all(|pair| pair[1] < pair[0]) && times[0] == Spin::MAX / 2, "{times:?}");
    spin.learn(long);
    assert_eq!(spin.time(), Spin::MAX);
    spin.learn(long);
    assert_eq!(spin.time(), Spin::MAX / 2);
    spin.learn(Spin::MAX);
    assert_eq!(spin.time(), Spin::MAX);
}
