//! What a node says of itself in numbers: the answer to `GetMetrics`.
//!
//! | bytes | what |
//! |---|---|
//! | u32 | length of all that follows |
//! | u16, u16, then the value | a metric's flag, its length, and its value; again for each metric |
//! | u32 | CRC-32C of everything before it |
//!
//! Integers are little-endian. A reader passes over flags that it does not know. A service of the node may answer `GetMetrics` instead.

/// Flags of metrics; each value is a u64.
pub(super) mod flag {
    /// Requests that wait for a thread.
    pub(in crate::daemon) const REQUESTS_WAITING: u16 = 0x101;
    /// Requests that a thread works on.
    pub(in crate::daemon) const REQUESTS_RUNNING: u16 = 0x102;
    /// Open connections.
    pub(in crate::daemon) const CONNECTIONS: u16 = 0x103;
    /// Open stores.
    pub(in crate::daemon) const STORES: u16 = 0x104;
    /// Clients of all stores, also those that have lost their connection a short while ago.
    pub(in crate::daemon) const CLIENTS: u16 = 0x105;
    /// Milliseconds since the daemon started.
    pub(in crate::daemon) const UPTIME_MS: u16 = 0x106;
}

/// A metric message.
pub(super) fn message(metrics: &[(u16, u64)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (flag, value) in metrics {
        body.extend_from_slice(&flag.to_le_bytes());
        body.extend_from_slice(&8_u16.to_le_bytes());
        body.extend_from_slice(&value.to_le_bytes());
    }
    let mut message = (body.len() as u32 + 4).to_le_bytes().to_vec();
    message.extend(body);
    let checksum = crc32c::crc32c(&message);
    message.extend_from_slice(&checksum.to_le_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_bytes_of_its_page() {
        let message = message(&[(flag::CONNECTIONS, 2)]);
        let (front, checksum) = message.split_at(message.len() - 4);
        assert_eq!(front, [16, 0, 0, 0, 3, 1, 8, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(checksum, crc32c::crc32c(front).to_le_bytes());
    }
}
