//! The meaning of the drive's answers. Offsets and fields are those of the NVM Express base and NVM command set
//! specifications ("Identify Namespace", "Identify Controller").

use super::Answers;
use crate::{Geometry, PAGE_BYTES};
use situ_base::bytes::{u16_at, u64_at};
use std::io;

/// A transfer in more pieces of memory than this may not fit one command; each page of a buffer may be one.
const SEGMENTS_ASSUMED: u64 = 32;

/// A drive without a limit of its own.
const MAX_TRANSFER_BYTES: u64 = 1 << 20;

/// The properties of a namespace that commands need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Namespace {
    pub(crate) id: u32,
    pub(crate) bytes: u64,
    pub(crate) geometry: Geometry,
    /// The drive has the command Write Zeroes.
    pub(crate) writes_zeroes: bool,
}

impl Namespace {
    pub(crate) fn new(id: u32, answers: &Answers) -> io::Result<Namespace> {
        let refused = |why: String| Err(io::Error::new(io::ErrorKind::Unsupported, why));
        let (of_namespace, of_controller) = (&answers.namespace[..], &answers.controller[..]);
        let format = sector_format(of_namespace);
        if format.metadata_bytes != 0 {
            return refused(format!(
                "its sectors carry {} bytes of metadata; format the namespace without (nvme format --ms=0)",
                format.metadata_bytes
            ));
        }
        if !(9..=16).contains(&format.shift) {
            return refused(format!("its sectors are of 2^{} bytes; from 512 to 65,536 are supported", format.shift));
        }
        let block = 1_u64 << format.shift;
        // Unless the namespace has its own, the controller's unit holds. Both count from zero.
        let own_atomic = of_namespace[24] & 0b10 != 0;
        let atomic = if own_atomic { u16_at(of_namespace, 36) } else { u16_at(of_controller, 528) };
        let transfer = match of_controller[77] {
            shift @ 1..8 => (PAGE_BYTES as u64) << shift,
            _ => MAX_TRANSFER_BYTES,
        };
        let optional = u16_at(of_controller, 520);
        let (can_discard, writes_zeroes) = (optional & 0b100 != 0, optional & 0b1000 != 0);
        let discard_blocks = if of_namespace[24] & 0b1_0000 != 0 { u64::from(u16_at(of_namespace, 68)) + 1 } else { 1 };
        let has_cache = of_controller[525] & 1 != 0;
        let cache_is_on = answers.cache_feature.is_none_or(|feature| feature & 1 != 0);
        let unit = block.max(PAGE_BYTES as u64);
        let bytes = u64_at(of_namespace, 0).saturating_mul(block);
        let geometry = Geometry {
            block_bytes: block as u32,
            atomic_write_bytes: u32::try_from((u64::from(atomic) + 1) * block).unwrap_or(u32::MAX),
            max_transfer_bytes: transfer as u32,
            volatile_write_cache: has_cache && cache_is_on,
            discard_bytes: if can_discard { u32::try_from(discard_blocks * block).unwrap_or(u32::MAX) } else { 0 },
            // A drive may ignore a discard; what it did not give back keeps its bytes.
            discard_zeroes: false,
        };
        Ok(Namespace { id, bytes: bytes - bytes % unit, geometry, writes_zeroes })
    }

    /// Commands are not cut by the kernel: a transfer has to fit what the host can describe in one of them.
    pub(crate) fn limit_transfer(&mut self, host_kb: Option<u64>, segments: Option<u64>) {
        let by_memory = segments.unwrap_or(SEGMENTS_ASSUMED).max(1) * PAGE_BYTES as u64;
        let by_host = host_kb.map_or(u64::MAX, |kb| kb.saturating_mul(1024));
        let most = u64::from(self.geometry.max_transfer_bytes).min(by_memory).min(by_host);
        let unit = u64::from(self.geometry.block_bytes).max(PAGE_BYTES as u64);
        self.geometry.max_transfer_bytes = (most - most % unit).max(unit) as u32;
    }
}

/// Returns the bytes that the namespace holds at the moment, as far as it keeps count.
pub(crate) fn used_bytes(answers: &Answers, namespace: &Namespace) -> u64 {
    u64_at(&answers.namespace, 16).saturating_mul(u64::from(namespace.geometry.block_bytes))
}

struct SectorFormat {
    metadata_bytes: u16,
    shift: u8,
}

fn sector_format(of_namespace: &[u8]) -> SectorFormat {
    // The low bits of the format's number, and two more for drives with more than sixteen formats.
    let formatted = of_namespace[26];
    let number = usize::from(formatted & 0xf | (formatted >> 1) & 0x30);
    let at = 128 + 4 * number;
    SectorFormat { metadata_bytes: u16_at(of_namespace, at), shift: of_namespace[at + 2] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    /// A drive of 1,000 sectors of 4 KiB in its second format, with all that is optional.
    fn answers() -> Answers {
        let (mut namespace, mut controller) = (Buffer::new(4096), Buffer::new(4096));
        namespace[0..8].copy_from_slice(&1000_u64.to_le_bytes());
        namespace[16..24].copy_from_slice(&10_u64.to_le_bytes());
        namespace[24] = 0b1_0010;
        namespace[26] = 1;
        namespace[36..38].copy_from_slice(&3_u16.to_le_bytes());
        namespace[68..70].copy_from_slice(&7_u16.to_le_bytes());
        namespace[130] = 9;
        namespace[134] = 12;
        controller[77] = 5;
        controller[520] = 0b1100;
        controller[525] = 1;
        controller[528] = 0;
        Answers { namespace, controller, cache_feature: Some(1) }
    }

    #[test]
    fn a_drive_is_taken_at_its_word() {
        let answers = answers();
        let namespace = Namespace::new(3, &answers).unwrap();
        let expected = Geometry {
            block_bytes: 4096,
            atomic_write_bytes: 4 * 4096,
            max_transfer_bytes: 32 * 4096,
            volatile_write_cache: true,
            discard_bytes: 8 * 4096,
            discard_zeroes: false,
        };
        assert_eq!(namespace, Namespace { id: 3, bytes: 1000 * 4096, geometry: expected, writes_zeroes: true });
        assert_eq!(used_bytes(&answers, &namespace), 10 * 4096);
    }

    #[test]
    fn a_cache_that_is_switched_off_needs_no_flush() {
        let mut answers = answers();
        answers.cache_feature = Some(0);
        assert!(!Namespace::new(1, &answers).unwrap().geometry.volatile_write_cache);
        answers.cache_feature = None;
        assert!(Namespace::new(1, &answers).unwrap().geometry.volatile_write_cache);
        answers.controller[525] = 0;
        assert!(!Namespace::new(1, &answers).unwrap().geometry.volatile_write_cache);
    }

    #[test]
    fn what_the_drive_does_not_have_is_not_offered() {
        let mut answers = answers();
        answers.controller[520] = 0;
        answers.namespace[24] = 0;
        answers.controller[77] = 0;
        let namespace = Namespace::new(1, &answers).unwrap();
        assert!(!namespace.writes_zeroes);
        let Geometry { discard_bytes, atomic_write_bytes, max_transfer_bytes, .. } = namespace.geometry;
        assert_eq!((discard_bytes, atomic_write_bytes, max_transfer_bytes), (0, 4096, 1 << 20));
    }

    #[test]
    fn a_transfer_fits_one_command_of_the_host() {
        let mut namespace = Namespace::new(1, &answers()).unwrap();
        for (kb, segments, expected) in
            [(Some(1 << 20), Some(127), 128 << 10), (Some(64), None, 64 << 10), (None, Some(1), 4096)]
        {
            namespace.geometry.max_transfer_bytes = 128 << 10;
            namespace.limit_transfer(kb, segments);
            assert_eq!(namespace.geometry.max_transfer_bytes, expected);
        }
    }

    #[test]
    fn any_answer_gives_a_usable_geometry_or_a_refusal() {
        let mut state = 1_u64;
        let mut used = 0;
        for _ in 0..20_000 {
            let mut answers = answers();
            for _ in 0..8 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let (of, at, value) = (state & 1, (state >> 1) as usize % 600, (state >> 32) as u8);
                let answer = if of == 0 { &mut answers.namespace } else { &mut answers.controller };
                answer[at] = value;
            }
            let Ok(mut namespace) = Namespace::new(1, &answers) else { continue };
            namespace.limit_transfer(Some(128), Some(127));
            let Geometry { block_bytes, max_transfer_bytes, discard_bytes, .. } = namespace.geometry;
            assert!(block_bytes.is_power_of_two());
            assert!(max_transfer_bytes >= block_bytes && max_transfer_bytes.is_multiple_of(block_bytes));
            assert!(discard_bytes == 0 || discard_bytes >= block_bytes);
            assert!(namespace.bytes.is_multiple_of(u64::from(block_bytes)));
            used += 1;
        }
        assert!(used > 1000);
    }

    #[test]
    fn sectors_that_cannot_be_used_are_refused_with_the_reason() {
        let mut answers = answers();
        answers.namespace[132] = 8;
        let error = Namespace::new(1, &answers).unwrap_err();
        assert!(error.to_string().contains("8 bytes of metadata"), "{error}");
        answers.namespace[132] = 0;
        answers.namespace[134] = 0;
        assert!(Namespace::new(1, &answers).unwrap_err().to_string().contains("2^0 bytes"));
    }
}
