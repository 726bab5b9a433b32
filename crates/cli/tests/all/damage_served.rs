//! Damage that `situ serve` meets is in its log, once, however often it is read.

use crate::common::{Serving, situ};
use rustix::process::Signal;
use std::fs;

#[test]
fn a_flipped_byte_is_one_line_of_the_log_however_often_it_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut serving = Serving::start(at, &["store"]);
    let sets: String = (0..300).map(|n| format!("set key{n:03} 0 0 100\r\n{n:0100}\r\n")).collect();
    assert!(serving.ask(&format!("{sets}quit\r\n")).ends_with("STORED\r\n"));
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), Some(0));
    situ(at, &["compact", "store"]).done();
    let files = fs::read_dir(at.join("store")).unwrap().map(|entry| entry.unwrap().path());
    let tables = files.filter(|path| path.extension().is_some_and(|kind| kind == "table"));
    let table = tables.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = fs::read(&table).unwrap();
    bytes[100] ^= 1;
    fs::write(&table, bytes).unwrap();

    let mut serving = Serving::start(at, &["--log-file", "situ.log", "store"]);
    let answers = serving.ask(&format!("{}get key299\r\nquit\r\n", "get key000\r\n".repeat(100)));
    assert_eq!(answers.matches("SERVER_ERROR ").count(), 100, "{answers}");
    assert!(answers.ends_with(&format!("VALUE key299 0 100\r\n{:0100}\r\nEND\r\n", 299)), "{answers}");
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), Some(0));
    let log = fs::read_to_string(at.join("situ.log")).unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("damage found: ")).collect();
    assert!(lines.len() == 1 && lines[0].contains(table.file_name().unwrap().to_str().unwrap()), "{log}");
    assert!(lines[0].contains("is damaged at byte") && lines[0].contains("situ repair"), "{log}");
}
