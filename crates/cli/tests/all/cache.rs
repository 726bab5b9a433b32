//! `serve --engine cache`: a cache is served without a directory, and it stays within its memory.

use crate::common::{Serving, situ};
use std::io::{BufRead, Write};

const MEMORY_MIB: u64 = 64;

/// Resident memory of a process, in MiB.
fn resident_mib(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
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
