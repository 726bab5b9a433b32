//! Metric messages: what a collector of measures is fed with (`docs/formats/metrics.md`).
//!
//! ```text
//! | size | flag, length, value | flag, length, value | ... | CRC-32C |
//! ```
//!
//! **Invariants.** A message that was encoded is decoded to the same measures. A decoded share lies in 0 to 1, and a
//! decoded number is finite. **Failure.** Bytes that break a rule are an error that names the field. A measure with an
//! unknown flag is skipped, so that a newer side can feed an older one.

use crc32c::crc32c;
use situ_storage::{Error, Result};
use std::time::Duration;

/// Size before the measures, checksum behind them.
const FRAME_BYTES: usize = 8;
/// Flag and length before each value.
const HEAD_BYTES: usize = 4;
/// A message is no longer than this.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// The name of a measure is no longer than this.
pub const MEASURE_NAME_BYTES_MAX: usize = 64;

const PROCESSORS: u16 = 1;
const MEMORY: u16 = 2;
const LARGE_VALUES: u16 = 3;
const PROCESSORS_FREE: u16 = 4;
const MEMORY_FREE: u16 = 5;
const BANDWIDTH_FREE: u16 = 6;
const READS_WITH_PIPELINES: u16 = 16;
const READS_WITHOUT_PIPELINES: u16 = 17;
const NAMED: u16 = 255;
/// A node's figures of itself have flags from here on.
pub const NODE_FLAGS: u16 = 256;

/// The 99th percentile of foreground reads, with what it was measured from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadTail {
    /// The number of measured reads.
    pub samples: u64,
    /// The percentile is hardly below this: the bound of a confidence interval.
    pub p99_low: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The percentile is hardly above this.
    pub p99_high: Duration,
}

/// One measure, as a metric message has it.
#[derive(Debug, Clone, PartialEq)]
pub enum Measure {
    /// The share of the processors that are in use, 0 to 1.
    Processors(f64),
    /// The share of memory that is in use, 0 to 1.
    Memory(f64),
    /// The share of large values among the entries of a task, 0 to 1.
    LargeValues(f64),
    /// The unused part of the processors, in thousandths of one processor.
    ProcessorsFree(u32),
    /// Bytes of memory that are free.
    MemoryFree(u64),
    /// Bytes a second that the volume could still read and write.
    BandwidthFree(u64),
    /// Foreground reads while pipelined compactions ran: over the last ten seconds at most.
    ReadsWithPipelines(ReadTail),
    /// Foreground reads while none ran: the last ones, over ten minutes at most.
    ReadsWithoutPipelines(ReadTail),
    /// Anything else, by name.
    Named(String, f64),
}

impl Measure {
    /// Returns true if the measure describes the machine that it was taken on, whichever store runs there.
    pub fn is_of_machine(&self) -> bool {
        use Measure as M;
        match self {
            M::Processors(_) | M::Memory(_) | M::ProcessorsFree(_) | M::MemoryFree(_) | M::BandwidthFree(_) => true,
            M::LargeValues(_) | M::ReadsWithPipelines(_) | M::ReadsWithoutPipelines(_) | M::Named(..) => false,
        }
    }
}

/// Encodes measures as one message.
///
/// # Panics
/// A name is longer than [`MEASURE_NAME_BYTES_MAX`] or empty, a number is not finite, a share is not one, or the
/// message is longer than [`MESSAGE_BYTES_MAX`].
pub fn encode_measures(measures: &[Measure]) -> Vec<u8> {
    encode_values(measures.iter().map(parts))
}

/// Encodes values by flag as one message. Flags from [`NODE_FLAGS`] on are a node's figures of itself, which no
/// decision uses.
///
/// # Panics
/// A value is none of its flag, or the message is longer than [`MESSAGE_BYTES_MAX`].
pub fn encode_values(values: impl IntoIterator<Item = (u16, Vec<u8>)>) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for (flag, value) in values {
        assert!(decode_one(flag, &value).is_ok(), "flag {flag} with a value that no reader takes: {value:02x?}");
        bytes.extend_from_slice(&flag.to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&value);
    }
    let size = bytes.len() + 4;
    assert!(size <= MESSAGE_BYTES_MAX, "a message of {size} bytes");
    bytes[..4].copy_from_slice(&(size as u32).to_le_bytes());
    let checksum = crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Decodes the measures in a message, in its order, without those whose flags are not known here.
///
/// # Errors
/// [`Corruption`](Error::Corruption): the bytes are not a message.
pub fn decode_measures(bytes: &[u8]) -> Result<Vec<Measure>> {
    let broken = |at: usize, field: &str, expected: String, found: String| {
        Err(Error::corruption("metric message", at as u64, field, expected, found))
    };
    if !(FRAME_BYTES..=MESSAGE_BYTES_MAX).contains(&bytes.len()) {
        let expected = format!("{FRAME_BYTES} to {MESSAGE_BYTES_MAX} bytes");
        return broken(0, "length", expected, bytes.len().to_string());
    }
    let (covered, checksum) = bytes.split_at(bytes.len() - 4);
    let size = number::<4>(covered, 0).map(u32::from_le_bytes);
    if size.map(|size| size as usize) != Some(bytes.len()) {
        return broken(0, "size", bytes.len().to_string(), format!("{size:?}"));
    }
    let found = crc32c(covered).to_le_bytes();
    if checksum != found {
        return broken(covered.len(), "checksum", format!("{checksum:02x?}"), format!("{found:02x?}"));
    }
    let mut measures = Vec::new();
    let mut at = 4;
    while at < covered.len() {
        let flag = number(covered, at).map(u16::from_le_bytes);
        let length = number(covered, at + 2).map(u16::from_le_bytes);
        let value = |length: u16| covered.get(at + HEAD_BYTES..at + HEAD_BYTES + usize::from(length));
        let (Some(flag), Some(value)) = (flag, length.and_then(value)) else {
            let left = covered.len() - at;
            return broken(at, "measure", "flag, length and value".to_owned(), format!("{left} bytes"));
        };
        match decode_one(flag, value) {
            Ok(measure) => measures.extend(measure),
            Err(expected) => return broken(at, "measure", expected.to_owned(), format!("{flag}: {value:02x?}")),
        }
        at += HEAD_BYTES + value.len();
    }
    Ok(measures)
}

fn parts(measure: &Measure) -> (u16, Vec<u8>) {
    match measure {
        Measure::Processors(share) => (PROCESSORS, share.to_le_bytes().to_vec()),
        Measure::Memory(share) => (MEMORY, share.to_le_bytes().to_vec()),
        Measure::LargeValues(share) => (LARGE_VALUES, share.to_le_bytes().to_vec()),
        Measure::ProcessorsFree(milli) => (PROCESSORS_FREE, milli.to_le_bytes().to_vec()),
        Measure::MemoryFree(bytes) => (MEMORY_FREE, bytes.to_le_bytes().to_vec()),
        Measure::BandwidthFree(bytes_per_s) => (BANDWIDTH_FREE, bytes_per_s.to_le_bytes().to_vec()),
        Measure::ReadsWithPipelines(tail) => (READS_WITH_PIPELINES, tail_bytes(tail)),
        Measure::ReadsWithoutPipelines(tail) => (READS_WITHOUT_PIPELINES, tail_bytes(tail)),
        Measure::Named(name, value) => {
            let mut bytes = vec![u8::try_from(name.len()).unwrap_or(u8::MAX)];
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(&value.to_le_bytes());
            (NAMED, bytes)
        }
    }
}

/// The measure; `None` if the flag is not known. The error says what was expected.
fn decode_one(flag: u16, value: &[u8]) -> std::result::Result<Option<Measure>, &'static str> {
    Ok(Some(match flag {
        PROCESSORS => Measure::Processors(share(value)?),
        MEMORY => Measure::Memory(share(value)?),
        LARGE_VALUES => Measure::LargeValues(share(value)?),
        PROCESSORS_FREE => Measure::ProcessorsFree(u32::from_le_bytes(whole(value)?)),
        MEMORY_FREE => Measure::MemoryFree(u64::from_le_bytes(whole(value)?)),
        BANDWIDTH_FREE => Measure::BandwidthFree(u64::from_le_bytes(whole(value)?)),
        READS_WITH_PIPELINES => Measure::ReadsWithPipelines(tail(value)?),
        READS_WITHOUT_PIPELINES => Measure::ReadsWithoutPipelines(tail(value)?),
        NAMED => {
            let (length, rest) = value.split_first().ok_or("the length of a name")?;
            let (name, number) = rest.split_at_checked(usize::from(*length)).ok_or("a name of its length")?;
            let name = str::from_utf8(name).map_err(|_| "a name in UTF-8")?;
            if !(1..=MEASURE_NAME_BYTES_MAX).contains(&name.len()) {
                return Err("a name of 1 to 64 bytes");
            }
            Measure::Named(name.to_owned(), finite(number)?)
        }
        _ => return Ok(None),
    }))
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn whole<const N: usize>(value: &[u8]) -> std::result::Result<[u8; N], &'static str> {
    value.try_into().map_err(|_| "a number of the flag's length")
}

fn finite(value: &[u8]) -> std::result::Result<f64, &'static str> {
    let number = f64::from_le_bytes(whole(value)?);
    if number.is_finite() { Ok(number) } else { Err("a finite number") }
}

fn share(value: &[u8]) -> std::result::Result<f64, &'static str> {
    let number = finite(value)?;
    if (0.0..=1.0).contains(&number) { Ok(number) } else { Err("a share from 0 to 1") }
}

fn tail_bytes(tail: &ReadTail) -> Vec<u8> {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let times = [tail.p99_low, tail.p99, tail.p99_high].map(nanoseconds);
    std::iter::once(tail.samples).chain(times).flat_map(u64::to_le_bytes).collect()
}

fn tail(value: &[u8]) -> std::result::Result<ReadTail, &'static str> {
    let (numbers, rest) = value.as_chunks::<8>();
    let [samples, low, p99, high] = numbers else { return Err("four numbers") };
    let time = |bytes: &[u8; 8]| Duration::from_nanos(u64::from_le_bytes(*bytes));
    let tail =
        ReadTail { samples: u64::from_le_bytes(*samples), p99_low: time(low), p99: time(p99), p99_high: time(high) };
    let ascend = tail.p99_low <= tail.p99 && tail.p99 <= tail.p99_high;
    if rest.is_empty() && ascend { Ok(tail) } else { Err("samples, and three times that ascend") }
}
