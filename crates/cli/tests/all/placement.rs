//! Decisions of placement as a user meets them: in `inspect`, in `/metrics` and in the server's messages.

use crate::common::{Serving, situ, situ_fed};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// So many entries of about 1 KB that no compression makes much smaller, as lines of JSON.
fn lines(keys: std::ops::Range<u64>) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state = keys.start | 1;
    let mut text = Vec::new();
    for key in keys {
        let mut letter = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            LETTERS[(state >> 40) as usize % 64] as char
        };
        let value: String = (0..1000).map(|_| letter()).collect();
        writeln!(text, "{{\"key\":\"{key:08}\",\"value\":\"{value}\"}}").unwrap();
    }
    text
}

fn metrics(serving: &Serving) -> String {
    let mut http = TcpStream::connect(serving.http).unwrap();
    http.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    http.read_to_string(&mut page).unwrap();
    page
}

fn disk_of(at: &Path, mib: u64) {
    File::create(at.join("disk")).unwrap().write_all(&vec![0; (mib as usize) << 20]).unwrap();
}

/// A store fills its small fast disk while it is served.
#[test]
fn a_decision_is_in_metrics_in_the_log_and_in_inspect() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    disk_of(at, 48);
    situ(at, &["disk", "format", "disk", "--log", "8M"]).done();
    // Half of the disk's room, in one deep level.
    situ_fed(at, &["load"], &lines(0..20_000)).done();
    situ(at, &["compact"]).done();
    situ(at, &["disk", "add", "situ-data", "disk"]).done();
    // And more than it has left, in the log: who opens the store makes tables of it.
    situ_fed(at, &["load"], &lines(20_000..40_000)).done();
    let before = situ(at, &["inspect", "--json"]).done().json();
    assert_eq!(before["fast_disk"]["decisions"].as_array().map(Vec::len), Some(0), "{}", before["fast_disk"]);

    let mut serving = Serving::start(at, &["--log-file", "situ.log"]);
    let begin = Instant::now();
    let fewer = "situ_store_placement_decisions_total{direction=\"fewer_levels\",rule=\"room\"}";
    let mut page = metrics(&serving);
    while !page.contains(&format!("{fewer} 1\n")) {
        assert!(begin.elapsed() < Duration::from_secs(60), "no decision: {page}");
        // The disks are looked at while something goes through them.
        serving.ask("set a 0 0 1\r\nx\r\nquit\r\n");
        std::thread::sleep(Duration::from_millis(100));
        page = metrics(&serving);
    }
    for other in ["fewer_levels\",rule=\"failure", "fewer_levels\",rule=\"bandwidth", "more_levels\",rule=\"spare"] {
        let line = format!("situ_store_placement_decisions_total{{direction=\"{other}\"}} 0\n");
        assert!(page.contains(&line), "{line}{page}");
    }
    let info = page.lines().find(|line| line.starts_with("situ_store_placement_decision_info{"));
    let info = info.unwrap_or_else(|| panic!("no text of the decision in {page}")).to_owned();
    assert!(info.contains("before=\"7\",after=\"6\",reason=\"levels below 7 fill ") && info.ends_with("} 1"), "{info}");
    serving.signal(rustix::process::Signal::TERM);
    assert_eq!(serving.wait(), Some(0));
    let log = std::fs::read_to_string(at.join("situ.log")).unwrap();
    let told = log
        .lines()
        .filter(|line| line.contains("levels below 6 go to the fast disk (before, below 7): levels below 7 fill "));
    assert_eq!(told.count(), 1, "{log}");

    let text = situ(at, &["inspect"]).done().text();
    assert!(text.contains("levels below 6 (before, below 7): levels below 7 fill "), "{text}");
    let decisions = situ(at, &["inspect", "--json"]).done().json()["fast_disk"]["decisions"].clone();
    let decision = &decisions[0];
    assert_eq!((decision["before"].as_u64(), decision["after"].as_u64()), (Some(7), Some(6)), "{decisions}");
    let reason = decision["reason"].as_str().unwrap();
    assert!(info.contains(reason) && reason.ends_with("of the fast disk's room"), "{info} {decisions}");

    // Who serves it next still has its text, and has made none itself.
    let serving = Serving::start(at, &[]);
    let page = metrics(&serving);
    assert!(page.contains(&info) && page.contains(&format!("{fewer} 0\n")), "{page}");
}

#[test]
fn inspect_and_disk_show_say_what_the_device_is() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    disk_of(at, 64);
    situ(at, &["disk", "format", "disk"]).done();
    situ(at, &["put", "a", "1"]).done();
    situ(at, &["disk", "add", "situ-data", "disk"]).done();
    let device = situ_device::open(&at.join("disk"), situ_device::OpenOptions::default()).unwrap();
    let (geometry, backend) = (device.geometry(), device.describe());
    let disk = at.join("disk");
    let show = ["disk", "show", disk.to_str().unwrap(), "--json"];
    let (inspected, shown) = (situ(at, &["inspect"]).done().text(), situ(at, &show[..3]).done().text());
    let what = backend.split_once('(').unwrap().1;
    let cache = if geometry.volatile_write_cache { "volatile: durable" } else { "not volatile: neither" };
    for text in [&inspected, &shown] {
        assert!(text.contains(what.trim_end_matches(')')), "{backend} is not in {text}");
        assert!(text.contains("are never torn") && text.contains(cache) && text.contains("discard "), "{text}");
    }
    let inspected = situ(at, &["inspect", "--json"]).done().json()["fast_disk"].clone();
    let shown = situ(at, &show).done().json();
    assert_eq!(inspected["geometry"], shown["geometry"]);
    assert_eq!(inspected["location"], shown["device"]);
    let number = |name: &str| shown["geometry"][name].as_u64().unwrap();
    assert_eq!(number("logical_block_bytes"), u64::from(geometry.block_bytes));
    assert_eq!(number("atomic_write_bytes"), u64::from(geometry.atomic_write_bytes));
    assert_eq!(number("discard_bytes"), u64::from(geometry.discard_bytes));
    assert_eq!(shown["geometry"]["volatile_write_cache"].as_bool(), Some(geometry.volatile_write_cache));
    assert_eq!(shown["geometry"]["discard_zeroes"].as_bool(), Some(geometry.discard_zeroes));
}
