//! `serve --engine cache`: a cache is served without a directory, and it stays within its memory.

use crate::common::{Serving, situ};
use crate::measure::resident_bytes;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

const MEMORY_MIB: u64 = 64;

/// Resident memory of a process, in MiB.
fn resident_mib(process: u32) -> u64 {
    resident_bytes(process) >> 20
}

#[test]
fn a_cache_stays_within_its_memory_and_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::start(directory.path(), &["--engine", "cache", "--memory", "64M"]);
    let mut connections: Vec<_> = (0..50).map(|_| serving.connect()).collect();
    let value = "v".repeat(2000);
    let mut most = 0;
    for round in 0..40 {
        for (number, connection) in connections.iter_mut().enumerate() {
            let mut text = String::new();
            for item in 0..100 {
                text += &format!("ms {round}-{number}-{item} 2000 q\r\n{value}\r\n");
            }
            connection.get_mut().write_all(text.as_bytes()).unwrap();
            connection.get_mut().write_all(b"mn\r\n").unwrap();
        }
        for connection in &mut connections {
            let mut line = String::new();
            connection.read_line(&mut line).unwrap();
            assert_eq!(line, "MN\r\n");
        }
        most = most.max(resident_mib(serving.child.id()));
    }
    // 400 MB went through. The limit is looked at four times a second; a little is the segments that are open then.
    assert!(most <= MEMORY_MIB + 8, "{most} MiB");
    assert!(most >= MEMORY_MIB / 2, "{most} MiB: little was kept");
    assert!(serving.ask("stats\r\nquit\r\n").contains("STAT limit_maxbytes 67108864"));
    drop(serving);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Sets keys from the range to values that name the round, and waits for the answers.
fn set_all(serving: &Serving, keys: std::ops::Range<u32>, round: u32) {
    let mut connection = serving.connect();
    for start in keys.clone().step_by(500) {
        let mut text = String::new();
        for key in start..(start + 500).min(keys.end) {
            text += &format!("ms key{key} 1000 q\r\n{}\r\n", format!("{key:06}/{round:03}").repeat(100));
        }
        connection.get_mut().write_all((text + "mn\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        connection.read_line(&mut line).unwrap();
        assert_eq!(line, "MN\r\n");
    }
}

/// The rounds of the values of all keys; `None` where there is none.
fn rounds(serving: &Serving, keys: u32) -> Vec<Option<u32>> {
    let mut connection = serving.connect();
    let mut found = Vec::new();
    for key in 0..keys {
        if key % 500 == 0 {
            let asked: String = (key..keys.min(key + 500)).map(|key| format!("mg key{key} v\r\n")).collect();
            connection.get_mut().write_all(asked.as_bytes()).unwrap();
        }
        let mut line = String::new();
        connection.read_line(&mut line).unwrap();
        if line == "EN\r\n" {
            found.push(None);
            continue;
        }
        assert_eq!(line, "VA 1000\r\n");
        let mut value = String::new();
        connection.read_line(&mut value).unwrap();
        let round: u32 = value[7..10].parse().unwrap();
        let part = format!("{key:06}/{round:03}");
        let is_whole = value.len() == 1002 && value.as_bytes()[..1000].chunks(10).all(|chunk| chunk == part.as_bytes());
        assert!(is_whole, "wrong bytes of key {key}");
        found.push(Some(round));
    }
    found
}

fn bytes_on_flash(serving: &Serving) -> u64 {
    let stats = serving.ask("stats\r\nquit\r\n");
    let used = stats.lines().find_map(|line| line.strip_prefix("STAT extstore_bytes_used "));
    used.unwrap().parse().unwrap()
}

#[test]
fn items_on_flash_outlive_the_process_and_never_go_back() {
    const KEYS: u32 = 80_000;
    const OPTIONS: [&str; 8] = ["--engine", "cache", "--memory", "64M", "--flash", "flash", "--flash-size", "512M"];
    let directory = tempfile::tempdir().unwrap();
    let mut expected = vec![0; KEYS as usize];
    let mut serving = Serving::start(directory.path(), &OPTIONS);
    for round in 0..3 {
        let before = bytes_on_flash(&serving);
        set_all(&serving, 0..KEYS, 2 * round);
        expected.fill(2 * round);
        // Some of them lie on flash by now. The process dies at any moment after the answers.
        set_all(&serving, 1000..6000, 2 * round + 1);
        expected[1000..6000].fill(2 * round + 1);
        let deleted = (0..200).map(|key| format!("delete key{key} noreply\r\n")).collect::<String>();
        assert_eq!(serving.ask(&(deleted + "mn\r\nquit\r\n")), "MN\r\n");
        // 18 MiB of this round hold 17,000 items. At most 5,200 of them are stale or deleted. A drive that is behind gets
        // fewer, and they must go there once more: then some are there twice.
        let (deadline, mut least) = (Instant::now() + Duration::from_secs(60), 11_000);
        let (mut last, mut since) = (0, Instant::now());
        while bytes_on_flash(&serving) - before < 18 << 20 {
            let now = bytes_on_flash(&serving);
            assert!(Instant::now() < deadline, "{now} bytes are on flash, {before} before");
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() > Duration::from_secs(1) {
                set_all(&serving, 6000..KEYS, 2 * round);
                (least, since) = (1000, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let is_clean = round % 2 == 1;
        let least = if is_clean { rounds(&serving, KEYS).iter().flatten().count() } else { least };
        serving.signal(if is_clean { rustix::process::Signal::TERM } else { rustix::process::Signal::KILL });
        assert_eq!(serving.wait(), is_clean.then_some(0));
        serving = Serving::start(directory.path(), &OPTIONS);
        let found = rounds(&serving, KEYS);
        let there = found.iter().flatten().count();
        assert!(there >= least, "{there} items came back after round {round}, not {least}");
        assert!(found[..200].iter().all(Option::is_none), "deleted items came back");
        for (key, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!(found.is_none_or(|found| found == *expected), "{found:?} of key {key}, not {expected}");
        }
        // The reads have put copies into memory. The next round begins without them.
        serving.signal(rustix::process::Signal::KILL);
        serving.wait();
        serving = Serving::start(directory.path(), &OPTIONS);
    }
    let stats = serving.ask("stats\r\nquit\r\n");
    assert!(stats.contains("STAT extstore_works 1"));
    let used = bytes_on_flash(&serving);
    assert!(used > 30 << 20, "{used} bytes are used, of an earlier process");
    let resident = resident_mib(serving.child.id());
    assert!(resident <= MEMORY_MIB + 8, "{resident} MiB");
}

#[test]
fn what_cannot_be_the_flash_of_a_cache_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("other"), vec![1; 64 << 20]).unwrap();
    std::fs::write(directory.path().join("short"), vec![0; 1 << 20]).unwrap();
    std::fs::write(directory.path().join("empty"), b"").unwrap();
    for (options, part) in [
        (&["--memory", "64M", "--flash", "absent"][..], "--flash-size 10G makes a file"),
        (&["--memory", "64M", "--flash", "other"], "something else than a cache"),
        (&["--memory", "64M", "--flash", "other", "--flash-size", "1G"], "leave out --flash-size"),
        (&["--memory", "64M", "--flash", "short"], "at least 9 MiB"),
        (&["--memory", "64M", "--flash", "empty"], "exists and is empty"),
        (&["--memory", "32M", "--flash", "new", "--flash-size", "64M"], "64M or more"),
        (&["--memory", "64M", "--flash", "new", "--flash-size", "1M"], "at least 9 MiB"),
    ] {
        let refused = situ(directory.path(), &[&["serve", "--engine", "cache"][..], options].concat());
        assert!(refused.code != 0 && refused.stderr.contains(part), "{options:?}: {refused:?}");
    }
    let refused = situ(directory.path(), &["serve", "--flash", "other"]);
    assert!(refused.code == 2 && refused.stderr.contains("--engine cache"), "{refused:?}");
    assert!(std::fs::read(directory.path().join("other")).unwrap() == vec![1; 64 << 20]);
    assert!(!directory.path().join("new").exists());
}

#[test]
fn long_values_that_nobody_reads_take_a_part_of_the_memory() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["--engine", "cache", "--memory", "64M", "--flash", "flash", "--flash-size", "256M"];
    let serving = Serving::start(directory.path(), &options);
    let mut connection = serving.connect();
    for key in 0..100 {
        connection.get_mut().write_all(format!("set k{key} 0 0 900000\r\n").as_bytes()).unwrap();
        connection.get_mut().write_all(&[&vec![b'v'; 900_000][..], b"\r\n"].concat()).unwrap();
        let mut line = String::new();
        connection.read_line(&mut line).unwrap();
        assert_eq!(line, "STORED\r\n");
    }
    // In memory, and on flash. Each asks for 2.7 MB, of which the system takes a part.
    let clients: Vec<_> = (0..300)
        .map(|client| {
            let mut connection = serving.connect();
            let text: String = (0..3).map(|at| format!("get k{}\r\n", (client * 3 + at) % 100)).collect();
            connection.get_mut().write_all(text.as_bytes()).unwrap();
            connection
        })
        .collect();
    let most = (0..20).map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        resident_mib(serving.child.id())
    });
    let most = most.max().unwrap();
    assert!(most <= MEMORY_MIB + 16, "{most} MiB");
    // Others are served.
    assert_eq!(serving.ask("set k 0 0 1\r\nx\r\nget k\r\nquit\r\n"), "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    drop(clients);
    let left = || serving.ask("get k99\r\nquit\r\n").len() > 900_000;
    let is_served = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        left()
    });
    assert!(is_served, "long values are served again when the readers have gone");
}

#[test]
fn memory_that_follows_the_machines_is_for_caches() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::start(directory.path(), &["--engine", "cache", "--memory", "auto"]);
    let stats = serving.ask("stats\r\nquit\r\n");
    let limit = stats.lines().find_map(|line| line.strip_prefix("STAT limit_maxbytes ")).unwrap();
    assert!(limit.parse::<u64>().unwrap() >= 64 << 20, "{limit}");
    let refused = situ(directory.path(), &["serve", "--memory", "auto"]);
    assert!(refused.code == 2 && refused.stderr.contains("--engine cache"), "{refused:?}");
}

#[test]
fn what_means_nothing_to_a_cache_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (options, part) in [
        (&["--sync"][..], "--sync is not for the cache"),
        (&["somewhere"], "a directory is not for the cache"),
        (&["--memory", "8M"], "32M or more"),
        (&["--memory", "64M", "--max-value", "32M"], "at most 4193"),
        (&["--value-log"], "--value-log is not for the cache"),
    ] {
        let refused = situ(directory.path(), &[&["serve", "--engine", "cache"][..], options].concat());
        assert!(refused.code == 2 && refused.stderr.contains(part), "{options:?}: {refused:?}");
    }
    for command in [&["load", "--engine", "cache"][..], &["bench", "--engine", "cache"]] {
        let refused = situ(directory.path(), command);
        assert!(refused.stderr.contains("only `situ serve`"), "{refused:?}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
