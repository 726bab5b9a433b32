//! The figures of dm-vdo.
//!
//! The module that came before Linux 6.9 shows its statistics as files under `/sys/block/dm-N/vdo/statistics`. The one
//! in the kernel answers the message `stats` of the device mapper with the same figures as text. Both count in blocks
//! of 4 KiB.
//!
//! The bytes written by the volume are those written to its one backing device, by that device's own counter. It goes
//! back to when the backing device was set up, and no figure of dm-vdo counts its metadata exactly.

use super::Counts;
use crate::ioctl::Call;
use rustix::ioctl::{Opcode, ioctl, opcode};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// A running volume.
#[derive(Debug)]
pub(super) struct Volume {
    directory: PathBuf,
    /// The number by which the device mapper knows it.
    number: Option<u64>,
}

/// The figures that both interfaces have, in blocks but for the size of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Statistics {
    data_used: u64,
    overhead_used: u64,
    logical_used: u64,
    physical: u64,
    block_bytes: u64,
}

impl Volume {
    pub(super) fn new(directory: PathBuf, number: Option<u64>) -> Volume {
        Volume { directory, number }
    }

    pub(super) fn counts(&self) -> Counts {
        let statistics =
            from_files(&self.directory.join("vdo/statistics")).or_else(|| from_message(&ask(self.number?).ok()?));
        statistics.map_or_else(Counts::default, |statistics| statistics.counts(written(&self.directory)))
    }
}

impl Statistics {
    /// Returns the named figure by `look`, which knows an interface's names.
    fn from(look: impl Fn(&str, &str) -> Option<u64>) -> Option<Statistics> {
        Some(Statistics {
            data_used: look("data_blocks_used", "dataBlocksUsed")?,
            overhead_used: look("overhead_blocks_used", "overheadBlocksUsed")?,
            logical_used: look("logical_blocks_used", "logicalBlocksUsed")?,
            physical: look("physical_blocks", "physicalBlocks")?,
            block_bytes: look("block_size", "blockSize")?,
        })
    }

    fn counts(self, physical_written: Option<u64>) -> Counts {
        let bytes = |blocks: u64| blocks.checked_mul(self.block_bytes);
        Counts {
            logical_used: bytes(self.logical_used),
            physical_total: bytes(self.physical),
            physical_used: self.data_used.checked_add(self.overhead_used).and_then(bytes),
            physical_written,
        }
    }
}

/// Reads the figures from files, one for each figure.
fn from_files(directory: &Path) -> Option<Statistics> {
    Statistics::from(|file, _| fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok())
}

/// Parses the figures from `{ version : 41, dataBlocksUsed : 560, ..., packer : { ... }, ... }`.
fn from_message(text: &str) -> Option<Statistics> {
    let fields = || text.split([',', '{', '}']).filter_map(|field| field.split_once(':'));
    Statistics::from(|_, name| {
        let (_, value) = fields().find(|(found, _)| found.trim() == name)?;
        value.trim().parse().ok()
    })
}

/// Returns the bytes that the one device below was given to write.
fn written(directory: &Path) -> Option<u64> {
    let mut below = fs::read_dir(directory.join("slaves")).ok()?.flatten();
    let (one, None) = (below.next()?, below.next()) else { return None };
    let text = fs::read_to_string(one.path().join("stat")).ok()?;
    let sectors: u64 = text.split_whitespace().nth(6)?.parse().ok()?;
    sectors.checked_mul(512)
}

/// `struct dm_ioctl` of `linux/dm-ioctl.h` begins a message and its answer; these are offsets within it.
const HEADER_BYTES: usize = 312;
const DATA_BYTES_AT: usize = 12;
const DATA_START_AT: usize = 16;
const FLAGS_AT: usize = 28;
const DEVICE_AT: usize = 40;
/// The statistics take about 4 KB.
const MESSAGE_BYTES: usize = 16 << 10;
const BUFFER_FULL: u32 = 1 << 8;
const DATA_OUT: u32 = 1 << 16;
const DM_TARGET_MSG: Opcode = opcode::read_write::<[u64; HEADER_BYTES / 8]>(0xfd, 14);

/// Asks the volume for its statistics.
fn ask(number: u64) -> io::Result<String> {
    let control = OpenOptions::new().read(true).write(true).open("/dev/mapper/control")?;
    let mut message = message(number, b"stats");
    exchange(&control, &mut message)?;
    answer(&message).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns a message for the first target of a device, with space for the answer.
fn message(number: u64, text: &[u8]) -> Box<[u64; MESSAGE_BYTES / 8]> {
    let mut bytes = [0; MESSAGE_BYTES];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    // The interface's version 4.0.0, which every kernel takes.
    put(0, &4_u32.to_ne_bytes());
    put(DATA_BYTES_AT, &(MESSAGE_BYTES as u32).to_ne_bytes());
    put(DATA_START_AT, &(HEADER_BYTES as u32).to_ne_bytes());
    put(DEVICE_AT, &number.to_ne_bytes());
    // Behind the sector of the target, which is the first one.
    put(HEADER_BYTES + 8, text);
    let mut words = Box::new([0; MESSAGE_BYTES / 8]);
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    }
    words
}

/// Returns the text that came back, if it came back whole.
fn answer(message: &[u64; MESSAGE_BYTES / 8]) -> Option<String> {
    let bytes: Vec<u8> = message.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let field = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if field(FLAGS_AT)? & (DATA_OUT | BUFFER_FULL) != DATA_OUT {
        return None;
    }
    let text = bytes.get(field(DATA_START_AT)? as usize..)?;
    let end = text.iter().position(|byte| *byte == 0)?;
    String::from_utf8(text[..end].to_vec()).ok()
}

fn exchange(control: &File, message: &mut [u64; MESSAGE_BYTES / 8]) -> io::Result<()> {
    let argument = message.as_mut_ptr().cast();
    // SAFETY: the message begins with the structure that the operation takes, and says how long it is as a whole. It is
    // aligned for the structure, and borrowed mutably through the call. The message asks for statistics and changes
    // nothing.
    unsafe { ioctl(control, Call::<DM_TARGET_MSG> { argument })? };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel writes it, from a pool of 60 GiB.
    const RECORDED: &str = "{ version : 41, releaseVersion : 133524, dataBlocksUsed : 692060, overheadBlocksUsed : 1061683, \
        logicalBlocksUsed : 1746109, physicalBlocks : 15728640, logicalBlocks : 15728640, blockMapCacheSize : 134217728, \
        blockSize : 4096, completeRecoveries : 0, readOnlyRecoveries : 0, mode : normal, inRecoveryMode : 0, \
        recoveryPercentage : 0, packer : { compressedFragmentsWritten : 0, compressedBlocksWritten : 0, \
        compressedFragmentsInPacker : 0, }, allocator : { slabCount : 28, slabsOpened : 1, slabsReopened : 0, }, \
        biosOut : { read : 0, write : 11, emptyFlush : 0, discard : 0, flush : 0, fua : 0, }, }";

    fn expected() -> Counts {
        Counts {
            logical_used: Some(1_746_109 * 4096),
            physical_total: Some(15_728_640 * 4096),
            physical_used: Some((692_060 + 1_061_683) * 4096),
            physical_written: None,
        }
    }

    #[test]
    fn recorded_statistics_of_a_message_are_understood() {
        assert_eq!(from_message(RECORDED).unwrap().counts(None), expected());
        for text in ["", "{ }", "{ dataBlocksUsed : 1, }", &RECORDED.replace("692060", "-1"), &RECORDED[..200]] {
            assert_eq!(from_message(text), None, "{text}");
        }
        let huge = RECORDED.replace("15728640", "18446744073709551615");
        assert_eq!(from_message(&huge).unwrap().counts(None).physical_total, None, "longer than can be counted");
    }

    #[test]
    fn files_are_understood_and_the_backing_device_counts_what_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let volume = Volume::new(at.to_owned(), None);
        assert_eq!(volume.counts(), Counts::default());
        fs::create_dir_all(at.join("vdo/statistics")).unwrap();
        let files = [
            ("data_blocks_used", "692060"),
            ("overhead_blocks_used", "1061683"),
            ("logical_blocks_used", "1746109"),
            ("physical_blocks", "15728640"),
            ("block_size", "4096"),
        ];
        for (name, value) in files {
            assert_eq!(volume.counts(), Counts::default(), "without {name}");
            fs::write(at.join("vdo/statistics").join(name), format!("{value}\n")).unwrap();
        }
        assert_eq!(volume.counts(), expected());
        fs::create_dir_all(at.join("slaves/sdb1")).unwrap();
        fs::write(at.join("slaves/sdb1/stat"), "  100 0 800 9 200 0 4096 12 0 10 21 0 0 0 0 0 0\n").unwrap();
        assert_eq!(volume.counts(), Counts { physical_written: Some(4096 * 512), ..expected() });
        fs::create_dir_all(at.join("slaves/sdc")).unwrap();
        assert_eq!(volume.counts(), expected(), "two devices, which may be others' as well");
    }

    #[test]
    fn a_message_is_laid_out_as_the_kernel_takes_it_and_its_answer_is_found() {
        let mut message = message(0xfd03, b"stats");
        let bytes: Vec<u8> = message.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes[..12], [4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[12..20], [0, 0x40, 0, 0, 0x38, 1, 0, 0]);
        assert_eq!(bytes[40..48], [3, 0xfd, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[312..326], b"\0\0\0\0\0\0\0\0stats\0");
        assert_eq!(answer(&message), None, "a kernel that says nothing");
        // The answer lies where the kernel says: here at its offset 320.
        message[2] = u64::from_ne_bytes([0x40, 1, 0, 0, 0, 0, 0, 0]);
        message[3] = u64::from(DATA_OUT) << 32;
        message[40] = u64::from_ne_bytes(*b"{ a : 1 ");
        message[41] = u64::from_ne_bytes(*b"}\0rest..");
        assert_eq!(answer(&message).as_deref(), Some("{ a : 1 }"));
        message[3] |= u64::from(BUFFER_FULL) << 32;
        assert_eq!(answer(&message), None, "an answer that was cut");
    }
}
