//! A store of many keyspaces, and a process with little memory.

use crate::common::{Ran, situ};
use std::path::Path;
use std::process::Command;

const KEYSPACES: u32 = 4_000;

/// Runs `situ get` with so many KiB of address space. `None` if a signal ended it.
fn get(at: &Path, keyspace: &str, limit_kib: u64) -> Option<Ran> {
    let mut command = Command::new("/bin/sh");
    let get = format!("ulimit -v {limit_kib} && exec \"$0\" get --data D --keyspace '{keyspace}' key");
    let output = command.args(["-c", &get, env!("CARGO_BIN_EXE_situ")]).current_dir(at).output().unwrap();
    let code = output.status.code()?;
    Some(Ran { code, stdout: output.stdout, stderr: String::from_utf8_lossy(&output.stderr).into_owned() })
}

/// `situ get` of one key aborted where memory was short. It answers, or says that there is no memory.
#[test]
#[cfg(target_os = "linux")]
fn a_get_without_memory_for_many_keyspaces_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "--data", "D", "key", "1"]).done();
    // The least that the program can do anything with.
    let least = (10_000..400_000).step_by(2_000).find(|kib| get(at, "default", *kib).is_some_and(|ran| ran.code == 0));
    let least = least.unwrap();
    let store = situ::Store::open(at.join("D")).unwrap();
    let mut batch = situ::WriteBatch::new();
    for number in 0..KEYSPACES {
        let keyspace = store.keyspace(&format!("keyspace {number}")).unwrap();
        batch.put_in(&keyspace, b"key", b"1").unwrap();
    }
    store.write(batch).unwrap();
    store.close().unwrap();
    let (mut answered, mut refused) = (0, 0);
    for kib in (least..least + 60_000).step_by(2_000) {
        let ran = get(at, "keyspace 77", kib).unwrap_or_else(|| panic!("a signal ended it with {kib} KiB"));
        match ran.code {
            0 => answered += 1,
            _ => {
                let says = "there is no memory for";
                assert!(
                    ran.code == 1 && ran.stderr.contains(says) && ran.stderr.contains("ulimit -v"),
                    "{kib}: {ran:?}"
                );
                refused += 1;
            }
        }
    }
    assert!(answered > 0 && refused > 0, "{answered} answered, {refused} refused");
}
