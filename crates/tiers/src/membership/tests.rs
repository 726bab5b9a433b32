use super::find::fast_disk;
use super::*;
use crate::members::{Fast, Home};
use crate::{TieredBuilder, TieredStore};
use situ_engine::{Options, StoreBuilder};
use situ_storage::DirectoryVolume;
use std::path::Path;
use std::sync::Arc;

fn opened(home: &Path) -> Arc<dyn Volume> {
    Arc::new(DirectoryVolume::open(home).unwrap())
}

/// A writer that opened a store by its directory had found the fast disk in DISKS. Then it waited for the lock until
/// another process had drained that disk. It took the disk for one that was to be added.
#[test]
fn a_disk_that_was_drained_meanwhile_is_not_taken_again() {
    let root = tempfile::tempdir().unwrap();
    let (home, fast) = (root.path().join("home"), root.path().join("fast"));
    StoreBuilder::new(Options::default()).fast_disk(&fast).open(&home).unwrap().close().unwrap();
    let env = Env::system();
    let found = given(&opened(&home), &home, None, &env, false, Access::Write).unwrap();
    assert!(found.fast.is_some(), "DISKS names it");
    let store = StoreBuilder::new(Options::default()).with_tiers().open(&home).unwrap();
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
    let found = given(&opened(&home), &home, None, &env, false, Access::Write).unwrap();
    assert!(join(&found, &env, Access::Write).unwrap().disks.is_some());
}

mod worlds;

/// The second disk is a guest: a store without one has no set, no placement, and nothing that counts what its disk
/// does.
#[test]
fn a_store_with_one_disk_has_no_set_of_disks_and_its_volume_is_the_disk_itself() {
    let root = tempfile::tempdir().unwrap();
    let store = StoreBuilder::new(Options::default()).with_tiers().open(root.path()).unwrap();
    store.put(b"key", b"value").unwrap();
    store.flush().unwrap();
    assert!(!store.volumes().are_several() && store.volumes().numbers() == [situ_engine::places::HOME]);
    assert!(store.placement().is_none());
    store.close().unwrap();
    // The same of what opening makes, down to the allocation.
    let capacity: Arc<dyn Volume> = Arc::new(DirectoryVolume::open(root.path()).unwrap());
    let joined = join(&Given::alone(Arc::clone(&capacity)), &Env::system(), Access::Write).unwrap();
    assert!(joined.disks.is_none() && joined.pending.is_none() && Arc::ptr_eq(&joined.volume, &capacity));
    assert!(!root.path().join("DISKS").exists(), "nothing notes disks either");
}
