use super::*;
use serde_json::json;

/// Returns an answer whose counters grow with `turn`.
fn answer(turn: u64) -> Live {
    let sample = |value: f64| json!([{ "value": value }]);
    let level = |values: [f64; 2]| {
        json!([
            { "labels": { "keyspace": "a", "level": "0" }, "value": values[0] },
            { "labels": { "keyspace": "a", "level": "1" }, "value": values[1] },
            { "labels": { "keyspace": "b", "level": "1" }, "value": values[1] },
        ])
    };
    let mut buckets = vec![0; 26];
    (buckets[4], buckets[10]) = (990 * turn, 10 * turn);
    let figures = json!({
        "version": "1.2.3", "unix_ms": 0, "uptime_us": 2_000_000 * turn, "trouble": null,
        "metrics": {
            "situ_store_last_sequence": sample(1.0),
            "situ_server_commands_total": [
                { "labels": { "command": "get" }, "value": 1000 * turn }, { "labels": { "command": "set" }, "value": null },
            ],
            "situ_server_get_hits_total": sample(750.0 * turn as f64),
            "situ_server_get_misses_total": sample(250.0 * turn as f64),
            "situ_store_cache_bytes": sample(64.0), "situ_store_cache_limit_bytes": sample(256.0),
            "situ_keyspace_level_tables": level([4.0, 1.0]), "situ_keyspace_level_bytes": level([1024.0, 2048.0]),
            "situ_keyspace_level_fast_disk_bytes": level([1024.0, 512.0]),
            "situ_store_fast_disk_total_bytes": sample(4096.0), "situ_store_fast_disk_used_bytes": sample(4096.0),
            "situ_store_stall_seconds_total": sample(0.5 * turn as f64),
            "situ_store_slow_operations_total": sample(7.0 * turn as f64),
            "situ_store_damaged_files": sample(2.0), "situ_store_debt_tombstones": sample(0.0),
        },
        "latencies": { "read": { "buckets": buckets, "seconds": 1.0 } },
        "compactions": null,
        "slow_operations": [{
            "unix_ms": 0, "kind": "get", "keyspace": "items", "key_bytes": 6, "bytes": 100, "took_us": 153_000,
            "parts": [{ "name": "decode", "count": 1, "us": 3000 }, { "name": "block_read", "count": 2, "us": 150_000 }],
        }],
    });
    serde_json::from_value(figures).unwrap()
}

fn lines(before: &Live, now: &Live) -> String {
    report(before, now, "127.0.0.1:1".parse().unwrap()).join("\n")
}

#[test]
fn rates_are_of_the_time_between_two_answers() {
    let text = lines(&answer(3), &answer(4));
    for part in [
        "Situ 1.2.3 at 127.0.0.1:1, ordered store, up for 8 s\n",
        "\ncommands   500/s, 0 B/s from clients, 0 B/s to clients, 0 connections, 75% of keys found\n",
        // Of a thousand commands, 990 took between 8 and 16 µs, and ten between 512 and 1024.
        "\n  read                500/s   median  11.4 µs   99%  16.0 µs   99.9%   955 µs\n",
        "\n  block cache  ██████░░░░░░░░░░░░░░░░░░ 64 B of 256 B\n",
        "\n  fast disk    ████████████████████████ 4.00 KiB of 4.00 KiB\n",
        "\n  level 0      ██████░░░░░░░░░░░░░░░░░░ 1.00 KiB, 4 tables, on the fast disk\n",
        "\n  level 1      ████████████████████████ 4.00 KiB, 2 tables, 1.00 KiB of it on the fast disk\n",
        "\n  writers held back 0.25 s in a second, 2.0 s in all\n  damaged files: 2",
        "\nslow operations   7, 28 in all\n       0 s ago   get   153 ms   items, 100 B   block read 150 ms, decode 3.00 ms",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains("tombstones") && !text.contains("compactions") && !text.contains("flash"), "{text}");
}

/// A server that restarted counts from zero. Its rates are those since the start, and never negative.
#[test]
fn a_restart_of_the_server_shows_no_negative_rate() {
    let text = lines(&answer(9), &answer(1));
    assert!(text.contains("\ncommands   500/s, ") && text.contains(" 0.25 s in a second, 0.5 s in all"), "{text}");
}

#[test]
fn an_address_is_one_of_a_server_or_a_directory() {
    assert_eq!(address("127.0.0.1:7").unwrap(), "127.0.0.1:7".parse().unwrap());
    assert!(address("localhost:7").is_ok());
    let directory = tempfile::tempdir().unwrap();
    let at = |text: &str| {
        std::fs::write(directory.path().join("OPTIONS.toml"), text).unwrap();
        address(directory.path().to_str().unwrap())
    };
    assert_eq!(at("[serve]\nhttp = \"10.0.0.1:5\"\n").unwrap(), "10.0.0.1:5".parse().unwrap());
    assert_eq!(at("[serve]\n# http = \"10.0.0.1:5\"\n").unwrap(), "127.0.0.1:11212".parse().unwrap());
    for refused in ["[serve]\nno-http = true\n", "[serve]\nhttp = \"127.0.0.1:0\"\n", "[serve]\nhttp = \"x\"\n"] {
        assert!(at(refused).is_err(), "{refused}");
    }
    std::fs::remove_file(directory.path().join("OPTIONS.toml")).unwrap();
    assert!(address(directory.path().to_str().unwrap()).is_err());
    assert!(address("no-such-directory").is_err());
}
