//! The worker's side: runs tasks on the store's directory, each on a thread, until its input ends.
//!
//! It opens and makes table files only, under numbers that the store has reserved for it. It ends with the store: when its input ends, or
//! when the thread dies that has started it, whichever it notices first. A worker on another machine needs more than that to be sure that it does not
//! write behind the back of the store's next owner: a lease with a fencing token.

use super::frames::{CANCEL, DONE, FAILED, Frame, PLACE, RESERVE, TASK, WRITTEN};
use situ_base::lock;
use situ_compaction::{CompactionFilter, InputTable, TablePlace, TaskHost, run};
use situ_offload::{Surroundings, decode_task, encode_output};
use situ_storage::{DirectoryVolume, Error, FileName, Result, Volume, Writer};
use situ_table::{BlockCache, Table};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

struct Worker {
    volume: DirectoryVolume,
    output: Mutex<Box<dyn Write + Send>>,
    attempts: Mutex<BTreeMap<u64, Attempt>>,
}

/// What the store's messages are for.
#[derive(Clone)]
struct Attempt {
    places: Sender<Vec<u8>>,
    is_cancelled: Arc<AtomicBool>,
}

/// Runs tasks until the input ends, and the process with it.
pub(crate) fn serve(directory: &Path, mut input: impl Read, output: impl Write + Send + 'static) -> ! {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let Ok(volume) = DirectoryVolume::open(directory) else { std::process::exit(1) };
    let (output, attempts) = (Mutex::new(Box::new(output) as Box<dyn Write + Send>), Mutex::default());
    let worker = Arc::new(Worker { volume, output, attempts });
    while let Ok(frame) = Frame::read(&mut input) {
        worker.take(frame);
    }
    std::process::exit(0)
}

impl Worker {
    fn take(self: &Arc<Self>, frame: Frame) {
        let attempt = lock(&self.attempts).get(&frame.attempt).cloned();
        match (frame.kind, attempt) {
            (TASK, None) => {
                let (places, reserved) = channel();
                let attempt = Attempt { places, is_cancelled: Arc::default() };
                let is_cancelled = Arc::clone(&attempt.is_cancelled);
                lock(&self.attempts).insert(frame.attempt, attempt);
                let host = Host {
                    worker: Arc::clone(self),
                    attempt: frame.attempt,
                    reserved: Mutex::new(reserved),
                    is_cancelled,
                };
                std::thread::spawn(move || host.work(&frame.bytes));
            }
            (PLACE, Some(attempt)) => drop(attempt.places.send(frame.bytes)),
            (CANCEL, Some(attempt)) => {
                attempt.is_cancelled.store(true, Ordering::Release);
                // A run that waits for a place gets none.
                let _ = attempt.places.send(Vec::new());
            }
            _ => {}
        }
    }

    /// A store that does not read any more has ended, and so does this process.
    fn send(&self, frame: &Frame) {
        let sent = frame.write(&mut *lock(&self.output));
        if sent.is_err() {
            std::process::exit(1);
        }
    }
}

/// What a run asks of its store, over the pipe.
struct Host {
    worker: Arc<Worker>,
    attempt: u64,
    reserved: Mutex<Receiver<Vec<u8>>>,
    is_cancelled: Arc<AtomicBool>,
}

impl Host {
    fn work(self, task: &[u8]) {
        let task = decode_task(task, &*self.worker).map_err(situ_compaction::TaskError::from);
        let frame = match task.and_then(|task| run(&task, &self)) {
            Ok(output) => Frame::new(DONE, self.attempt, encode_output(&output)),
            Err(error) => Frame::new(FAILED, self.attempt, error.to_string()),
        };
        lock(&self.worker.attempts).remove(&self.attempt);
        self.worker.send(&frame);
    }
}

impl TaskHost for Host {
    fn reserve(&self, level: u32) -> Result<TablePlace> {
        self.worker.send(&Frame::new(RESERVE, self.attempt, level.to_le_bytes()));
        let place = lock(&self.reserved).recv().unwrap_or_default();
        match place.split_first_chunk::<4>().map(|(volume, number)| (*volume, <[u8; 8]>::try_from(number))) {
            Some((volume, Ok(number))) => {
                Ok(TablePlace { volume: u32::from_le_bytes(volume), number: u64::from_le_bytes(number) })
            }
            _ => Err(Error::Invalid("the store has no place for a table any more".to_owned())),
        }
    }

    fn create(&self, _level: u32, place: TablePlace) -> Result<(TablePlace, Box<dyn Writer>)> {
        if place.volume != 0 {
            return Err(Error::Invalid(format!("volume {} cannot be reached from here", place.volume)));
        }
        Ok((place, self.worker.volume.create(FileName::Table(place.number), 0)?))
    }

    fn pace(&self, bytes: u64) {
        self.worker.send(&Frame::new(WRITTEN, self.attempt, bytes.to_le_bytes()));
    }

    fn cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }
}

/// A table of the store's directory, opened when a run gets there.
struct TableFile {
    directory: std::path::PathBuf,
    number: u64,
}

impl InputTable for TableFile {
    fn open(self: Arc<Self>) -> Result<Arc<Table>> {
        let reader = DirectoryVolume::open(&self.directory)?.open(FileName::Table(self.number))?;
        Table::open(reader, self.number, BlockCache::new(0))
    }
}

impl Surroundings for Worker {
    fn table(&self, place: TablePlace) -> Arc<dyn InputTable> {
        Arc::new(TableFile { directory: self.volume.location().into(), number: place.number })
    }

    fn filter(&self, _name: &str) -> Option<Arc<dyn CompactionFilter>> {
        None
    }
}
