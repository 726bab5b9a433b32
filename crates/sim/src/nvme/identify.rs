//! The controller's and the namespaces' description of themselves. Offsets are those of the base and NVM command set
//! specifications ("Identify Controller", "Identify Namespace").

use super::admin::EVENTS_MAX;
use super::blocks::Namespace;
use super::command::Entry;
use super::registers::VERSION;
use super::{Shared, status};
use situ_device::PAGE_BYTES;

const ANSWER_BYTES: usize = 4096;

/// Returns the answer to an Identify command.
pub(super) fn answer(shared: &Shared, entry: &Entry) -> Result<Vec<u8>, u16> {
    let namespace = || {
        let number = (entry.namespace() as usize).checked_sub(1);
        number.and_then(|number| shared.namespaces.get(number)).ok_or(status::INVALID_NAMESPACE)
    };
    match entry.word(10) as u8 {
        0 => Ok(of_namespace(namespace()?)),
        1 => Ok(of_controller(shared)),
        2 if entry.namespace() >= u32::MAX - 1 => Err(status::INVALID_NAMESPACE),
        2 => Ok(active(shared, entry.namespace())),
        3 => namespace().map(|_| identifiers(shared, entry.namespace())),
        _ => Err(status::INVALID_FIELD),
    }
}

fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    into[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Writes text, padded with spaces.
fn put_text(into: &mut [u8], at: usize, bytes: usize, text: &str) {
    into[at..at + bytes].fill(b' ');
    let text = &text.as_bytes()[..text.len().min(bytes)];
    put(into, at, text);
}

fn of_controller(shared: &Shared) -> Vec<u8> {
    let config = &shared.config;
    let mut answer = vec![0; ANSWER_BYTES];
    put_text(&mut answer, 4, 20, &config.serial);
    put_text(&mut answer, 24, 40, &config.model);
    put_text(&mut answer, 64, 8, "1.0");
    answer[77] = config.transfer_shift;
    put(&mut answer, 80, &VERSION.to_le_bytes());
    let has_doorbells: u16 = if config.has_shadow_doorbells { 1 << 8 } else { 0 };
    put(&mut answer, 256, &has_doorbells.to_le_bytes());
    // Aborts and requests for events at a time count from zero.
    answer[258] = 3;
    answer[259] = EVENTS_MAX as u8 - 1;
    // Entries of 2^6 and 2^4 bytes, and no others.
    (answer[512], answer[513]) = (0x66, 0x44);
    put(&mut answer, 516, &(shared.namespaces.len() as u32).to_le_bytes());
    let optional =
        u16::from(config.has_compare) | u16::from(shared.can_discard()) << 2 | u16::from(config.has_write_zeroes) << 3;
    put(&mut answer, 520, &optional.to_le_bytes());
    // A flush of all namespaces is taken.
    answer[525] = u8::from(shared.has_cache()) | 0b110;
    let atomic = shared.namespaces.iter().map(atomic_blocks).min().unwrap_or(0);
    put(&mut answer, 526, &atomic.to_le_bytes());
    put(&mut answer, 528, &atomic.to_le_bytes());
    put(&mut answer, 536, &u32::from(config.has_lists).to_le_bytes());
    answer
}

/// Returns the blocks, less one, that a power failure does not tear.
fn atomic_blocks(namespace: &Namespace) -> u16 {
    let blocks = u64::from(namespace.geometry.atomic_write_bytes) / namespace.block();
    u16::try_from(blocks.saturating_sub(1)).unwrap_or(u16::MAX)
}

fn of_namespace(namespace: &Namespace) -> Vec<u8> {
    let mut answer = vec![0; ANSWER_BYTES];
    let used = namespace.device.space().logical_used / namespace.block();
    put(&mut answer, 0, &namespace.blocks.to_le_bytes());
    put(&mut answer, 8, &namespace.blocks.to_le_bytes());
    put(&mut answer, 16, &used.to_le_bytes());
    // It has an atomic unit of its own, and hints for writing and for giving back.
    answer[24] = 0b1_0010;
    let shift = namespace.block().trailing_zeros() as u8;
    let mut formats = vec![9, 12];
    if !formats.contains(&shift) {
        formats.push(shift);
    }
    answer[25] = formats.len() as u8 - 1;
    answer[26] = formats.iter().position(|format| *format == shift).unwrap_or(0) as u8;
    answer[33] = if namespace.geometry.discard_zeroes { 0b001 } else { 0 };
    put(&mut answer, 34, &atomic_blocks(namespace).to_le_bytes());
    put(&mut answer, 36, &atomic_blocks(namespace).to_le_bytes());
    let less_one = |bytes: u64| ((bytes / namespace.block()).saturating_sub(1) as u16).to_le_bytes();
    let (written, given_back) = (less_one(PAGE_BYTES as u64), less_one(u64::from(namespace.geometry.discard_bytes)));
    for (at, hint) in [(64, written), (66, written), (68, given_back), (70, given_back)] {
        put(&mut answer, at, &hint);
    }
    for (number, format) in formats.iter().enumerate() {
        answer[128 + 4 * number + 2] = *format;
    }
    answer
}

/// Returns the numbers of the namespaces above one.
fn active(shared: &Shared, above: u32) -> Vec<u8> {
    let mut answer = vec![0; ANSWER_BYTES];
    let last = shared.namespaces.len() as u32;
    for (place, number) in (above.saturating_add(1)..=last).take(ANSWER_BYTES / 4).enumerate() {
        put(&mut answer, 4 * place, &number.to_le_bytes());
    }
    answer
}

/// Returns the names of a namespace: a UUID made of the drive's serial number and its own number.
fn identifiers(shared: &Shared, namespace: u32) -> Vec<u8> {
    const UUID: u8 = 3;
    let mut answer = vec![0; ANSWER_BYTES];
    (answer[0], answer[1]) = (UUID, 16);
    put(&mut answer, 4, &crate::trace::hash_bytes(shared.config.serial.as_bytes()).to_le_bytes());
    put(&mut answer, 16, &namespace.to_le_bytes());
    answer
}
