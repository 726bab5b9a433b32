//! The namespaces of a controller that the driver `nvme` has, and their uses.
//!
//! Each use is found by another description of the kernel: mounts, swap, devices that are built on a namespace or a
//! partition of it, and processes that have one of them open. An ordinary process sees the files of its own user's
//! processes only. Mounts of other mount namespaces are not listed: an exclusive open finds those, too
//! ([`Kernel::claim`](super::Kernel::claim)).

use super::{Error, Result, names_in, read};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The unit in which `/sys` gives the size of a block device.
const SECTOR_BYTES: u64 = 512;

/// A namespace, as a block device of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// The kernel's name for it, as in `/dev`.
    pub name: String,
    /// The number by which the controller knows it.
    pub id: u32,
    /// Its size.
    pub bytes: u64,
    /// The path of the block device.
    pub path: PathBuf,
    /// The uses of the namespace and of its partitions.
    pub uses: Vec<Use>,
}

/// A use of a namespace, or of one of its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The name of the namespace or the partition.
    pub block: String,
    /// Its use.
    pub kind: UseKind,
}

/// The kinds of uses.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UseKind {
    /// A file system, mounted at this path.
    Mounted(String),
    /// Swap space.
    Swap,
    /// The device of this name is built on it: a logical volume, an array, an encrypted device.
    Holder(String),
    /// The process has it open.
    Open(Process),
    /// An exclusive opener that no description names.
    Claimed,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.block)?;
        match &self.kind {
            UseKind::Mounted(at) => write!(f, " is mounted at {at}"),
            UseKind::Swap => f.write_str(" is swap space"),
            UseKind::Holder(holder) => write!(f, " is part of {holder}"),
            UseKind::Open(process) => write!(f, " is open in {process}"),
            UseKind::Claimed => {
                f.write_str(" is in exclusive use, perhaps as a file system that a container has mounted")
            }
        }
    }
}

/// A process that has a file open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// The name of its program.
    pub name: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.id, self.name)
    }
}

/// Returns the namespaces of the controller that `described` describes.
pub(super) fn of_controller(root: &Path, described: &Path) -> Result<Vec<Namespace>> {
    let mut found = Vec::new();
    for (name, instance) in names_in(described)?.iter().filter_map(|entry| block_name(entry)) {
        let directory = root.join("sys/class/block").join(&name);
        let number = |file: &str| Ok(read(&directory.join(file))?.and_then(|text| text.parse::<u64>().ok()));
        let id = number("nsid")?.and_then(|id| u32::try_from(id).ok()).unwrap_or(instance);
        let bytes = number("size")?.unwrap_or(0).saturating_mul(SECTOR_BYTES);
        let path = root.join("dev").join(&name);
        let uses = uses(root, &directory, &name)?;
        found.push(Namespace { name, id, bytes, path, uses });
    }
    found.sort_by(|one, other| (one.id, &one.name).cmp(&(other.id, &other.name)));
    Ok(found)
}

/// Returns the block device that an entry of a controller's folder stands for, and its instance. With several paths to
/// a namespace, `nvme0c1n2` is the path by controller 1 to `nvme0n2`.
fn block_name(entry: &str) -> Option<(String, u32)> {
    let (subsystem, rest) = digits(entry.strip_prefix("nvme")?)?;
    let rest = match rest.strip_prefix('c') {
        Some(controller) => digits(controller)?.1,
        None => rest,
    };
    let (instance, rest) = digits(rest.strip_prefix('n')?)?;
    rest.is_empty().then(|| (format!("nvme{subsystem}n{instance}"), instance))
}

/// Parses a number at the beginning of a text, and returns it with the rest.
fn digits(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|byte: char| !byte.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

fn used(block: &str, kind: UseKind) -> Use {
    Use { block: block.to_owned(), kind }
}

fn uses(root: &Path, directory: &Path, name: &str) -> Result<Vec<Use>> {
    // The partitions have folders of their own below that of the whole.
    let mut blocks = vec![(name.to_owned(), directory.to_owned())];
    for entry in names_in(directory)?.into_iter().filter(|entry| entry.starts_with(name)) {
        let partition = directory.join(&entry);
        if partition.join("partition").exists() {
            blocks.push((entry, partition));
        }
    }
    let mounts = root.join("proc/self/mountinfo");
    let missing = || Error::io("read", &mounts, io::ErrorKind::NotFound.into());
    let mounts = read(&mounts)?.ok_or_else(missing)?;
    // A kernel without swap has no such file.
    let swaps = read(&root.join("proc/swaps"))?.unwrap_or_default();
    let mut found = Vec::new();
    for (block, directory) in &blocks {
        let number = read(&directory.join("dev"))?.unwrap_or_default();
        let mounted = mounts.lines().filter_map(|line| mounted_at(line, &number, block));
        found.extend(mounted.map(|at| used(block, UseKind::Mounted(at))));
        let device = format!("/dev/{block}");
        if swaps.lines().any(|line| line.split_whitespace().next() == Some(&device)) {
            found.push(used(block, UseKind::Swap));
        }
        for holder in names_in(&directory.join("holders"))? {
            let mapped = read(&directory.join("holders").join(&holder).join("dm/name"))?;
            let holder = mapped.map_or_else(|| holder.clone(), |mapped| format!("{holder} ({mapped})"));
            found.push(used(block, UseKind::Holder(holder)));
        }
    }
    // The character device of a namespace, for commands that are passed through to the drive.
    let mut names: Vec<String> = blocks.into_iter().map(|(block, _)| block).collect();
    names.extend(name.strip_prefix("nvme").map(|rest| format!("ng{rest}")));
    let paths: Vec<String> = names.iter().map(|name| format!("/dev/{name}")).collect();
    let open = open_in(root, &paths)?.into_iter();
    found.extend(open.map(|(at, process)| used(&names[at], UseKind::Open(process))));
    Ok(found)
}

/// Returns the mount point of a line like that of `/proc/self/mountinfo`, if the block device is what it mounts. Btrfs
/// gives its mounts numbers of their own, but names the device.
fn mounted_at(line: &str, number: &str, block: &str) -> Option<String> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut words = mount.split(' ').skip(2);
    let (device, at) = (words.next()?, words.nth(1)?);
    let is_source = file_system.split(' ').nth(1).and_then(|source| source.strip_prefix("/dev/")) == Some(block);
    (device == number || is_source).then(|| at.replace("\\040", " "))
}

/// Returns the processes that have one of the files open, each with the index of the file. This process does not count.
pub(super) fn open_in(root: &Path, files: &[String]) -> Result<Vec<(usize, Process)>> {
    let processes = root.join("proc");
    let mut found = Vec::new();
    for id in names_in(&processes)?.iter().filter_map(|name| name.parse::<u32>().ok()) {
        if id == std::process::id() {
            continue;
        }
        let directory = processes.join(id.to_string());
        // A process may end meanwhile, and those of other users do not show their files.
        let Ok(descriptors) = fs::read_dir(directory.join("fd")) else { continue };
        let links: Vec<PathBuf> = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
        for (at, _) in files.iter().enumerate().filter(|(_, file)| links.iter().any(|link| link == Path::new(file))) {
            let name = fs::read_to_string(directory.join("comm")).unwrap_or_default().trim().to_owned();
            found.push((at, Process { id, name }));
        }
    }
    Ok(found)
}
