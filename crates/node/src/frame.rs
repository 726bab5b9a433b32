//! Frames: what travels on a connection (`docs/formats/node-protocol.md`).
//!
//! A frame is a header of fixed length and a payload. The header has a checksum of its own, so that a receiver trusts
//! no length before it has checked it. The payload's checksum lies in the header.
//!
//! **Invariants.** A header that was encoded is decoded to the same header. **Failure.** Bytes that are no header are
//! an error that says which field was wrong. A receiver ends the connection then: after a bad header, the place of the
//! next one is unknown.

use crc32c::crc32c;
use situ_base::bytes::{u16_at, u32_at, u64_at};
use situ_storage::{Error, Result};

/// The first bytes of each frame.
pub const MAGIC: [u8; 4] = *b"SITN";
/// Length of the header.
pub const HEADER_BYTES: usize = 36;
/// The longest payload that a frame can have, whatever the two ends agree on.
pub const PAYLOAD_BYTES_LIMIT: u32 = 16 << 20;
/// The longest payload before the greeting is over.
pub const FIRST_PAYLOAD_BYTES: u32 = 64 << 10;
/// The number of bytes that each end may send in requests before the other end has granted more.
pub const FIRST_CREDIT_BYTES: u32 = 128 << 10;
/// The minimum cost of a request, in bytes of the credit.
pub const CHARGE_BYTES_MIN: u32 = 1024;

/// Places of the fields in a header.
pub mod place {
    /// The magic, 4 bytes.
    pub const MAGIC: usize = 0;
    /// The sender, 1 byte.
    pub const SIDE: usize = 4;
    /// Flags, 1 byte.
    pub const FLAGS: usize = 5;
    /// The operation, 2 bytes.
    pub const OPERATION: usize = 6;
    /// The payload's length, 4 bytes.
    pub const PAYLOAD_BYTES: usize = 8;
    /// The time for which the caller waits for the answer, 4 bytes.
    pub const TIMEOUT_MS: usize = 12;
    /// The request, 8 bytes.
    pub const REQUEST: usize = 16;
    /// Credit for the receiver, 4 bytes.
    pub const GRANT: usize = 24;
    /// CRC-32C of the payload, 4 bytes.
    pub const PAYLOAD_CRC: usize = 28;
    /// CRC-32C of the header before it, 4 bytes.
    pub const HEADER_CRC: usize = 32;
}

const _: () = {
    assert!(place::SIDE == place::MAGIC + MAGIC.len());
    assert!(place::FLAGS == place::SIDE + 1);
    assert!(place::OPERATION == place::FLAGS + 1);
    assert!(place::PAYLOAD_BYTES == place::OPERATION + 2);
    assert!(place::TIMEOUT_MS == place::PAYLOAD_BYTES + 4);
    assert!(place::REQUEST == place::TIMEOUT_MS + 4 && place::REQUEST.is_multiple_of(8));
    assert!(place::GRANT == place::REQUEST + 8);
    assert!(place::PAYLOAD_CRC == place::GRANT + 4);
    assert!(place::HEADER_CRC == place::PAYLOAD_CRC + 4);
    assert!(HEADER_BYTES == place::HEADER_CRC + 4);
    assert!(FIRST_CREDIT_BYTES >= 2 * (FIRST_PAYLOAD_BYTES + HEADER_BYTES as u32) - 128);
};

/// Flags of a frame.
pub mod flag {
    /// The frame answers the request with its number.
    pub const ANSWER: u8 = 1;
    /// The answer is an error: the payload says which.
    pub const ERROR: u8 = 2;
    /// The caller waits for no answer, and none is sent.
    pub const ONE_WAY: u8 = 4;
}

/// The sender of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The machine that runs the store; it connects.
    Host,
    /// The node; it listens.
    Device,
}

impl Side {
    /// Returns the byte of this side in a header.
    pub fn code(self) -> u8 {
        match self {
            Side::Host => 0x00,
            Side::Device => 0x01,
        }
    }

    /// Returns the other end.
    pub fn other(self) -> Side {
        match self {
            Side::Host => Side::Device,
            Side::Device => Side::Host,
        }
    }

    fn of(code: u8) -> Option<Side> {
        [Side::Host, Side::Device].into_iter().find(|side| side.code() == code)
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The sender of the frame.
    pub side: Side,
    /// See [`flag`].
    pub flags: u8,
    /// The operation that is asked for, or that is answered; see [`Operation`](crate::Operation).
    pub operation: u16,
    /// Length of the payload.
    pub payload_bytes: u32,
    /// The time for which the caller waits for the answer; 0 for no bound, and in answers.
    pub timeout_ms: u32,
    /// Names the request; the answer has the same number. Each end counts its own requests. 0 for a one-way frame.
    pub request: u64,
    /// By how much the receiver's credit grows.
    pub grant: u32,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
}

impl Header {
    /// Returns true if a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Encodes the header as bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(place::MAGIC, &MAGIC);
        put(place::SIDE, &[self.side.code()]);
        put(place::FLAGS, &[self.flags]);
        put(place::OPERATION, &self.operation.to_le_bytes());
        put(place::PAYLOAD_BYTES, &self.payload_bytes.to_le_bytes());
        put(place::TIMEOUT_MS, &self.timeout_ms.to_le_bytes());
        put(place::REQUEST, &self.request.to_le_bytes());
        put(place::GRANT, &self.grant.to_le_bytes());
        put(place::PAYLOAD_CRC, &self.payload_crc.to_le_bytes());
        let crc = crc32c(&bytes[..place::HEADER_CRC]);
        bytes[place::HEADER_CRC..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the header in `bytes`.
    ///
    /// # Errors
    /// [`Corruption`](Error::Corruption): the bytes are no header, or break a rule.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header> {
        let magic = &bytes[place::MAGIC..][..MAGIC.len()];
        if magic != MAGIC {
            return Err(broken(place::MAGIC, "magic", MAGIC.escape_ascii(), magic.escape_ascii()));
        }
        let (expected, found) = (crc32c(&bytes[..place::HEADER_CRC]), u32_at(bytes, place::HEADER_CRC));
        if expected != found {
            let hex = |crc: u32| format!("{crc:08x}");
            return Err(broken(place::HEADER_CRC, "header checksum", hex(expected), hex(found)));
        }
        let code = bytes[place::SIDE];
        let side = Side::of(code).ok_or_else(|| broken(place::SIDE, "type", "0 or 1", code))?;
        let header = Header {
            side,
            flags: bytes[place::FLAGS],
            operation: u16_at(bytes, place::OPERATION),
            payload_bytes: u32_at(bytes, place::PAYLOAD_BYTES),
            timeout_ms: u32_at(bytes, place::TIMEOUT_MS),
            request: u64_at(bytes, place::REQUEST),
            grant: u32_at(bytes, place::GRANT),
            payload_crc: u32_at(bytes, place::PAYLOAD_CRC),
        };
        header.check()?;
        Ok(header)
    }

    /// The rules that tie fields together.
    fn check(&self) -> Result<()> {
        let known = [0, flag::ANSWER, flag::ANSWER | flag::ERROR, flag::ONE_WAY];
        if !known.contains(&self.flags) {
            return Err(broken(place::FLAGS, "flags", "flags that go together", format!("{:#x}", self.flags)));
        }
        if self.has(flag::ONE_WAY) != (self.request == 0) {
            return Err(broken(place::REQUEST, "request number", "0 in a one-way frame only", self.request));
        }
        if self.payload_bytes > PAYLOAD_BYTES_LIMIT {
            let expected = format!("{PAYLOAD_BYTES_LIMIT} bytes at most");
            return Err(broken(place::PAYLOAD_BYTES, "payload length", expected, self.payload_bytes));
        }
        Ok(())
    }

    /// Checks that `payload` is the payload that the header's sender sent.
    ///
    /// # Errors
    /// [`Corruption`](Error::Corruption): the checksum says that it is not.
    pub fn check_payload(&self, payload: &[u8]) -> Result<()> {
        match crc32c(payload) {
            crc if crc == self.payload_crc => Ok(()),
            crc => {
                let (expected, found) = (format!("{:08x}", self.payload_crc), format!("{crc:08x}"));
                Err(broken(HEADER_BYTES, "payload checksum", expected, found))
            }
        }
    }
}

/// Returns the cost of a request of this payload, in bytes of the credit. The receiver gives it back with the answer.
pub fn charge(payload_bytes: usize) -> u32 {
    let frame = payload_bytes.saturating_add(HEADER_BYTES);
    u32::try_from(frame).unwrap_or(u32::MAX).max(CHARGE_BYTES_MIN)
}

fn broken(at: usize, what: &str, expected: impl std::fmt::Display, found: impl std::fmt::Display) -> Error {
    Error::corruption("a frame of a node's connection", at as u64, what, expected, found)
}

#[cfg(test)]
mod tests;
