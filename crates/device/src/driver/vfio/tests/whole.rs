//! The whole driver on drives of an emulator: all operations, many in flight, with resets from outside.

use super::*;
use crate::{Completion, Geometry, Queue};
use std::sync::atomic::AtomicU64;

/// Operations of one region do not overtake each other, because there is one at a time.
const REGION: usize = 256 << 10;

/// A sequence of numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }
}

/// The expected contents of some regions, and the queue that works on them.
struct Worker {
    queue: Box<dyn Queue>,
    geometry: Geometry,
    first: u64,
    contents: Vec<Vec<u8>>,
    /// The region of each operation in flight.
    busy: Vec<(crate::Ticket, usize)>,
    numbers: Numbers,
    done: Vec<Completion>,
}

impl Worker {
    /// Begins with regions of zeros.
    fn new(device: &NvmeDrive, first: u64, regions: usize, seed: u64) -> Worker {
        let mut worker = Worker {
            queue: device.queue(24).unwrap(),
            geometry: device.geometry(),
            first,
            contents: vec![vec![0; REGION]; regions],
            busy: Vec::new(),
            numbers: Numbers(seed),
            done: Vec::new(),
        };
        for region in 0..regions {
            worker.submit(region, Op::Zero { offset: worker.offset(region), bytes: REGION as u64 }, Buffer::new(1));
        }
        worker.finish();
        worker
    }

    fn offset(&self, region: usize) -> u64 {
        self.first + (region * REGION) as u64
    }

    fn submit(&mut self, region: usize, op: Op, mut buffer: Buffer) {
        loop {
            match self.queue.submit(op, buffer) {
                Ok(ticket) => return self.busy.push((ticket, region)),
                Err((back, error)) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{op:?}: {error}");
                    buffer = back;
                    self.collect();
                }
            }
        }
    }

    /// Waits for operations, and compares what they read.
    fn collect(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        assert!(self.queue.wait(&mut done, 5 * LONG) > 0, "{} operations have no answer", self.busy.len());
        for Completion { ticket, op, buffer, result } in done.drain(..) {
            let place = self.busy.iter().position(|(busy, _)| *busy == ticket).expect("a second answer");
            let (_, region) = self.busy.swap_remove(place);
            result.unwrap_or_else(|error| panic!("{op:?}: {error}"));
            if let Op::Read { offset } = op {
                let at = (offset - self.offset(region)) as usize;
                let expected = &self.contents[region][at..at + buffer.len()];
                let wrong = (0..buffer.len()).find(|index| buffer[*index] != expected[*index]);
                assert_eq!(wrong, None, "{} bytes at {offset} differ from what was written", buffer.len());
            }
        }
        self.done = done;
    }

    fn finish(&mut self) {
        while !self.busy.is_empty() {
            self.collect();
        }
    }

    /// Submits an operation of any kind and length on a region that has none.
    fn step(&mut self) {
        let region = self.numbers.below(self.contents.len());
        while self.busy.iter().any(|(_, busy)| *busy == region) {
            self.collect();
        }
        let block = self.geometry.block_bytes as usize;
        let most = (self.geometry.max_transfer_bytes as usize).min(REGION);
        let pages = 1 + self.numbers.below(most / PAGE_BYTES);
        let bytes = pages * PAGE_BYTES;
        let at = self.numbers.below((REGION - bytes) / block + 1) * block;
        let offset = self.offset(region) + at as u64;
        match self.numbers.below(10) {
            0 => self.submit(region, Op::Flush, Buffer::new(1)),
            1 => {
                self.contents[region][at..at + bytes].fill(0);
                if self.geometry.discard_bytes > 0 {
                    // What a discard leaves behind is not said.
                    self.submit(region, Op::Discard { offset, bytes: bytes as u64 }, Buffer::new(1));
                    self.finish();
                }
                self.submit(region, Op::Zero { offset, bytes: bytes as u64 }, Buffer::new(1));
            }
            2..6 => self.submit(region, Op::Read { offset }, Buffer::new(bytes)),
            kind => {
                let mut buffer = Buffer::new(bytes);
                for word in buffer.chunks_exact_mut(8) {
                    word.copy_from_slice(&(self.numbers.below(usize::MAX) as u64).to_le_bytes());
                }
                self.contents[region][at..at + bytes].copy_from_slice(&buffer);
                self.submit(region, Op::Write { offset, durable: kind == 6 }, buffer);
            }
        }
    }

    fn check_all(&mut self) {
        self.finish();
        let most = (self.geometry.max_transfer_bytes as usize).min(REGION);
        for region in 0..self.contents.len() {
            for at in (0..REGION).step_by(most) {
                let offset = self.offset(region) + at as u64;
                self.submit(region, Op::Read { offset }, Buffer::new(most.min(REGION - at)));
                self.finish();
            }
        }
    }
}

fn start(address: &str) -> (Arc<VfioFunction>, Arc<NvmeController>) {
    let function = open(address);
    let controller = NvmeController::start(Arc::clone(&function) as Arc<dyn Function>).unwrap();
    (function, controller)
}

#[test]
fn operations_of_all_kinds_and_lengths_do_what_they_say() {
    let Some(drives) = Drives::here() else { return };
    for address in [&drives.plain, &drives.shared, &drives.few] {
        let (_function, controller) = start(address);
        for namespace in controller.namespaces().unwrap() {
            let device = NvmeDrive::open(Arc::clone(&controller), namespace).unwrap();
            println!("{}: {:?}", device.describe(), device.geometry());
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let mut worker = Worker::new(&device, thread << 23, 16, 7 + thread);
                    scope.spawn(move || {
                        (0..400).for_each(|_| worker.step());
                        worker.check_all();
                    });
                }
            });
        }
    }
}

/// The function is reset from outside while operations are in flight. None is lost, and each is answered once.
#[test]
fn operations_live_through_resets_of_the_function() {
    let Some(drives) = Drives::here() else { return };
    for address in [&drives.plain, &drives.few] {
        let (function, controller) = start(address);
        let device = NvmeDrive::open(controller, 1).unwrap();
        let (steps, resets) = (AtomicU64::new(0), 4);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut worker = Worker::new(&device, 0, 32, 11);
            let (steps, is_over, device) = (&steps, &is_over, &device);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    worker.step();
                    steps.fetch_add(1, Ordering::Relaxed);
                }
                worker.check_all();
                let statistics = device.statistics()[0];
                println!("{statistics:?}");
                assert!(statistics.resets >= resets, "the resets of the function were not seen");
                assert_eq!(statistics.strays, 0);
            });
            for _ in 0..resets {
                let before = steps.load(Ordering::Relaxed);
                until("operations go on after a reset", || steps.load(Ordering::Relaxed) > before + 100);
                function.reset().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn a_drive_with_few_queues_says_so() {
    let Some(drives) = Drives::here() else { return };
    let (_function, controller) = start(&drives.few);
    let device = NvmeDrive::open(controller, 1).unwrap();
    let queues = [device.queue(4).unwrap(), device.queue(4).unwrap()];
    let error = device.queue(4).err().unwrap().to_string();
    assert!(error.contains("all 2 queues"), "{error}");
    drop(queues);
    for _ in 0..10 {
        let _queues = [device.queue(4).unwrap(), device.queue(4).unwrap()];
    }
}
