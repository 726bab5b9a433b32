//! Random operations, and what of them must be there after a crash.
//!
//! Each thread has names of its own and notes the states that its names go through. Edits are durable in the order in
//! which they were made; so after a crash a thread's names are in one of its states, none older than the last that it
//! was told is durable. Pages of page files have states of their own.

use super::*;
use situ_sim::Rng;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// A page: what is durable, and what was written since.
#[derive(Clone, Default)]
struct PageStates {
    durable: u8,
    maybe: Vec<u8>,
}

#[derive(Clone)]
enum Content {
    /// All bytes, and how many of them are sure to be there.
    Bytes(Arc<Vec<u8>>, usize),
    Pages(Arc<Mutex<Vec<PageStates>>>),
}

type Names = BTreeMap<FileName, Content>;

pub(super) struct Told {
    thread: u64,
    states: Vec<Names>,
    durable: usize,
    next: u64,
}

const THREADS_MAX: u64 = 8;

impl Told {
    pub(super) fn new(thread: u64) -> Told {
        Told { thread, states: vec![Names::new()], durable: 0, next: 0 }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next * THREADS_MAX + self.thread
    }

    fn now(&self) -> &Names {
        self.states.last().unwrap()
    }

    fn change(&mut self, edit: impl FnOnce(&mut Names)) {
        let mut next = self.now().clone();
        edit(&mut next);
        self.states.push(next);
    }

    fn all_durable(&mut self) {
        self.durable = self.states.len() - 1;
    }

    fn some(&self, rng: &mut Rng, wanted: impl Fn(&FileName) -> bool) -> Option<FileName> {
        let names: Vec<FileName> = self.now().keys().copied().filter(wanted).collect();
        (!names.is_empty()).then(|| names[rng.index(names.len())])
    }
}

fn is_pages(name: &FileName) -> bool {
    matches!(name, FileName::Log(_) | FileName::Spare(_))
}

/// Open files whose names may have gone.
pub(super) type Held = Vec<(Arc<dyn Reader>, Arc<Vec<u8>>)>;

/// One operation. `Ok` if it was done, or refused for want of space.
pub(super) fn step(volume: &RawVolume, rng: &mut Rng, told: &mut Told, held: &mut Held) -> Result<()> {
    match rng.below(16) {
        0..=3 => write_file(volume, rng, told),
        4 => {
            let (name, pages) = (FileName::Log(told.number()), 1 + rng.below(8));
            let content = Content::Pages(Arc::new(Mutex::new(vec![PageStates::default(); pages as usize])));
            told.change(|names| drop(names.insert(name, content)));
            done(volume.create_pages(name, pages * PAGE).map(drop), told)
        }
        5..=7 => write_page(volume, rng, told),
        8 => {
            let Some(name) = told.some(rng, is_pages) else { return Ok(()) };
            volume.open_pages(name)?.sync()?;
            let Some(Content::Pages(pages)) = told.now().get(&name) else { unreachable!() };
            for page in pages.lock().unwrap().iter_mut() {
                if let Some(last) = page.maybe.drain(..).next_back() {
                    page.durable = last;
                }
            }
            Ok(())
        }
        9 => {
            let known = told.some(rng, |name| matches!(name, FileName::Temporary(_)));
            let name = known.filter(|_| rng.chance(0.5)).unwrap_or_else(|| FileName::Temporary(told.number()));
            let length = rng.below(1500) as usize;
            replace(volume, rng, told, name, length)
        }
        10 | 11 => rename(volume, rng, told),
        12 => {
            let Some(name) = told.some(rng, |_| true) else { return Ok(()) };
            if rng.chance(0.3)
                && let Content::Bytes(bytes, _) = &told.now()[&name]
            {
                held.push((volume.open(name)?, Arc::clone(bytes)));
            }
            volume.remove(name)?;
            told.change(|names| drop(names.remove(&name)));
            Ok(())
        }
        13 => {
            volume.sync_names()?;
            told.all_durable();
            Ok(())
        }
        14 => {
            let Some(name) = told.some(rng, |_| true) else { return Ok(()) };
            if let Content::Bytes(bytes, _) = &told.now()[&name] {
                let (from, to) = (rng.index(bytes.len() + 1), rng.index(bytes.len() + 1));
                let (from, to) = (from.min(to), from.max(to));
                let mut found = vec![0; to - from];
                volume.open(name)?.read_at(from as u64, &mut found)?;
                assert!(found == bytes[from..to], "{name}: bytes {from}..{to}");
            }
            Ok(())
        }
        _ => {
            for (reader, bytes) in held.iter() {
                let mut found = vec![0; bytes.len()];
                reader.read_at(0, &mut found)?;
                assert!(found == bytes[..], "{} changed after its name had gone", reader.path());
            }
            if rng.chance(0.5) {
                held.clear();
            }
            Ok(())
        }
    }
}

/// Small files, so many that a checkpoint is longer than half a half of the journal.
pub(super) fn lengthen(volume: &RawVolume, rng: &mut Rng, told: &mut Told) -> Result<()> {
    for _ in 0..10 {
        let name = FileName::Damaged(told.number());
        replace(volume, rng, told, name, 900)?;
    }
    Ok(())
}

fn replace(volume: &RawVolume, rng: &mut Rng, told: &mut Told, name: FileName, length: usize) -> Result<()> {
    let bytes = Arc::new(pattern(rng.next_u64(), length));
    let content = Content::Bytes(Arc::clone(&bytes), length);
    told.change(|names| drop(names.insert(name, content)));
    done(volume.replace(name, &bytes), told)
}

/// The end of an operation that makes everything durable, whose state was noted before it.
fn done(result: Result<()>, told: &mut Told) -> Result<()> {
    match result {
        Ok(()) => told.all_durable(),
        // Refused: nothing has changed.
        Err(Error::NoSpace { .. }) => drop(told.states.pop()),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn write_file(volume: &RawVolume, rng: &mut Rng, told: &mut Told) -> Result<()> {
    let name = FileName::Table(told.number());
    let mut writer = match volume.create(name, rng.below(20) * 4000) {
        Err(Error::NoSpace { .. }) => return Ok(()),
        other => other?,
    };
    let mut all = Vec::new();
    let mut sure = 0;
    for _ in 0..rng.below(5) {
        let length = rng.index(30_000);
        all.extend(pattern(rng.next_u64(), length));
        let result = writer.append(&all[all.len() - length..]).and_then(|()| match rng.below(10) {
            0 | 1 => {
                let content = Content::Bytes(Arc::new(all.clone()), all.len());
                told.change(|names| drop(names.insert(name, content)));
                writer.sync()?;
                sure = all.len();
                Ok(true)
            }
            2 => {
                let content = Content::Bytes(Arc::new(all.clone()), sure);
                told.change(|names| drop(names.insert(name, content)));
                writer.flush()?;
                Ok(true)
            }
            _ => Ok(false),
        });
        match result {
            Ok(true) => told.all_durable(),
            Ok(false) => {}
            // What was synced stays; a sync that was refused changed nothing.
            Err(Error::NoSpace { .. }) => {
                told.states.truncate(told.durable.max(told.states.len().saturating_sub(1)) + 1);
                let noted = matches!(told.now().get(&name), Some(Content::Bytes(bytes, _)) if bytes.len() > sure);
                if noted && told.states.len() - 1 > told.durable {
                    told.states.pop();
                }
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    if rng.chance(0.15) {
        return Ok(());
    }
    let content = Content::Bytes(Arc::new(all.clone()), all.len());
    told.change(|names| drop(names.insert(name, content)));
    done(writer.finish(), told)
}

fn write_page(volume: &RawVolume, rng: &mut Rng, told: &mut Told) -> Result<()> {
    let Some(name) = told.some(rng, is_pages) else { return Ok(()) };
    let file = volume.open_pages(name)?;
    let Some(Content::Pages(pages)) = told.now().get(&name) else { unreachable!() };
    let first = rng.index(pages.lock().unwrap().len());
    let count = 1 + rng.index((file.pages() as usize - first).min(3));
    let value = 1 + rng.below(255) as u8;
    let durable = rng.chance(0.5);
    let mut buffer = Buffer::new(4 * PAGE_BYTES);
    buffer.fill(value);
    let each =
        |change: &dyn Fn(&mut PageStates)| pages.lock().unwrap()[first..first + count].iter_mut().for_each(change);
    each(&|page| page.maybe.push(value));
    file.write(first as u64, &buffer, count, durable)?;
    let mut back = vec![0; count * PAGE_BYTES];
    file.read_at(first as u64 * PAGE, &mut back)?;
    assert!(back.iter().all(|byte| *byte == value), "{name}: a page reads back otherwise than it was written");
    if durable {
        each(&|page| *page = PageStates { durable: value, maybe: Vec::new() });
    }
    Ok(())
}

fn rename(volume: &RawVolume, rng: &mut Rng, told: &mut Told) -> Result<()> {
    let Some(from) = told.some(rng, |_| true) else { return Ok(()) };
    let same_kind = |name: &FileName| is_pages(name) == is_pages(&from);
    let known = told.some(rng, same_kind).filter(|_| rng.chance(0.3));
    let to = known.unwrap_or_else(|| match from {
        FileName::Log(_) => FileName::Spare(told.number()),
        FileName::Spare(_) => FileName::Log(told.number()),
        _ => FileName::Table(told.number()),
    });
    volume.rename(from, to)?;
    told.change(|names| {
        let content = names.remove(&from).unwrap();
        names.insert(to, content);
    });
    Ok(())
}

/// Holds what a crash left against what a thread was told.
pub(super) fn check(volume: &RawVolume, told: &Told) {
    let is_mine = |name: &FileName| name.number().is_some_and(|number| number % THREADS_MAX == told.thread);
    let found: Vec<(FileName, u64)> = volume
        .list()
        .unwrap()
        .into_iter()
        .map(|meta| (meta.name, meta.bytes))
        .filter(|(name, _)| is_mine(name))
        .collect();
    let mut reasons = Vec::new();
    for (number, state) in told.states.iter().enumerate().skip(told.durable).rev() {
        match compare(volume, &found, state) {
            Ok(()) => return,
            Err(why) => reasons.push(format!("state {number}: {why}")),
        }
    }
    panic!("thread {}: none of its states since {} is there: {reasons:#?}", told.thread, told.durable);
}

fn compare(volume: &RawVolume, found: &[(FileName, u64)], state: &Names) -> Result<(), String> {
    let length = |content: &Content| match content {
        Content::Bytes(bytes, _) => bytes.len() as u64,
        Content::Pages(pages) => pages.lock().unwrap().len() as u64 * PAGE,
    };
    let expected: Vec<(FileName, u64)> = state.iter().map(|(name, content)| (*name, length(content))).collect();
    if found != expected {
        return Err(format!("{found:?} where {expected:?} was expected"));
    }
    for (name, content) in state {
        let there = read(volume, *name).map_err(|error| error.to_string())?;
        match content {
            Content::Bytes(bytes, sure) if there[..*sure] != bytes[..*sure] => {
                return Err(format!("{name} has other bytes"));
            }
            Content::Bytes(..) => {}
            Content::Pages(pages) => {
                for (number, (page, bytes)) in pages.lock().unwrap().iter().zip(there.chunks(PAGE_BYTES)).enumerate() {
                    for sector in bytes.chunks(512) {
                        let is_one = sector.iter().all(|byte| *byte == sector[0]);
                        if !is_one || (sector[0] != page.durable && !page.maybe.contains(&sector[0])) {
                            return Err(format!("page {number} of {name} holds {}", sector[0]));
                        }
                    }
                }
            }
        }
    }
    Ok(())
}
