//! Reading beside the process that writes.

use super::*;
use situ_device::{Completion, Device, DeviceLock, Op, Queue, Space, Ticket};
use std::sync::Mutex;
use std::time::Duration;

/// `situ disk show` and `check` read beside a store that writes: no page of theirs need be of the same moment.
#[test]
fn a_reader_beside_the_writer_sees_no_damage() {
    for_each_seed(19, 10, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let geometry = SimDevice::new(&env, 0, FaultPlan::none(), 0).geometry();
        let geometry = situ_device::Geometry { max_transfer_bytes: PAGE as u32, ..geometry };
        let device = SimDevice::with_geometry(&env, 600 * PAGE, geometry, FaultPlan::none(), seed);
        sim.run(|| {
            format(&env, &device, &FormatOptions { journal_half_bytes: Some(32 * PAGE), ..small() });
            let volume = open(&env, &device).unwrap();
            // The writer is the faster one: it passes the reader in the middle of a half.
            let slow = Rule::new(Fault::Delay(Duration::from_micros(20))).on(&[Operation::Read]);
            device.set_faults(FaultPlan::none().with(slow));
            let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let end = Arc::clone(&ended);
            let work = move || {
                for number in 0.. {
                    volume.replace(FileName::Temporary(number % 7), &pattern(number, 300)).unwrap();
                    if end.load(std::sync::atomic::Ordering::Acquire) {
                        break;
                    }
                }
            };
            let job = env.executor.spawn("writer", Box::new(work)).unwrap();
            for _ in 0..10 {
                let found = RawVolume::check(device.reached(), env.clone()).unwrap();
                assert_eq!(found.problems, [""; 0]);
            }
            ended.store(true, std::sync::atomic::Ordering::Release);
            job.join().unwrap();
        });
    });
}

/// `situ inspect` and other readers beside a server. What they have open may go at any time, and its pages be
/// another's.
#[test]
fn a_guest_never_takes_another_file_s_bytes_for_those_of_one_that_has_gone() {
    on_a_disk(300, 20, |env, device| {
        let writer = open(env, device).unwrap();
        let _lock = writer.lock().unwrap();
        write(&writer, FileName::Table(1), &pattern(1, 90_000)).unwrap();
        write(&writer, FileName::Table(2), &pattern(2, 90_000)).unwrap();
        let guest = RawVolume::open(device.reached(), env.clone(), RawOptions { cache_bytes: 0 }).unwrap();
        let (gone, stays) = (guest.open(FileName::Table(1)).unwrap(), guest.open(FileName::Table(2)).unwrap());
        let whole = |reader: &dyn Reader| {
            let mut bytes = vec![0; 90_000];
            reader.read_at(0, &mut bytes).map(|()| bytes)
        };
        assert!(whole(&*gone).unwrap() == pattern(1, 90_000));
        writer.remove(FileName::Table(1)).unwrap();
        writer.sync_names().unwrap();
        for number in 3..12 {
            write(&writer, FileName::Table(number), &pattern(number, 90_000)).unwrap();
        }
        let error = whole(&*gone).map(drop).unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
        let says_what_to_do = |error: &Error| error.to_string().contains("open the store again");
        assert!(says_what_to_do(&error), "{error}");
        let error = guest.open(FileName::Table(1)).map(drop).unwrap_err();
        assert!(says_what_to_do(&error), "{error}");
        assert!(whole(&*stays).unwrap() == pattern(2, 90_000));
        // What came since is found, and listed.
        assert!(read(&guest, FileName::Table(5)).unwrap() == pattern(5, 90_000));
        assert_eq!(guest.list().unwrap(), writer.list().unwrap());
        // A log that was recycled is another file.
        writer.create_pages(FileName::Log(20), 2 * PAGE).unwrap();
        let log = guest.open_pages(FileName::Log(20)).unwrap();
        writer.rename(FileName::Log(20), FileName::Log(21)).unwrap();
        writer.sync_names().unwrap();
        let error = log.read_at(0, &mut [0; 10]).unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
        assert_eq!(guest.open_pages(FileName::Log(21)).unwrap().pages(), 2);
        // Who becomes the writer must not give away pages of what it opened before.
        drop(_lock);
        drop(writer);
        assert!(guest.lock().map(drop).unwrap_err().to_string().contains("open it again"));
        drop((gone, log));
        assert!(guest.lock().map(drop).unwrap_err().to_string().contains("open it again"));
        drop(stays);
        let lock = guest.lock().unwrap();
        guest.remove(FileName::Table(3)).unwrap();
        guest.sync_names().unwrap();
        check_room(&guest);
        drop((lock, guest));
        // A disk that is formatted anew has none of these files.
        let guest = open(env, device).unwrap();
        let stays = guest.open(FileName::Table(2)).unwrap();
        let other = FormatOptions { id: Some([3; 16]), force: true, ..small() };
        RawVolume::format(device.reached(), env.clone(), &other).unwrap();
        assert!(matches!(whole(&*stays), Err(Error::NotFound { .. })));
        assert!(guest.list().unwrap().is_empty());
    });
}

/// A removal that one file's reader, or an opening, had brought to the guest's knowledge was no change for the next
/// reader any more: what it read in the pages of the file that had gone was taken for the file's.
#[test]
fn a_guest_that_knows_of_a_removal_already_does_not_read_the_file() {
    on_a_disk(300, 21, |env, device| {
        let writer = open(env, device).unwrap();
        let _lock = writer.lock().unwrap();
        (1..=3).for_each(|number| write(&writer, FileName::Table(number), &pattern(number, 90_000)).unwrap());
        let guest = RawVolume::open(device.reached(), env.clone(), RawOptions { cache_bytes: 0 }).unwrap();
        let [one, two, three] = [1, 2, 3].map(|number| guest.open(FileName::Table(number)).unwrap());
        let pages = guest.open_pages(FileName::Table(2)).unwrap();
        (1..=2).for_each(|number| writer.remove(FileName::Table(number)).unwrap());
        writer.sync_names().unwrap();
        (4..12).for_each(|number| write(&writer, FileName::Table(number), &pattern(number, 90_000)).unwrap());
        assert!(matches!(one.read_at(0, &mut [0; 100]), Err(Error::NotFound { .. })));
        let mut bytes = [0; 100];
        assert!(matches!(two.read_at(0, &mut bytes), Err(Error::NotFound { .. })));
        assert!(matches!(two.read_at(0, &mut vec![0; 80_000]), Err(Error::NotFound { .. })));
        assert!(matches!(pages.read_at(0, &mut bytes), Err(Error::NotFound { .. })));
        three.read_at(0, &mut bytes).unwrap();
        assert!(bytes[..] == pattern(3, 90_000)[..100]);
        // By an opening, too.
        writer.remove(FileName::Table(3)).unwrap();
        writer.sync_names().unwrap();
        (12..14).for_each(|number| write(&writer, FileName::Table(number), &pattern(number, 90_000)).unwrap());
        assert!(read(&guest, FileName::Table(13)).unwrap() == pattern(13, 90_000));
        assert!(matches!(three.read_at(0, &mut bytes), Err(Error::NotFound { .. })));
    });
}

/// A guest looked for a later frame behind its own, and at the front of the other half. Two checkpoints later, behind
/// its own may be the middle of a frame, and the front of the other half may be just being written.
#[test]
fn a_guest_that_is_several_checkpoints_behind_knows_it() {
    on_a_disk(300, 22, |env, device| {
        let writer = open(env, device).unwrap();
        let _lock = writer.lock().unwrap();
        write(&writer, FileName::Table(1), &pattern(1, 90_000)).unwrap();
        let replace = |number: u64, bytes: usize| {
            writer.replace(FileName::Temporary(number), &pattern(number, bytes)).unwrap();
        };
        // A checkpoint of one page, and nothing behind it.
        while writer.report().journal_used_bytes != PAGE || writer.report().journal_epoch == 1 {
            replace(0, 900);
        }
        let guest = RawVolume::open(device.reached(), env.clone(), RawOptions { cache_bytes: 0 }).unwrap();
        let gone = guest.open(FileName::Table(1)).unwrap();
        let epoch = writer.report().journal_epoch;
        assert_eq!(guest.report().journal_epoch, epoch);
        writer.remove(FileName::Table(1)).unwrap();
        writer.sync_names().unwrap();
        (2..5).for_each(|number| write(&writer, FileName::Table(number), &pattern(number, 90_000)).unwrap());
        // Checkpoints of two pages.
        (1..6).for_each(|number| replace(number, 900));
        while writer.report().journal_epoch != epoch + 2 {
            replace(6, 100);
        }
        let other_half = {
            let state = guest.shared.lock();
            state.layout.half_first(1 - state.journal.half)
        };
        device.rot(other_half * PAGE + 30, 1);
        let found = gone.read_at(0, &mut [0; 100]);
        assert!(matches!(found, Err(Error::NotFound { .. })), "{found:?}");
    });
}

/// Holds up the first read at an offset until it is let go.
struct Held {
    offset: u64,
    came: Mutex<bool>,
    goes: Mutex<bool>,
    bell: Arc<dyn situ_base::Event>,
}

impl Held {
    fn pass(&self) {
        *self.came.lock().unwrap() = true;
        self.bell.notify();
        self.until(|held| *held.goes.lock().unwrap());
    }

    fn until(&self, is_so: impl Fn(&Held) -> bool) {
        loop {
            let seen = self.bell.generation();
            if is_so(self) {
                return;
            }
            self.bell.wait(seen, None);
        }
    }

    fn let_go(&self) {
        *self.goes.lock().unwrap() = true;
        self.bell.notify();
    }
}

type Holds = Arc<Mutex<Vec<Arc<Held>>>>;

struct Gated(SimDevice, Holds);

impl Device for Gated {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn lock(&self) -> io::Result<Box<dyn DeviceLock>> {
        self.0.lock()
    }

    fn geometry(&self) -> situ_device::Geometry {
        self.0.geometry()
    }

    fn space(&self) -> Space {
        self.0.space()
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(GatedQueue(self.0.queue(depth)?, Arc::clone(&self.1))))
    }
}

struct GatedQueue(Box<dyn Queue>, Holds);

impl Queue for GatedQueue {
    fn submit(&mut self, op: Op, buffer: Buffer) -> std::result::Result<Ticket, (Buffer, io::Error)> {
        self.0.submit(op, buffer)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        self.0.poll(done)
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Duration) -> usize {
        let before = done.len();
        let found = self.0.wait(done, timeout);
        // Read already: the bytes are those of before the wait.
        for completion in &done[before..] {
            if let Op::Read { offset } = completion.op {
                let held = {
                    let mut holds = self.1.lock().unwrap();
                    holds.iter().position(|held| held.offset == offset).map(|at| holds.remove(at))
                };
                if let Some(held) = held {
                    held.pass();
                }
            }
        }
        found
    }
}

/// Three threads of one guest: the reading of the catalogue that began first ends last, and puts the older state in
/// place.
#[test]
fn a_guest_does_not_go_back_to_an_older_catalogue() {
    let sim = SimExecutor::new(23);
    let env = sim.env();
    let device = SimDevice::new(&env, 300 * PAGE, FaultPlan::none(), 23);
    sim.run(|| {
        format(&env, &device, &FormatOptions { journal_half_bytes: Some(16 * PAGE), ..small() });
        let writer = open(&env, &device).unwrap();
        let _lock = writer.lock().unwrap();
        write(&writer, FileName::Table(1), &pattern(1, 90_000)).unwrap();
        let holds = Holds::default();
        let gated = Arc::new(Gated(device.clone(), Arc::clone(&holds)));
        let guest = Arc::new(RawVolume::open(gated, env.clone(), RawOptions { cache_bytes: 0 }).unwrap());
        let hold = |offset| {
            let bell = env.executor.event();
            let held = Arc::new(Held { offset, came: Mutex::new(false), goes: Mutex::new(false), bell });
            holds.lock().unwrap().push(Arc::clone(&held));
            held
        };
        let one = guest.open(FileName::Table(1)).unwrap();
        write(&writer, FileName::Table(2), &pattern(2, 90_000)).unwrap();
        // Thread A reads the catalogue again, and is slow.
        let slow = hold(guest.shared.lock().layout.half_first(0) * PAGE);
        let there = Arc::clone(&guest);
        let a = env.executor.spawn("a", Box::new(move || drop(there.open(FileName::Table(99))))).unwrap();
        slow.until(|held| *held.came.lock().unwrap());
        // The writer removes the file, durably, and uses its pages again.
        writer.remove(FileName::Table(1)).unwrap();
        writer.sync_names().unwrap();
        for number in 3..11 {
            write(&writer, FileName::Table(number), &pattern(number, 90_000)).unwrap();
        }
        // Thread C reads the newest catalogue.
        assert!(guest.list().unwrap().iter().all(|file| file.name != FileName::Table(1)));
        // Thread B reads from the file that has gone, and looks whether anything has changed since.
        let looks = hold(0);
        let found = Arc::new(Mutex::new(None));
        let (there, reader) = (Arc::clone(&found), Arc::clone(&one));
        let b = env
            .executor
            .spawn(
                "b",
                Box::new(move || {
                    let mut bytes = vec![0; 100];
                    let result = reader.read_at(0, &mut bytes);
                    *there.lock().unwrap() = Some(result.map(|()| bytes));
                }),
            )
            .unwrap();
        looks.until(|held| *held.came.lock().unwrap());
        slow.let_go();
        a.join().unwrap();
        looks.let_go();
        b.join().unwrap();
        match found.lock().unwrap().take().unwrap() {
            Ok(bytes) => {
                assert!(
                    bytes[..] == pattern(1, 90_000)[..100],
                    "bytes of another file were taken for those of table 1"
                );
            }
            Err(error) => assert!(matches!(error, Error::NotFound { .. }), "{error}"),
        };
    });
}
