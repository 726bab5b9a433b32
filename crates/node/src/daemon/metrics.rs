//! A node's numbers of itself: the answer to `GetMetrics`, a metric message (`docs/formats/metrics.md`).
//!
//! The flags are a node's own, behind those of measures. So a collector of measures passes over them.

use situ_compaction::NODE_FLAGS;

/// A figure of a node; each value is a u64. The numbers are in `docs/formats/metrics.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Figure {
    /// Requests that wait for a thread.
    RequestsWaiting = NODE_FLAGS + 1,
    /// Requests that a thread works on.
    RequestsRunning,
    /// Open connections.
    Connections,
    /// Open stores.
    Stores,
    /// Clients of all stores, also those that have lost their connection a short while ago.
    Clients,
    /// Milliseconds since the daemon started.
    UptimeMs,
}

/// A metric message.
pub(super) fn message(figures: &[(Figure, u64)]) -> Vec<u8> {
    let value = |(figure, value): &(Figure, u64)| (*figure as u16, value.to_le_bytes().to_vec());
    situ_compaction::encode_values(figures.iter().map(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_compaction::decode_measures;

    /// The bytes of the example in `docs/formats/metrics.md`.
    #[test]
    fn a_message_has_the_bytes_of_its_page_and_no_measures() {
        let page = include_str!("../../../../docs/formats/metrics.md");
        let example = page.split("### Figures of a node").nth(1).and_then(|rest| rest.split("```").nth(1)).unwrap();
        let hex = example.lines().skip(1).filter_map(|line| line.split("  ").next()).flat_map(str::split_whitespace);
        let bytes: Vec<u8> = hex.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        let message = message(&[(Figure::Connections, 2), (Figure::UptimeMs, 1000)]);
        assert_eq!(message, bytes);
        assert_eq!(decode_measures(&message).unwrap(), []);
    }

    /// Each row of the page's table names the figure of its flag.
    #[test]
    fn the_page_has_all_flags() {
        let page = include_str!("../../../../docs/formats/metrics.md");
        let figures = [
            (Figure::RequestsWaiting, "requests that wait"),
            (Figure::RequestsRunning, "requests that a thread"),
            (Figure::Connections, "open connections"),
            (Figure::Stores, "open stores"),
            (Figure::Clients, "clients"),
            (Figure::UptimeMs, "milliseconds"),
        ];
        for (figure, text) in figures {
            assert!(page.contains(&format!("| {} | {text}", figure as u16)), "{figure:?}");
        }
    }
}
