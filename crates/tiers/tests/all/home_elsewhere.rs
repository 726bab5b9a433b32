//! A store whose home is a volume elsewhere, with a fast disk here.

use crate::common::fast;
use situ_engine::{Options, RepairOptions, Store};
use situ_storage::{DirectoryVolume, FileMeta, FileName, Lock, PageFile, Reader, Result, Space, Volume, Writer};
use situ_tiers::{TieredBuilder, files_of_home, repair_home, verify_home};
use std::path::Path;
use std::sync::Arc;

/// A directory that says to be on a node.
struct Elsewhere(DirectoryVolume);

impl Volume for Elsewhere {
    fn location(&self) -> String {
        "node://alpha:7070/shop".to_owned()
    }

    fn create(&self, name: FileName, bound: u64) -> Result<Box<dyn Writer>> {
        self.0.create(name, bound)
    }

    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        self.0.open(name)
    }

    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        self.0.create_pages(name, bytes)
    }

    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>> {
        self.0.open_pages(name)
    }

    fn replace(&self, name: FileName, contents: &[u8]) -> Result<()> {
        self.0.replace(name, contents)
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: FileName) -> Result<()> {
        self.0.remove(name)
    }

    fn sync_names(&self) -> Result<()> {
        self.0.sync_names()
    }

    fn list(&self) -> Result<Vec<FileMeta>> {
        self.0.list()
    }

    fn space(&self) -> Space {
        self.0.space()
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        self.0.lock()
    }
}

fn home(at: &Path) -> Arc<dyn Volume> {
    Arc::new(Elsewhere(DirectoryVolume::create(at).unwrap()))
}

fn open(at: &Path, fast: Option<&Path>) -> situ_engine::Result<Store> {
    let builder = fast::tiered(Options::default());
    let builder = match fast {
        Some(fast) => builder.fast_disk(fast),
        None => builder,
    };
    builder.open_home(&home(at))
}

fn logs(at: &Path) -> usize {
    let files = DirectoryVolume::open(at).unwrap().list().unwrap();
    files.iter().filter(|file| matches!(file.name, FileName::Log(_))).count()
}

#[test]
fn a_home_elsewhere_remembers_its_fast_disk_here_and_takes_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("home"), Some(&at("fast"))).unwrap();
    store.put("ada", "1815").unwrap();
    store.close().unwrap();
    assert_eq!((logs(&at("home")), logs(&at("fast"))), (0, 1), "the log lies on the fast disk");

    let store = open(&at("home"), None).unwrap();
    assert_eq!(store.get("ada").unwrap().unwrap(), "1815");
    store.close().unwrap();

    open(&at("other home"), Some(&at("other fast"))).unwrap().close().unwrap();
    let refused = open(&at("home"), Some(&at("other fast"))).unwrap_err().to_string();
    assert!(refused.contains("another store"), "{refused}");

    std::fs::rename(at("fast"), at("moved")).unwrap();
    let missing = open(&at("home"), None).unwrap_err().to_string();
    assert!(missing.contains("node://alpha:7070/shop needs its fast disk"), "{missing}");
    let store = open(&at("home"), Some(&at("moved"))).unwrap();
    assert_eq!(store.get("ada").unwrap().unwrap(), "1815");
    store.close().unwrap();

    let volume = home(&at("home"));
    assert!(verify_home(&volume, &mut |_| {}).unwrap().is_sound());
    assert!(files_of_home(&volume).unwrap().list().unwrap().iter().any(|file| matches!(file.name, FileName::Log(_))));
    let survey = repair_home(&volume, RepairOptions::default().dry_run(true)).unwrap();
    assert!(survey.was_sound, "{survey:?}");
}

#[test]
fn without_a_fast_disk_everything_lies_at_home() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("home");
    let store = open(&at, None).unwrap();
    store.put("ada", "1815").unwrap();
    store.close().unwrap();
    assert_eq!(logs(&at), 1);
    let reader = fast::tiered(Options::default()).read_only().open_home(&home(&at)).unwrap();
    assert_eq!(reader.get("ada").unwrap().unwrap(), "1815");
    drop(reader);
    situ_tiers::destroy_home(&home(&at)).unwrap();
    assert!(home(&at).list().unwrap().is_empty());
}
