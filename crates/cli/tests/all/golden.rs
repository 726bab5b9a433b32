//! Stores of releases: each opens, holds what it held, and takes writes. A store of a later format is refused.

use crate::common::{Serving, situ};
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders of versions. `scripts/golden-stores.sh` makes one for each release.
fn versions() -> Vec<PathBuf> {
    let stores = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stores");
    let mut versions: Vec<PathBuf> = fs::read_dir(stores).unwrap().map(|entry| entry.unwrap().path()).collect();
    versions.sort();
    assert!(!versions.is_empty());
    versions
}

fn unpack(version: &Path, kind: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let archive = version.join(format!("{kind}.tar.gz"));
    let status = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(directory.path()).status().unwrap();
    assert!(status.success(), "{}", archive.display());
    directory
}

/// Lines of a dump, sorted: a hash store has no order.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn expected(version: &Path, name: &str) -> Vec<String> {
    let mut text = String::new();
    let file = File::open(version.join(format!("{name}.jsonl.gz"))).unwrap();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let lines = lines(&text);
    assert!(!lines.is_empty());
    lines
}

#[test]
fn ordered_stores_of_releases_open_and_take_writes() {
    for version in versions() {
        let directory = unpack(&version, "ordered");
        let run = |arguments: &[&str]| situ(directory.path(), arguments).done().text();
        let dump = |keyspace: &str| lines(&run(&["dump", "-d", "ordered", "-k", keyspace]));
        let default = expected(&version, "ordered.default");
        for round in 0..2 {
            run(&["verify", "ordered"]);
            assert_eq!(dump("default"), default, "{}, round {round}", version.display());
            assert_eq!(dump("people"), expected(&version, "ordered.people"));
            if round == 0 {
                assert_eq!(run(&["get", "-d", "ordered", "key00018"]), "in the log\n");
                run(&["put", "-d", "ordered", "zzz", "new"]);
                run(&["compact", "-d", "ordered"]);
                run(&["delete", "-d", "ordered", "zzz"]);
            }
        }
    }
}

#[test]
fn served_stores_of_releases_have_their_items() {
    for version in versions() {
        for (kind, options) in [
            ("served", &["served", "--value-log"][..]),
            ("hash", &["hash", "--engine", "hash"]),
            ("two-disks", &["two-disks", "--fast-disk", "fast"]),
        ] {
            let directory = unpack(&version, kind);
            let stored = expected(&version, &format!("{kind}.items"));
            for _ in 0..2 {
                let serving = Serving::start(directory.path(), options);
                let dumped = situ(directory.path(), &["dump", "-d", kind, "-k", "items", "--stored"]);
                // A hash store cannot be read next to its server.
                if kind != "hash" {
                    assert_eq!(lines(&dumped.done().text()), stored, "{kind} of {}", version.display());
                }
                let answers: BTreeMap<&str, String> = ["item001", "item005", "item020", "item119"]
                    .map(|key| (key, serving.ask(&format!("mg {key} f v\r\nquit\r\n"))))
                    .into();
                let value = |n: usize| format!("{n};").repeat(2 + n * 12);
                let hit = |n: usize| format!("VA {} f{}\r\n{}\r\n", value(n).len(), n % 9, value(n));
                assert_eq!(answers["item001"], hit(1), "{kind}");
                assert_eq!(answers["item005"], hit(5), "{kind}");
                assert_eq!(answers["item119"], hit(119), "{kind}");
                assert_eq!(answers["item020"], "EN\r\n", "{kind}");
                // What an older store is given, it keeps.
                assert_eq!(serving.ask("set new 0 0 1\r\nx\r\ndelete new\r\nquit\r\n"), "STORED\r\nDELETED\r\n");
            }
            if kind == "hash" {
                assert_eq!(lines(&situ(directory.path(), &["dump", "-d", kind, "--stored"]).done().text()), stored);
            }
        }
    }
}

/// A program that is older than a store leaves it alone, and says so.
#[test]
fn a_store_of_a_later_format_is_refused_and_untouched() {
    let version = versions().pop().unwrap();
    let directory = unpack(&version, "ordered");
    let files = || -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = fs::read_dir(directory.path().join("ordered")).unwrap();
        entries.map(|entry| entry.unwrap().path()).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    };
    for (path, mut bytes) in files() {
        if path.file_name().unwrap().to_str().unwrap().starts_with("MANIFEST-") {
            bytes[8] = 99;
            let checksum = crc32c::crc32c(&bytes[..12]);
            bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
            fs::write(path, bytes).unwrap();
        }
    }
    let before = files();
    for arguments in [
        &["get", "-d", "ordered", "key00018"][..],
        &["put", "-d", "ordered", "k", "v"],
        &["serve", "ordered", "--no-http", "--listen", "127.0.0.1:0"],
        &["verify", "ordered"],
        &["repair", "ordered"],
    ] {
        let refused = situ(directory.path(), arguments);
        assert_ne!(refused.code, 0, "{arguments:?}");
        let why = format!("{}{}", refused.stderr, String::from_utf8_lossy(&refused.stdout));
        assert!(why.contains("version 99") && why.contains("use the Situ that wrote it"), "{arguments:?}: {why}");
        assert_eq!(files(), before, "{arguments:?}");
    }
}
