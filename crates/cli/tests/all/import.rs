//! `import` in a program that was built without RocksDB. With it: the module `import_rocksdb`.
#![cfg(not(feature = "rocksdb"))]

use crate::common::situ;

#[test]
fn a_program_without_rocksdb_says_how_to_get_one_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let refused = situ(directory.path(), &["import", "rocksdb", "db"]);
    assert_eq!(refused.code, 1);
    for part in ["built without RocksDB's library", "cargo build --release --locked -p situ-cli --features rocksdb"] {
        assert!(refused.stderr.contains(part), "{part} in {}", refused.stderr);
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let help = situ(directory.path(), &["import", "rocksdb", "--help"]).done().text();
    assert!(help.contains("--resume") && help.contains("--features rocksdb"), "{help}");
}
