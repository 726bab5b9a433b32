//! The hardware side, on drives of an emulator: `make test-nvme` boots a machine that has them.
//!
//! `SITU_NVME` has the addresses of the drives, **which are overwritten**. `scripts/test-nvme.sh` says which they are.

mod whole;

use super::super::pair::{Answer, Command, Pair};
use super::super::registers::{self, Capabilities};
use super::super::space::{DmaSpace, SharedWords};
use super::*;
use crate::{Buffer, Device, NvmeController, NvmeDrive, Op, PAGE_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);
const VERSION: u32 = 0x08;
const STATUS: u32 = 0x1c;
const GONE: u32 = u32::MAX;

/// The drives of the emulator, by their addresses.
struct Drives {
    plain: String,
    shared: String,
    few: String,
    joined: [String; 2],
    hot: String,
}

impl Drives {
    /// Returns the drives, or says that there are none.
    fn here() -> Option<Drives> {
        let Ok(named) = std::env::var("SITU_NVME") else {
            crate::skipped::skipped("no drives of an emulator (make test-nvme)");
            return None;
        };
        let mut named = named.split_whitespace().map(str::to_owned);
        let mut next = || named.next().expect("SITU_NVME names six drives");
        let (plain, shared, few) = (next(), next(), next());
        Some(Drives { plain, shared, few, joined: [next(), next()], hot: next() })
    }
}

fn folder(address: &str) -> PathBuf {
    Path::new("/sys/bus/pci/devices").join(address)
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LONG, "waited for {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Gives a drive to a driver of the kernel.
fn bind(address: &str, driver: &str) {
    let folder = folder(address);
    let is_bound = || folder.join("driver").canonicalize().is_ok_and(|path| path.ends_with(driver));
    std::fs::write(folder.join("driver_override"), driver).unwrap();
    if !is_bound() {
        let _ = std::fs::write(folder.join("driver/unbind"), address);
        std::fs::write("/sys/bus/pci/drivers_probe", address).unwrap();
    }
    assert!(is_bound(), "{address} is not bound to {driver}");
}

/// Returns the block devices that the kernel has of a drive.
fn block_devices(address: &str) -> Vec<String> {
    let controllers = std::fs::read_dir(folder(address).join("nvme")).into_iter().flatten().flatten();
    let names = controllers.flat_map(|controller| std::fs::read_dir(controller.path()).into_iter().flatten().flatten());
    let names = names.map(|name| name.file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("nvme") && Path::new("/dev").join(name).exists()).collect()
}

fn open(address: &str) -> Arc<VfioFunction> {
    bind(address, "vfio-pci");
    Arc::new(VfioFunction::open(address, Env::system()).unwrap())
}

/// The admin queue of a controller, by hand.
struct Admin {
    function: Arc<VfioFunction>,
    space: Arc<DmaSpace>,
    pair: Pair,
    capabilities: Capabilities,
    next_id: u16,
}

impl Admin {
    fn start(function: &Arc<VfioFunction>) -> Admin {
        let capabilities = Capabilities::read(&**function).unwrap();
        registers::disable(&**function, capabilities.ready_within).unwrap();
        let space = DmaSpace::new(Arc::clone(function) as Arc<dyn Function>);
        let pair = Pair::new(&space, 0, 8, capabilities.stride).unwrap();
        let mut admin = Admin { function: Arc::clone(function), space, pair, capabilities, next_id: 0 };
        admin.enable();
        admin
    }

    fn enable(&mut self) {
        self.pair.renew(None);
        registers::enable(&*self.function, self.pair.addresses(), 8, self.capabilities.ready_within).unwrap();
    }

    /// Has the controller write what it says of itself to an address. It goes on at the next page.
    fn identify(&mut self, address: u64) -> Answer {
        let mut command: Command = [0; 16];
        self.next_id += 1;
        (command[0], command[10]) = (0x06 | u32::from(self.next_id) << 16, 1);
        let page = PAGE_BYTES as u64;
        for (at, address) in [(6, address), (8, (address + page) / page * page)] {
            (command[at], command[at + 1]) = (address as u32, (address >> 32) as u32);
        }
        self.pair.push(&command);
        self.pair.ring(&*self.function);
        let begin = Instant::now();
        loop {
            if let Some(answer) = self.pair.pop() {
                self.pair.release(&*self.function);
                assert_eq!(answer.id, self.next_id);
                return answer;
            }
            assert!(begin.elapsed() < LONG, "no answer to Identify");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn page(&self) -> SharedWords {
        SharedWords::new(&self.space, PAGE_BYTES).unwrap()
    }
}

/// Returns the serial number in the answer to Identify.
fn serial(page: &SharedWords) -> String {
    let mut bytes = [0; PAGE_BYTES];
    page.copy(&mut bytes);
    String::from_utf8_lossy(&bytes[4..24]).trim().to_owned()
}

fn dma(buffer: &Buffer) -> Dma {
    Dma::new(NonNull::new(buffer.address()).unwrap(), buffer.len())
}

/// Returns true if the interrupt has come, or comes soon.
fn has_come(watch: &dyn Watch) -> bool {
    let descriptor = watch.descriptor().unwrap();
    let timeout = Timespec::try_from(LONG).unwrap();
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout)).unwrap() == 1
}

#[test]
fn a_drive_answers_and_interrupts() {
    let Some(drives) = Drives::here() else { return };
    for (address, name, vectors) in [(&drives.plain, "plain", VECTORS_MAX as u16), (&drives.few, "few", 1)] {
        let function = open(address);
        assert_eq!((function.name(), function.vectors()), (address.clone(), vectors));
        assert_eq!(function.addresses(), 1 << 32..1 << 39, "the IOMMU has 39 bits");
        assert_eq!(function.read(VERSION) >> 16, 1);
        assert!(function.watch(vectors).is_err());
        let mut admin = Admin::start(&function);
        let (page, watch) = (admin.page(), function.watch(0).unwrap());
        for round in 0..3 {
            watch.wait(Some(Duration::ZERO));
            assert_eq!(admin.identify(page.address()).status, 0);
            assert_eq!(serial(&page), name);
            assert!(has_come(&*watch), "the interrupt of round {round} is missing");
            page.clear();
        }
    }
}

#[test]
fn all_of_a_drives_memory_is_given_back() {
    let Some(drives) = Drives::here() else { return };
    let locked = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let buffer = Buffer::new(1 << 20);
    let function = open(&drives.plain);
    let before = locked();
    let start = function.addresses().start;
    // SAFETY: the buffer outlives the function, and no command names it.
    let map = |at| unsafe { function.map(at, dma(&buffer)) };
    map(start).unwrap();
    assert_eq!(locked() - before, 1024);
    let error = map(start).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    assert!(map(function.addresses().end).is_err());
    map(start + (1 << 20)).unwrap();
    function.unmap(start, 1 << 20);
    assert_eq!(locked() - before, 1024);
    // A part of a mapping cannot be ended. The other one ends with all.
    function.unmap(start + (1 << 20), PAGE_BYTES);
    assert_eq!(locked(), before);
    assert_eq!(map(start).unwrap_err().kind(), ErrorKind::NotConnected);
    assert_eq!(function.read(VERSION), GONE);
    open(&drives.plain);
}

#[test]
fn the_limit_of_mappings_is_named() {
    let Some(drives) = Drives::here() else { return };
    let limit = "/sys/module/vfio_iommu_type1/parameters/dma_entry_limit";
    let before = std::fs::read_to_string(limit).unwrap();
    std::fs::write(limit, "2").unwrap();
    let buffer = Buffer::new(1);
    let function = open(&drives.plain);
    std::fs::write(limit, before).unwrap();
    let start = function.addresses().start;
    // SAFETY: the buffer outlives the function, and no command names it.
    let map = |page: u64| unsafe { function.map(start + page * PAGE_BYTES as u64, dma(&buffer)) };
    map(0).and(map(1)).unwrap();
    let error = map(2).unwrap_err().to_string();
    assert!(error.contains("no more than 2 mappings") && error.contains("dma_entry_limit"), "{error}");
}

#[test]
fn a_user_without_privileges_is_told_what_is_missing() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    use std::os::unix::process::CommandExt;
    const TEST: &str = "driver::vfio::tests::a_user_without_privileges_is_told_what_is_missing";
    const USER: u32 = 1000;
    let Some(drives) = Drives::here() else { return };
    if Other::is_this() {
        let limit = Some(1 << 20);
        setrlimit(Resource::Memlock, Rlimit { current: limit, maximum: limit }).unwrap();
        let buffer = Buffer::new(2 << 20);
        let error = VfioFunction::open(&drives.plain, Env::system()).and_then(|function| {
            // SAFETY: the buffer outlives the function, and no command names it.
            unsafe { function.map(function.addresses().start, dma(&buffer)) }
        });
        return println!("{}", error.unwrap_err());
    }
    bind(&drives.plain, "vfio-pci");
    let group = folder(&drives.plain).join("iommu_group").canonicalize().unwrap();
    let node = Path::new("/dev/vfio").join(group.file_name().unwrap());
    for (owner, words) in [(0, ["Permission denied", "chown"]), (USER, ["limited to 1048576 bytes", "LimitMEMLOCK"])] {
        std::os::unix::fs::chown(&node, Some(owner), None).unwrap();
        let mut other = Process::new(std::env::current_exe().unwrap());
        other.args(["--exact", TEST, "--nocapture"]).env(Other::IS_OTHER, "1").uid(USER);
        let said = String::from_utf8(other.output().unwrap().stdout).unwrap();
        println!("{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
}

/// Follows what the kernel says.
struct KernelLog(std::fs::File);

impl KernelLog {
    fn follow() -> KernelLog {
        use std::io::{Seek, SeekFrom};
        use std::os::unix::fs::OpenOptionsExt;
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let log = std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).open("/dev/kmsg").unwrap();
        (&log).seek(SeekFrom::End(0)).unwrap();
        KernelLog(log)
    }

    fn says(&self, words: &[&str]) -> bool {
        let mut record = [0; 8192];
        while let Ok(bytes) = (&self.0).read(&mut record) {
            let line = String::from_utf8_lossy(&record[..bytes]);
            if words.iter().all(|word| line.contains(word)) {
                println!("{}", line.trim());
                return true;
            }
        }
        false
    }
}

/// The emulated drive completes such a command with success, so its answer says nothing.
#[test]
fn a_drive_does_not_reach_memory_that_is_not_mapped() {
    let Some(drives) = Drives::here() else { return };
    let function = open(&drives.plain);
    let mut admin = Admin::start(&function);
    let mut buffer = Buffer::new(2 * PAGE_BYTES);
    buffer.fill(7);
    let mapped = admin.space.stretch(PAGE_BYTES).unwrap();
    let never = function.addresses().end - PAGE_BYTES as u64;
    // SAFETY: the mapping ends before the buffer is freed. Each command is over before the buffer is looked at.
    let address = unsafe { mapped.map(0, Dma::new(dma(&buffer).start(), PAGE_BYTES)) }.unwrap();
    assert_eq!(admin.identify(address).status, 0);
    assert_ne!(buffer[0], 7, "it reaches what is mapped");
    buffer.fill(7);
    // One command ends in the page behind a mapping; one meets a mapping that has ended; one names what never was one.
    let device = &drives.plain[5..];
    for address in [address + 2048, address, never] {
        if address != never && address % PAGE_BYTES as u64 == 0 {
            mapped.unmap(address, PAGE_BYTES);
        }
        let log = KernelLog::follow();
        admin.identify(address);
        until("the kernel's line about the access", || {
            log.says(&["DMAR", "DMA Write", &format!("[{device}]"), "fault addr"])
        });
        assert!(buffer[PAGE_BYTES..].iter().all(|byte| *byte == 7), "it wrote behind the mapping");
        if address % PAGE_BYTES as u64 == 0 {
            assert!(buffer[..2048].iter().all(|byte| *byte == 7), "it wrote where the mapping had ended");
        }
    }
    assert_eq!(admin.identify(admin.page().address()).status, 0, "the drive works on");
}

#[test]
fn a_reset_forgets_commands_and_keeps_mappings_and_interrupts() {
    let Some(drives) = Drives::here() else { return };
    let function = open(&drives.plain);
    let mut admin = Admin::start(&function);
    let (page, watch) = (admin.page(), function.watch(0).unwrap());
    for _ in 0..3 {
        assert_eq!(admin.identify(page.address()).status, 0);
        assert_eq!(function.read(STATUS) & 1, 1);
        function.reset().unwrap();
        assert_eq!(function.read(STATUS), 0, "the controller still runs");
        watch.wait(Some(Duration::ZERO));
        page.clear();
        admin.enable();
        assert_eq!(admin.identify(page.address()).status, 0);
        assert_eq!(serial(&page), "plain");
        assert!(has_come(&*watch), "no interrupt after a reset");
    }
}

#[test]
fn a_function_that_was_stopped_reaches_nothing_and_can_be_had_by_another() {
    let Some(drives) = Drives::here() else { return };
    let function = open(&drives.plain);
    let mut admin = Admin::start(&function);
    let page = admin.page();
    assert_eq!(admin.identify(page.address()).status, 0);
    page.clear();
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(|| function.stop()))));
    let second = open(&drives.plain);
    assert_eq!((function.read(STATUS), second.read(STATUS)), (GONE, 0), "closing it resets it");
    function.write(0x14, 1);
    assert_eq!(second.read(0x14), 0, "a stopped function's registers are still there");
    assert_eq!(function.reset().unwrap_err().kind(), ErrorKind::NotConnected);
    assert_eq!(Admin::start(&second).identify(page.address()).status, 0);
    assert!(page.load(0) == 0, "memory of the first is reached through the second");
}

#[test]
fn errors_say_what_to_do() {
    let Some(drives) = Drives::here() else { return };
    let refused = |address: &str, words: &[&str]| {
        let Err(error) = VfioFunction::open(address, Env::system()) else { panic!("{address} was opened") };
        let text = error.to_string();
        assert!(text.contains(address) && words.iter().all(|word| text.contains(word)), "{text}");
        println!("{text}");
    };
    let [first, second] = &drives.joined;
    bind(first, "nvme");
    refused(first, &["the driver nvme", &format!("situ disk bind {first}")]);
    bind(first, "vfio-pci");
    bind(second, "nvme");
    refused(first, &["IOMMU group", &format!("{second} (nvme)")]);
    bind(second, "vfio-pci");
    let held = VfioFunction::open(first, Env::system()).unwrap();
    refused(first, &["a process holds"]);
    refused(second, &["a process holds"]);
    drop(held);
    refused("0000:00:00.0", &["no NVMe controller"]);
    refused("0000:00:1e.7", &["no PCI function"]);
    drop(VfioFunction::open(second, Env::system()).unwrap());
}

/// Another process, which runs one test of this program.
struct Other(Child);

impl Other {
    const IS_OTHER: &str = "SITU_NVME_OTHER_PROCESS";

    fn is_this() -> bool {
        std::env::var_os(Other::IS_OTHER).is_some()
    }

    /// Starts it, and waits for its first line with a word.
    fn start(test: &str, word: &str) -> Other {
        let mut child = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("driver::vfio::tests::{test}"), "--nocapture"])
            .env(Other::IS_OTHER, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut said, mut byte) = (String::new(), [0]);
        let stdout = child.stdout.as_mut().unwrap();
        while !said.contains(word) {
            stdout.read_exact(&mut byte).unwrap_or_else(|_| panic!("the other process ended: {said}"));
            said.push(char::from(byte[0]));
        }
        Other(child)
    }

    fn say(text: &str) {
        let mut stdout = std::io::stdout();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a page whose words are those of a block of a round.
fn page_of(round: u64, block: u64) -> Buffer {
    let mut page = Buffer::new(PAGE_BYTES);
    for (index, word) in page.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(round << 32 | block << 16 | index as u64).to_le_bytes());
    }
    page
}

/// The process that is killed writes round after round, many pages in flight, and flushes each round.
#[test]
fn a_killed_process_gives_the_drive_back_and_keeps_what_it_flushed() {
    const BLOCKS: u64 = 64;
    let Some(drives) = Drives::here() else { return };
    let device = || {
        bind(&drives.plain, "vfio-pci");
        let function = VfioFunction::open(&drives.plain, Env::system());
        NvmeDrive::open(NvmeController::start(Arc::new(function.unwrap())).unwrap(), 1).unwrap()
    };
    if Other::is_this() {
        let device = device();
        let mut queue = device.queue(32).unwrap();
        let mut done = Vec::new();
        for round in 1.. {
            for block in 0..BLOCKS {
                let (mut page, offset) = (page_of(round, block), block * PAGE_BYTES as u64);
                while let Err((back, error)) = queue.submit(Op::Write { offset, durable: false }, page) {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    queue.wait(&mut done, LONG);
                    page = back;
                }
            }
            while done.len() < BLOCKS as usize {
                assert!(queue.wait(&mut done, LONG) > 0);
            }
            queue.submit(Op::Flush, Buffer::new(1)).unwrap();
            assert!(queue.wait(&mut done, LONG) > 0);
            done.drain(..).for_each(|completion| completion.result.unwrap());
            Other::say(&format!("flushed {round}\n"));
        }
    }
    for kill in 1..=5 {
        let mut other = Other::start("a_killed_process_gives_the_drive_back_and_keeps_what_it_flushed", "flushed 3\n");
        let error = VfioFunction::open(&drives.plain, Env::system()).err().unwrap();
        assert!(error.to_string().contains("a process holds"), "{error}");
        std::thread::sleep(Duration::from_millis(10 * kill));
        other.0.kill().unwrap();
        other.0.wait().unwrap();
        let mut said = String::new();
        other.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let flushed = said.lines().rev().find_map(|line| line.strip_prefix("flushed ")?.parse().ok()).unwrap_or(3);
        let device = device();
        let mut queue = device.queue(1).unwrap();
        for block in 0..BLOCKS {
            let mut done = Vec::new();
            queue.submit(Op::Read { offset: block * PAGE_BYTES as u64 }, Buffer::new(PAGE_BYTES)).unwrap();
            assert_eq!(queue.wait(&mut done, LONG), 1);
            let completion = done.pop().unwrap();
            completion.result.unwrap();
            let round = u64::from_le_bytes(completion.buffer[..8].try_into().unwrap()) >> 32;
            assert!(round >= flushed, "block {block} is of round {round}, and round {flushed} was flushed");
            assert!(completion.buffer[..] == page_of(round, block)[..], "block {block} is torn");
        }
    }
}

#[test]
fn the_kernel_gets_a_drive_back_with_its_block_device() {
    let Some(drives) = Drives::here() else { return };
    drop(Admin::start(&open(&drives.plain)));
    assert_eq!(block_devices(&drives.plain), [""; 0]);
    bind(&drives.plain, "nvme");
    until("the kernel's block device", || !block_devices(&drives.plain).is_empty());
    let block = Path::new("/dev").join(&block_devices(&drives.plain)[0]);
    let mut page = vec![0; PAGE_BYTES];
    std::fs::File::open(block).unwrap().read_exact(&mut page).unwrap();
    bind(&drives.plain, "vfio-pci");
    assert_eq!(block_devices(&drives.plain), [""; 0]);
}

/// Two ways to lose a drive that is open, while operations are in flight: the kernel is told to remove it, and the slot
/// asks for it.
#[test]
fn a_drive_that_is_removed_answers_all_and_lets_the_kernel_go_on() {
    let Some(drives) = Drives::here() else { return };
    for way in ["sysfs", "slot"] {
        bind(&drives.hot, "vfio-pci");
        let function = Arc::new(VfioFunction::open(&drives.hot, Env::system()).unwrap());
        let controller = NvmeController::start(Arc::clone(&function) as Arc<dyn Function>).unwrap();
        let device = NvmeDrive::open(controller, 1).unwrap();
        let mut queue = device.queue(8).unwrap();
        let remover = std::thread::spawn({
            let remove = folder(&drives.hot).join("remove");
            move || {
                std::thread::sleep(Duration::from_millis(50));
                match way {
                    "sysfs" => std::fs::write(remove, "1").unwrap(),
                    _ => std::io::stderr().write_all(b"QEMU: device_del hot\n").unwrap(),
                }
            }
        });
        let (mut done, mut submitted, begin) = (Vec::new(), 0, Instant::now());
        let error = loop {
            assert!(begin.elapsed() < 3 * LONG, "{way}: the drive is still there");
            match queue.submit(Op::Write { offset: 0, durable: false }, page_of(1, submitted)) {
                Ok(_) => submitted += 1,
                Err((_, error)) if error.kind() == ErrorKind::WouldBlock => drop(queue.wait(&mut done, LONG)),
                Err((_, error)) => break error,
            }
        };
        assert!(error.to_string().contains("gone"), "{error}");
        while (done.len() as u64) < submitted {
            assert!(queue.wait(&mut done, LONG) > 0, "{way}: {} of {submitted} were answered", done.len());
        }
        let failed = done.iter().filter(|completion| completion.result.is_err()).count();
        println!("{way}: {submitted} submitted, {failed} of them failed, after {:?}", begin.elapsed());
        assert_eq!(function.read(STATUS), GONE);
        until("the kernel has removed the drive, which is still open", || !folder(&drives.hot).exists());
        remover.join().unwrap();
        drop((queue, device, function));
        if way == "sysfs" {
            std::fs::write("/sys/bus/pci/rescan", "1").unwrap();
            until("the drive is back", || folder(&drives.hot).exists());
        }
    }
}

/// Without requests, too, the kernel gets the drive at once, and a thread that waits for the drive is woken.
#[test]
fn a_drive_at_rest_is_given_back_when_the_kernel_asks_for_it() {
    let Some(drives) = Drives::here() else { return };
    let function = open(&drives.plain);
    let watch = function.watch(3).unwrap();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| bind(&drives.plain, "nvme"));
        assert!(has_come(&*watch));
    });
    assert!(begin.elapsed() < LONG / 2, "{:?}", begin.elapsed());
    assert_eq!(function.read(VERSION), GONE);
    assert_eq!(function.reset().unwrap_err().kind(), ErrorKind::NotConnected);
    bind(&drives.plain, "vfio-pci");
}
