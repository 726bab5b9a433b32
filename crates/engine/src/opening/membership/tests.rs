use super::find::fast_disk;
use super::*;
use crate::api::store::StoreBuilder;
use crate::{Options, Store};
use situ_disks::members::{Fast, Home};

/// A writer that opened a store by its directory had found the fast disk in DISKS. Then it waited for the lock until
/// another process had drained that disk. It took the disk for one that was to be added.
#[test]
fn a_disk_that_was_drained_meanwhile_is_not_taken_again() {
    let root = tempfile::tempdir().unwrap();
    let (home, fast) = (root.path().join("home"), root.path().join("fast"));
    StoreBuilder::new(Options::default()).fast_disk(&fast).open(&home).unwrap().close().unwrap();
    let env = Env::system();
    let found = given(DirectoryVolume::open(&home).unwrap(), None, &env, false, Access::Write).unwrap();
    assert!(found.fast.is_some(), "DISKS names it");
    let store = Store::open(&home).unwrap();
    store.drain_fast_disk().unwrap();
    store.close().unwrap();
    for access in [Access::Read, Access::Write] {
        let joined = join(&found, &env, access).unwrap();
        joined.settle().unwrap();
        assert!(joined.disks.is_none(), "{access:?}");
    }
    let says = || Home::read(&*found.capacity).unwrap().unwrap().fast;
    assert_eq!(says(), Fast::None);
    // Who asks for it has it.
    let asked = Given { fast: Some(fast_disk(&fast, &env, false, false).unwrap()), ..found.clone() };
    join(&asked, &env, Access::Write).unwrap().settle().unwrap();
    assert!(matches!(says(), Fast::Used(_)));
    // And what DISKS names as before is taken without being asked for.
    let found = given(DirectoryVolume::open(&home).unwrap(), None, &env, false, Access::Write).unwrap();
    assert!(join(&found, &env, Access::Write).unwrap().disks.is_some());
}

mod worlds;
