//! A volume in memory for the tests of this crate, which keeps a trace of all that was done to it.
//!
//! Replaying a prefix of the trace gives a [`World`]: which bytes are durable, and which sectors may be in which of
//! several states. From that, any number of legal crash images can be drawn ([`World::crash`]), at every point of one
//! run, of runs with many threads too. Names are durable at once: losing names is tested with the simulator.

use situ_device::{Buffer, PAGE_BYTES, Space};
use situ_storage::{Error, FileMeta, FileName, Lock, PageFile, Reader, Result, Volume, Writer};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SECTOR_BYTES: usize = 512;

/// splitmix64: enough for tests.
#[derive(Clone)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// A page file that takes no time and keeps nothing.
pub(crate) struct Nowhere {
    pub(crate) pages: u64,
    pub(crate) writes_wait: bool,
}

impl PageFile for Nowhere {
    fn path(&self) -> &str {
        "nowhere"
    }

    fn pages(&self) -> u64 {
        self.pages
    }

    fn writes_wait(&self) -> bool {
        self.writes_wait
    }

    fn write(&self, _: u64, _: &Buffer, _: usize, _: bool) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Create {
        name: FileName,
        bytes: usize,
    },
    Rename {
        from: FileName,
        to: FileName,
    },
    Remove {
        name: FileName,
    },
    WriteBegins {
        id: u64,
        file: usize,
        offset: usize,
        bytes: Vec<u8>,
    },
    WriteEnds {
        id: u64,
        durable: bool,
    },
    SyncBegins {
        id: u64,
        file: usize,
    },
    SyncEnds {
        id: u64,
    },
    /// The test was told that its first so many records are written.
    Written(usize),
    /// The test was told that its first so many records are durable.
    Durable(usize),
}

#[derive(Default)]
struct Inside {
    names: BTreeMap<FileName, usize>,
    files: Vec<Vec<u8>>,
    trace: Vec<Step>,
    next_id: u64,
    writes: u64,
    syncs: u64,
    rng: Option<Rng>,
    faults: Faults,
}

/// What is to fail.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    pub(crate) write: Option<u64>,
    pub(crate) sync: Option<u64>,
    pub(crate) room_bytes: Option<u64>,
    pub(crate) rename: bool,
}

#[derive(Clone, Default)]
pub(crate) struct Shadow(Arc<Mutex<Inside>>);

impl Shadow {
    /// Writes and syncs take random time, up to 300 microseconds.
    pub(crate) fn slow(seed: u64) -> Shadow {
        let shadow = Shadow::default();
        shadow.0.lock().unwrap().rng = Some(Rng(seed));
        shadow
    }

    pub(crate) fn of(files: BTreeMap<FileName, Vec<u8>>) -> Shadow {
        let shadow = Shadow::default();
        let mut inside = shadow.0.lock().unwrap();
        for (name, bytes) in files {
            let file = inside.files.len();
            inside.files.push(bytes);
            inside.names.insert(name, file);
        }
        drop(inside);
        shadow
    }

    pub(crate) fn volume(&self) -> Arc<dyn Volume> {
        Arc::new(self.clone())
    }

    pub(crate) fn faults(&self, faults: Faults) {
        let mut inside = self.0.lock().unwrap();
        inside.writes = 0;
        inside.syncs = 0;
        inside.faults = faults;
    }

    pub(crate) fn note(&self, step: Step) {
        self.0.lock().unwrap().trace.push(step);
    }

    pub(crate) fn trace(&self) -> Vec<Step> {
        self.0.lock().unwrap().trace.clone()
    }

    pub(crate) fn contents(&self) -> BTreeMap<FileName, Vec<u8>> {
        let inside = self.0.lock().unwrap();
        inside.names.iter().map(|(name, file)| (*name, inside.files[*file].clone())).collect()
    }

    pub(crate) fn log_files(&self) -> Vec<u64> {
        log_files(&self.contents())
    }

    fn pause(&self) {
        let micros = self.0.lock().unwrap().rng.as_mut().map(|rng| rng.below(300));
        if let Some(micros) = micros {
            std::thread::sleep(Duration::from_micros(micros as u64));
        }
    }
}

pub(crate) fn log_files(contents: &BTreeMap<FileName, Vec<u8>>) -> Vec<u64> {
    let number = |name: &FileName| if let FileName::Log(n) = name { Some(*n) } else { None };
    contents.keys().filter_map(number).collect()
}

fn broken(op: &'static str) -> Error {
    Error::io(op, "shadow", io::Error::other("on purpose"))
}

struct ShadowFile {
    world: Shadow,
    file: usize,
    path: String,
    pages: u64,
}

impl PageFile for ShadowFile {
    fn path(&self) -> &str {
        &self.path
    }

    fn pages(&self) -> u64 {
        self.pages
    }

    fn writes_wait(&self) -> bool {
        false
    }

    fn write(&self, first: u64, buffer: &Buffer, count: usize, durable: bool) -> Result<()> {
        let offset = first as usize * PAGE_BYTES;
        let bytes = buffer[..count * PAGE_BYTES].to_vec();
        let id = {
            let mut inside = self.world.0.lock().unwrap();
            inside.writes += 1;
            if inside.faults.write.is_some_and(|nth| inside.writes >= nth) {
                return Err(broken("write"));
            }
            inside.next_id += 1;
            let id = inside.next_id;
            inside.files[self.file][offset..offset + bytes.len()].copy_from_slice(&bytes);
            inside.trace.push(Step::WriteBegins { id, file: self.file, offset, bytes });
            id
        };
        self.world.pause();
        self.world.note(Step::WriteEnds { id, durable });
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let id = {
            let mut inside = self.world.0.lock().unwrap();
            inside.syncs += 1;
            if inside.faults.sync.is_some_and(|nth| inside.syncs >= nth) {
                return Err(broken("sync"));
            }
            inside.next_id += 1;
            let id = inside.next_id;
            inside.trace.push(Step::SyncBegins { id, file: self.file });
            id
        };
        self.world.pause();
        self.world.note(Step::SyncEnds { id });
        Ok(())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let inside = self.world.0.lock().unwrap();
        into.copy_from_slice(&inside.files[self.file][offset as usize..][..into.len()]);
        Ok(())
    }
}

impl Volume for Shadow {
    fn location(&self) -> String {
        "shadow".to_owned()
    }

    fn create(&self, _: FileName, _: u64) -> Result<Box<dyn Writer>> {
        Err(broken("create"))
    }

    fn open(&self, _: FileName) -> Result<Arc<dyn Reader>> {
        Err(broken("open"))
    }

    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        let mut inside = self.0.lock().unwrap();
        if inside.faults.room_bytes.is_some_and(|room| bytes > room) {
            return Err(Error::NoSpace { op: "create", path: name.to_string() });
        }
        assert!(!inside.names.contains_key(&name), "{name} exists");
        let file = inside.files.len();
        inside.files.push(vec![0; bytes as usize]);
        inside.names.insert(name, file);
        inside.trace.push(Step::Create { name, bytes: bytes as usize });
        drop(inside);
        self.open_pages(name)
    }

    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>> {
        let inside = self.0.lock().unwrap();
        let Some(file) = inside.names.get(&name) else { return Err(Error::NotFound { path: name.to_string() }) };
        let pages = (inside.files[*file].len() / PAGE_BYTES) as u64;
        Ok(Arc::new(ShadowFile { world: self.clone(), file: *file, path: name.to_string(), pages }))
    }

    fn replace(&self, _: FileName, _: &[u8]) -> Result<()> {
        Err(broken("replace"))
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        let mut inside = self.0.lock().unwrap();
        if inside.faults.rename {
            return Err(broken("rename"));
        }
        let Some(file) = inside.names.remove(&from) else { return Err(Error::NotFound { path: from.to_string() }) };
        inside.names.insert(to, file);
        inside.trace.push(Step::Rename { from, to });
        Ok(())
    }

    fn remove(&self, name: FileName) -> Result<()> {
        let mut inside = self.0.lock().unwrap();
        inside.names.remove(&name);
        inside.trace.push(Step::Remove { name });
        Ok(())
    }

    fn sync_names(&self) -> Result<()> {
        Ok(())
    }

    fn list(&self) -> Result<Vec<FileMeta>> {
        let inside = self.0.lock().unwrap();
        let meta =
            |(name, file): (&FileName, &usize)| FileMeta { name: *name, bytes: inside.files[*file].len() as u64 };
        Ok(inside.names.iter().map(meta).collect())
    }

    fn space(&self) -> Space {
        Space::default()
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        Err(broken("lock"))
    }
}

/// The disk after a prefix of a trace.
#[derive(Default)]
pub(crate) struct World {
    names: BTreeMap<FileName, usize>,
    files: Vec<WorldFile>,
    writes: BTreeMap<u64, Write>,
    syncs: BTreeMap<u64, Vec<u64>>,
    /// What the test was told so far.
    pub(crate) written: usize,
    pub(crate) durable: usize,
}

#[derive(Default)]
struct WorldFile {
    durable: Vec<u8>,
    /// For each sector, what it may hold instead, oldest first, with the write it comes from.
    maybe: BTreeMap<usize, Vec<(u64, Vec<u8>)>>,
}

struct Write {
    file: usize,
    sectors: Range<usize>,
    ended: bool,
}

impl World {
    /// A disk on which everything in `files` is durable.
    pub(crate) fn of(files: &BTreeMap<FileName, Vec<u8>>) -> World {
        let mut world = World::default();
        for (name, bytes) in files {
            world.names.insert(*name, world.files.len());
            world.files.push(WorldFile { durable: bytes.clone(), ..WorldFile::default() });
        }
        world
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match step {
            Step::Create { name, bytes } => {
                self.names.insert(*name, self.files.len());
                self.files.push(WorldFile { durable: vec![0; *bytes], ..WorldFile::default() });
            }
            Step::Rename { from, to } => {
                let file = self.names.remove(from).unwrap();
                self.names.insert(*to, file);
            }
            Step::Remove { name } => drop(self.names.remove(name)),
            Step::WriteBegins { id, file, offset, bytes } => {
                let sectors = offset / SECTOR_BYTES..(offset + bytes.len()) / SECTOR_BYTES;
                let busy = self.writes.values().any(|write| {
                    !write.ended
                        && write.file == *file
                        && write.sectors.start < sectors.end
                        && sectors.start < write.sectors.end
                });
                assert!(!busy, "two writes to one page are in flight");
                for (sector, bytes) in sectors.clone().zip(bytes.chunks(SECTOR_BYTES)) {
                    self.files[*file].maybe.entry(sector).or_default().push((*id, bytes.to_vec()));
                }
                self.writes.insert(*id, Write { file: *file, sectors, ended: false });
            }
            Step::WriteEnds { id, durable } => {
                self.writes.get_mut(id).unwrap().ended = true;
                if *durable {
                    self.harden(*id);
                }
            }
            Step::SyncBegins { id, file } => {
                let ended = self.writes.iter().filter(|(_, write)| write.ended && write.file == *file);
                let ended = ended.map(|(id, _)| *id).collect();
                self.syncs.insert(*id, ended);
            }
            Step::SyncEnds { id } => {
                for write in self.syncs.remove(id).unwrap() {
                    self.harden(write);
                }
            }
            Step::Written(records) => self.written = self.written.max(*records),
            Step::Durable(records) => self.durable = self.durable.max(*records),
        }
    }

    fn harden(&mut self, id: u64) {
        let Some(write) = self.writes.remove(&id) else { return };
        let file = &mut self.files[write.file];
        for sector in write.sectors {
            let Some(maybe) = file.maybe.get_mut(&sector) else { continue };
            // What was written before to the same sector cannot come back.
            if let Some(index) = maybe.iter().position(|(from, _)| *from == id) {
                let bytes = maybe.drain(..=index).next_back().unwrap().1;
                file.durable[sector * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(&bytes);
            }
            if maybe.is_empty() {
                file.maybe.remove(&sector);
            }
        }
    }

    /// What the disk may hold after a power failure here.
    pub(crate) fn crash(&self, rng: &mut Rng) -> BTreeMap<FileName, Vec<u8>> {
        // Mostly lost, mostly kept, or anything.
        let kept = [3, 50, 90][rng.below(3)];
        // Whole pages lost or kept find holes; single sectors find torn pages.
        let by_page = rng.chance(50);
        self.image(|_, page, maybe| {
            let lost = if by_page { !Rng(page ^ rng.0).chance(kept) } else { !rng.chance(kept) };
            if lost { None } else { Some(rng.below(maybe.len())) }
        })
    }

    /// What the files hold after the process was killed here: ended writes are there; of the others every page is old
    /// or new, because the kernel copies pages whole.
    pub(crate) fn kill(&self, rng: &mut Rng) -> BTreeMap<FileName, Vec<u8>> {
        let flying: HashSet<u64> = self.writes.iter().filter(|(_, write)| !write.ended).map(|(id, _)| *id).collect();
        let salt = rng.next();
        self.image(|file, page, maybe| match maybe.last() {
            Some((id, _)) if flying.contains(id) && Rng(salt ^ page << 8 ^ file as u64).chance(50) => {
                maybe.len().checked_sub(2)
            }
            _ => Some(maybe.len() - 1),
        })
    }

    fn image(
        &self,
        mut choose: impl FnMut(usize, u64, &[(u64, Vec<u8>)]) -> Option<usize>,
    ) -> BTreeMap<FileName, Vec<u8>> {
        let mut image = BTreeMap::new();
        for (name, index) in &self.names {
            let file = &self.files[*index];
            let mut bytes = file.durable.clone();
            for (sector, maybe) in &file.maybe {
                let page = (sector * SECTOR_BYTES / PAGE_BYTES) as u64;
                if let Some(chosen) = choose(*index, page, maybe) {
                    bytes[sector * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(&maybe[chosen].1);
                }
            }
            image.insert(*name, bytes);
        }
        image
    }
}
