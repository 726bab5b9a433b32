use super::*;
use situ_base::Env;
use situ_device::Space;
use situ_storage::{FileMeta, Lock, PageFile, Writer};
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

fn kept(slots: &[Arc<TableSlot<u32>>]) -> Vec<usize> {
    (0..slots.len()).filter(|at| !slots[*at].is_empty()).collect()
}

#[test]
fn a_shelf_keeps_what_was_used_of_late() {
    let shelf = Shelf::new();
    let slots: Vec<Arc<TableSlot<u32>>> = (0..6).map(|_| Arc::default()).collect();
    for (value, slot) in (0..).zip(&slots[..3]) {
        assert_eq!(*shelf.keep(slot, Arc::new(value), 3), value);
    }
    // 0 and 2 are used, so 1 goes for 3. Then 0 has had its second chance, and 2 has not.
    assert_eq!(slots[0].get().as_deref(), Some(&0));
    assert_eq!(slots[2].get().as_deref(), Some(&2));
    shelf.keep(&slots[3], Arc::new(3), 3);
    assert_eq!(kept(&slots), [0, 2, 3]);
    assert_eq!(slots[3].get().as_deref(), Some(&3));
    shelf.keep(&slots[4], Arc::new(4), 3);
    assert_eq!(kept(&slots), [2, 3, 4]);
    // Whoever is second finds the first one's.
    assert_eq!(*shelf.keep(&slots[4], Arc::new(40), 3), 4);
    assert_eq!(shelf.remove(&slots[4]).as_deref(), Some(&4));
    assert!(shelf.remove(&slots[4]).is_none());
    assert_eq!(shelf.len(), kept(&slots).len());
    // What all use has to go all the same.
    for at in [5, 1, 2] {
        slots.iter().for_each(|slot| drop(slot.get()));
        shelf.keep(&slots[at], Arc::new(9), 1);
        assert_eq!(kept(&slots), [at]);
    }
}

#[test]
fn a_shelf_forgets_slots_of_owners_that_are_gone() {
    let shelf = Shelf::new();
    for n in 0..10_000 {
        let slot = Arc::default();
        shelf.keep(&slot, Arc::new(n), 1_000_000);
        shelf.remove(&slot);
    }
    assert_eq!(shelf.len(), 0);
    assert!(lock(&shelf.ring).slots.len() <= EMPTY_SLOTS_MIN);
}

/// Files whose reads take a while; it counts those that are open.
#[derive(Default)]
struct Slow {
    open: AtomicUsize,
    most: AtomicUsize,
}

struct SlowVolume(Arc<Slow>);

struct SlowFile {
    counts: Arc<Slow>,
    name: String,
}

impl Drop for SlowFile {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Reader for SlowFile {
    fn path(&self) -> &str {
        &self.name
    }

    fn bytes(&self) -> u64 {
        100
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        std::thread::sleep(Duration::from_micros(offset));
        into.copy_from_slice(&self.name.as_bytes()[..into.len()]);
        Ok(())
    }
}

fn refused<T>() -> Result<T> {
    Err(Error::Invalid("not in this test".to_owned()))
}

impl Volume for SlowVolume {
    fn location(&self) -> String {
        "slow".to_owned()
    }
    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        if name == FileName::Table(666) {
            return Err(Error::NotFound { path: name.to_string() });
        }
        let open = self.0.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most.fetch_max(open, Ordering::SeqCst);
        std::thread::sleep(Duration::from_micros(20));
        Ok(Arc::new(SlowFile { counts: Arc::clone(&self.0), name: name.to_string() }))
    }
    fn create(&self, _: FileName, _: u64) -> Result<Box<dyn Writer>> {
        refused()
    }
    fn create_pages(&self, _: FileName, _: u64) -> Result<Arc<dyn PageFile>> {
        refused()
    }
    fn open_pages(&self, _: FileName) -> Result<Arc<dyn PageFile>> {
        refused()
    }
    fn replace(&self, _: FileName, _: &[u8]) -> Result<()> {
        refused()
    }
    fn rename(&self, _: FileName, _: FileName) -> Result<()> {
        refused()
    }
    fn remove(&self, _: FileName) -> Result<()> {
        refused()
    }
    fn sync_names(&self) -> Result<()> {
        refused()
    }
    fn list(&self) -> Result<Vec<FileMeta>> {
        refused()
    }
    fn space(&self) -> Space {
        Space::default()
    }
    fn lock(&self) -> Result<Box<dyn Lock>> {
        refused()
    }
}

/// More threads read than there may be descriptors, so that each of them waits for others now and then.
#[test]
fn promise_8_there_are_never_more_descriptors_than_may_be() {
    for max in [1, 3, 8] {
        let counts = Arc::new(Slow::default());
        let volume: Arc<dyn Volume> = Arc::new(SlowVolume(Arc::clone(&counts)));
        let descriptors = Descriptors::new(max, Env::system().executor.event());
        let open = |number| TableReader::open(&volume, FileName::Table(number), &descriptors);
        let readers: Vec<_> = (0..20).map(|number| open(number).unwrap()).collect();
        std::thread::scope(|scope| {
            for thread in 0..6u64 {
                let (readers, open) = (&readers, &open);
                scope.spawn(move || {
                    for n in 0..200u64 {
                        let number = (n * 7 + thread * 11) % 20;
                        let mut name = [0; 6];
                        readers[number as usize].read_at((n + thread) % 3 * 50, &mut name).unwrap();
                        assert_eq!(std::str::from_utf8(&name).unwrap(), format!("{number:06}"));
                        // Those that fail to open, and those that are closed, give theirs back.
                        if n % 10 == 0 {
                            assert!(open(666).is_err());
                            drop(open(1000 + thread).unwrap());
                        }
                    }
                });
            }
        });
        assert_eq!(counts.most.load(Ordering::SeqCst), max, "all are used, and no more");
        assert_eq!(descriptors.open(), counts.open.load(Ordering::SeqCst));
        drop(readers);
        assert_eq!((descriptors.open(), counts.open.load(Ordering::SeqCst)), (0, 0));
    }
}
