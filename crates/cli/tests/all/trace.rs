//! Traces of a served store, replayed by the benchmark.

use crate::common::{Serving, program, situ};
use rustix::process::Signal;
use situ_trace::Trace;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "the condition does not come true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn commands(number: usize) -> String {
    format!("set user:{number} 0 0 10\r\n0123456789\r\nget user:{number}\r\nget nobody\r\ndelete user:{number}\r\n")
}

#[test]
fn a_trace_of_a_server_is_replayed_on_a_store_and_on_a_server() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut serving = Serving::start(at, &["store", "--log-file", "situ.log"]);
    let refused = situ(at, &["trace", "nowhere", "-o", "t"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("no server has this store open"), "{}", refused.stderr);

    // It ends at its size, so clients go on until then.
    let record = |file: &str, keys: &str| {
        let mut command = program(at);
        command.args(["--json", "trace", "store", "--seconds", "600", "--max-size", "4K", "-o", file, "--keys", keys]);
        let mut recording = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut number = 0;
        until(|| {
            serving.ask(&format!("{}quit\r\n", commands(number)));
            number += 1;
            recording.try_wait().unwrap().is_some()
        });
        let output = recording.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let requests = summary["requests"].as_u64().unwrap();
        assert!(requests > 100 && summary["lost"] == 0, "{summary}");
        let bytes = fs::read(at.join(file)).unwrap();
        assert_eq!(at.join(file).metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(summary["bytes"].as_u64(), Some(bytes.len() as u64));
        let has_keys = bytes.windows(5).any(|bytes| bytes == b"user:");
        assert_eq!(has_keys, keys == "plain", "{file}");
        requests
    };
    let plain = record("plain.trace", "plain");
    let hashed = record("hashed.trace", "hash");
    let again = situ(at, &["trace", "store", "-o", "plain.trace"]);
    assert!(again.code == 1 && again.stderr.contains("exists"), "{}", again.stderr);

    // The end of the command ends the recording, and the file is whole. (A shell lets its jobs ignore SIGINT.)
    let mut recording = program(at).args(["trace", "store", "-o", "ended.trace", "--seconds", "600"]).spawn().unwrap();
    until(|| at.join("ended.trace").exists());
    rustix::process::kill_process(rustix::process::Pid::from_child(&recording), Signal::TERM).unwrap();
    assert!(!recording.wait().unwrap().success());
    until(|| Trace::open(&at.join("ended.trace")).is_ok());

    for (file, connect) in [("plain.trace", false), ("hashed.trace", false), ("plain.trace", true)] {
        let address = serving.address.to_string();
        let mut line = vec!["bench", "--json", "--replay", file, "--pace", "full", "--threads", "2"];
        match connect {
            true => line.extend(["--connect", &address]),
            false => line.extend(["--directory", "bench"]),
        }
        let replayed = situ(at, &line).done();
        let phase = &replayed.json()["phases"][0];
        assert_eq!(phase["workload"], "replay", "{phase}");
        // A half of the gets hit.
        let (found, missed) = (phase["found"].as_u64().unwrap(), phase["missed"].as_u64().unwrap());
        assert!(found.abs_diff(missed) <= 4 && found > 0, "{file}: {found} found, {missed} missed");
        assert_eq!(phase["operations"].as_u64(), Some(if file == "plain.trace" { plain } else { hashed }));
    }
    let whole = fs::read(at.join("plain.trace")).unwrap();
    fs::write(at.join("cut.trace"), &whole[..whole.len() / 2]).unwrap();
    let cut = situ(at, &["bench", "--replay", "cut.trace", "--directory", "bench"]);
    assert!(cut.code == 1 && cut.stderr.contains("the trace is cut"), "{}", cut.stderr);
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), Some(0));
}
