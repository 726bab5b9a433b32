//! Status codes of completions, by the base and NVM command set specifications. The phase bit is not in them.

/// The bit that says that trying again does not help.
const FINAL: u16 = 1 << 14;

pub(super) const SUCCESS: u16 = 0;
pub(super) const INVALID_OPCODE: u16 = FINAL | 0x01;
pub(super) const INVALID_FIELD: u16 = FINAL | 0x02;
pub(super) const IDENTIFIER_CONFLICT: u16 = FINAL | 0x03;
pub(super) const DATA_TRANSFER: u16 = 0x04;
pub(super) const INTERNAL: u16 = FINAL | 0x06;
pub(super) const ABORTED: u16 = 0x07;
pub(super) const QUEUE_DELETED: u16 = 0x08;
pub(super) const INVALID_NAMESPACE: u16 = FINAL | 0x0b;
pub(super) const SEQUENCE: u16 = FINAL | 0x0c;
pub(super) const SGL_SEGMENT: u16 = FINAL | 0x0d;
pub(super) const SGL_LENGTH: u16 = FINAL | 0x0f;
pub(super) const SGL_TYPE: u16 = FINAL | 0x11;
pub(super) const PRP_OFFSET: u16 = FINAL | 0x13;
pub(super) const OUT_OF_RANGE: u16 = FINAL | 0x80;
pub(super) const CAPACITY: u16 = FINAL | 0x81;

pub(super) const COMPLETION_QUEUE_INVALID: u16 = FINAL | 0x100;
pub(super) const QUEUE_IDENTIFIER: u16 = FINAL | 0x101;
pub(super) const QUEUE_SIZE: u16 = FINAL | 0x102;
pub(super) const EVENTS_LIMIT: u16 = FINAL | 0x105;
pub(super) const INTERRUPT_VECTOR: u16 = FINAL | 0x108;
pub(super) const QUEUE_DELETION: u16 = FINAL | 0x10c;
pub(super) const NOT_SAVEABLE: u16 = FINAL | 0x10d;

pub(super) const WRITE_FAULT: u16 = FINAL | 0x280;
pub(super) const READ_ERROR: u16 = FINAL | 0x281;
pub(super) const COMPARE_FAILURE: u16 = FINAL | 0x285;
