//! A slot of the index: what the index knows of an item, in 12 bytes.
//!
//! ```text
//! bits  field
//!   44  hash     a part of the key's hash; it also says in which buckets of its shard the slot may lie
//!   22  segment  which segment the item lies in
//!   18  offset   where in the segment, in units of 4 bytes
//!    2  tier     1 small queue, 2 main queue, 3 flash; 0: the slot is free
//!    2  frequency  reads since the item came to its queue, 3 at most
//!    8  length   on flash: about how long its record is (LengthClass), so that one read gets all of it; in memory: 1 if the slot on flash of
//!                the same hash is a copy of the item, otherwise 0
//! ```
//!
//! **Collisions.** A key that does not exist meets a slot of another key with equal hash. A look-up compares at most
//! ten slots (two buckets), and up to 10 bits of the hash follow from the bucket. So it happens in fewer than 10 of
//! 2^34 look-ups. Then the key itself is compared.

/// Bits of the hash in a slot.
pub(crate) const HASH_BITS: u32 = 44;
const SEGMENT_BITS: u32 = 22;
const OFFSET_BITS: u32 = 18;
/// Items begin at multiples of this in their segment.
pub(crate) const ALIGN: usize = 4;
/// Segments that slots can name.
pub(crate) const SEGMENTS_MAX: usize = 1 << SEGMENT_BITS;
/// Items begin below this in their segment.
pub(crate) const OFFSETS_END: usize = ALIGN << OFFSET_BITS;
/// The greatest frequency.
pub(crate) const FREQUENCY_MAX: u8 = 3;

/// The place of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    /// The offset in bytes; a multiple of [`ALIGN`].
    pub(crate) offset: u32,
}

/// The tier that holds an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    /// Memory: items that are on probation.
    Small,
    /// Memory: items that have been read, or were missed after they had gone.
    Main,
    /// The log on flash.
    Flash,
}

impl Tier {
    /// Returns true if the item lies in memory, where its key can be compared.
    pub(crate) fn is_memory(self) -> bool {
        self != Tier::Flash
    }
}

/// A length in 8 bits: 5 of an exponent, 3 of a mantissa, rounded up by an eighth at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LengthClass(u8);

impl LengthClass {
    /// The class of a slot in memory whose item has a copy on flash.
    pub(crate) const COPIED: LengthClass = LengthClass(1);
    const UNIT: usize = 16;

    /// Returns the least class that `bytes` bytes fit.
    pub(crate) fn of(bytes: usize) -> LengthClass {
        let units = bytes.div_ceil(LengthClass::UNIT);
        if units < 8 {
            return LengthClass(units as u8);
        }
        let shift = units.ilog2() - 3;
        let mantissa = units.div_ceil(1 << shift);
        LengthClass((8 * (shift as usize + 1) + mantissa - 8).min(usize::from(u8::MAX)) as u8)
    }

    /// Returns the most bytes of the class.
    pub(crate) fn bytes_max(self) -> usize {
        let class = usize::from(self.0);
        let units = if class < 8 { class } else { (8 + class % 8) << (class / 8 - 1) };
        units * LengthClass::UNIT
    }
}

/// A slot of the index: see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) hash: u64,
    pub(crate) place: Place,
    pub(crate) tier: Tier,
    pub(crate) frequency: u8,
    pub(crate) length: LengthClass,
}

/// A slot as it lies in a bucket; all zeros if it is free.
pub(crate) type PackedSlot = [u32; 3];

const FREE: PackedSlot = [0; 3];

impl Slot {
    /// Returns true if the item is in memory and the slot on flash of the same hash is a copy of it.
    pub(crate) fn is_copied(&self) -> bool {
        self.tier.is_memory() && self.length == LengthClass::COPIED
    }

    pub(crate) fn pack(&self) -> PackedSlot {
        debug_assert!(self.hash < 1 << HASH_BITS && (self.place.segment as usize) < SEGMENTS_MAX);
        debug_assert!((self.place.offset as usize) < OFFSETS_END && (self.place.offset as usize).is_multiple_of(ALIGN));
        let tier = match self.tier {
            Tier::Small => 1,
            Tier::Main => 2,
            Tier::Flash => 3,
        };
        let place = (u64::from(self.place.segment) << OFFSET_BITS) | (u64::from(self.place.offset) / ALIGN as u64);
        let all = u128::from(self.hash)
            | u128::from(place) << HASH_BITS
            | (tier | u128::from(self.frequency.min(FREQUENCY_MAX)) << 2 | u128::from(self.length.0) << 4) << TIER_AT;
        [all as u32, (all >> 32) as u32, (all >> 64) as u32]
    }

    /// Unpacks a slot. `None` if the slot is free.
    pub(crate) fn unpack(packed: PackedSlot) -> Option<Slot> {
        let all = u128::from(packed[0]) | u128::from(packed[1]) << 32 | u128::from(packed[2]) << 64;
        let rest = (all >> TIER_AT) as u32;
        let tier = match rest & 3 {
            1 => Tier::Small,
            2 => Tier::Main,
            3 => Tier::Flash,
            _ => return None,
        };
        let place = (all >> HASH_BITS) as u64;
        Some(Slot {
            hash: hash_of(packed),
            place: Place {
                segment: (place >> OFFSET_BITS) as u32 & (SEGMENTS_MAX as u32 - 1),
                offset: (place as u32 & ((1 << OFFSET_BITS) - 1)) * ALIGN as u32,
            },
            tier,
            frequency: (rest >> 2) as u8 & FREQUENCY_MAX,
            length: LengthClass((rest >> 4) as u8),
        })
    }
}

const TIER_AT: u32 = HASH_BITS + SEGMENT_BITS + OFFSET_BITS;
const _: () = assert!(TIER_AT + 2 + 2 + 8 == 96);

/// Returns true if nothing is in the slot.
pub(crate) fn is_free(packed: PackedSlot) -> bool {
    packed == FREE
}

/// Returns the hash of a slot that is not free.
pub(crate) fn hash_of(packed: PackedSlot) -> u64 {
    (u64::from(packed[0]) | u64::from(packed[1]) << 32) & ((1 << HASH_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_slot_comes_back_as_it_was(
            hash in 0..1u64 << HASH_BITS,
            segment in 0..SEGMENTS_MAX as u32,
            offset in 0..1u32 << OFFSET_BITS,
            tier in 0..3usize,
            frequency in 0..=FREQUENCY_MAX,
            length in any::<u8>(),
        ) {
            let tier = [Tier::Small, Tier::Main, Tier::Flash][tier];
            let place = Place { segment, offset: offset * ALIGN as u32 };
            let slot = Slot { hash, place, tier, frequency, length: LengthClass(length) };
            let packed = slot.pack();
            prop_assert!(!is_free(packed));
            prop_assert_eq!(hash_of(packed), hash);
            prop_assert_eq!(Slot::unpack(packed), Some(slot));
        }

        #[test]
        fn a_class_has_room_for_its_lengths_and_little_more(bytes in prop_oneof![0..2000usize, 0..(2usize << 30)]) {
            let most = LengthClass::of(bytes).bytes_max();
            prop_assert!(most >= bytes && most <= bytes + bytes / 8 + LengthClass::UNIT, "{most} for {bytes}");
            prop_assert_eq!(LengthClass::of(most).bytes_max(), most);
        }
    }

    #[test]
    fn a_free_slot_is_none() {
        assert!(is_free(FREE));
        assert_eq!(Slot::unpack(FREE), None);
    }
}
