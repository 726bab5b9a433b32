//! Tests that share their process with no other test: what they measure or change belongs to all of a process.

use std::io::Write;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Set in the process of one test, to the name of the test.
const OWN: &str = "SITU_TEST_IN_OWN_PROCESS";

/// They also measure, so one runs at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs `body`, a closure that is all of a test, in a process of its own: this program again, told to run that test only.
pub(crate) fn in_own_process<F: FnOnce()>(body: F) {
    let test = test_of::<F>();
    if std::env::var_os(OWN).is_some_and(|own| own == test) {
        return body();
    }
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // With more than one thread a test has a thread with its name; `skipped` says the name.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=2"])
        .env(OWN, test)
        .output()
        .unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for line in complained.lines().filter(|line| line.starts_with("SKIPPED: ")) {
        let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
    }
    // Indented, so that nobody counts its result beside that of this program.
    let all = format!("{said}{complained}").lines().map(|line| format!("  | {line}\n")).collect::<String>();
    // A name that fits no test would be a success, of no test.
    let passed = output.status.success() && said.contains("test result: ok. 1 passed");
    assert!(passed, "{test} in a process of its own: {}\n{all}", output.status);
    print!("{all}");
}

/// The path of the test that a closure is in, as `--exact` takes it: without the crate's name.
fn test_of<F>() -> &'static str {
    let name = std::any::type_name::<F>();
    let name = name.strip_suffix("::{{closure}}").expect("a closure, directly in the test");
    name.split_once("::").expect("the crate's name comes first").1
}
