//! Many sorted sources as one: a tournament tree of losers.
//!
//! 1. Each source is a leaf. Each inner node remembers the source that *lost* the match played there; the root's winner
//!    is the source that stands on the smallest internal key.
//! 2. To move on, the winner's source takes one step and plays again on its way from leaf to root: exactly one match a
//!    level, `log2(k)` in all, against losers that are already known. A binary heap needs two comparisons a level.
//! 3. A match compares the 8 bytes of the user key that follow the prefix which all keys of the merge share. They are
//!    kept as one big-endian integer next to the source's index. Only when they are equal are whole keys compared.
//!
//! **Invariants**: every source but the winner is a loser at exactly one node. A source that is used up loses against
//! every other. Equal internal keys cannot occur in a sound store; if they do, the source with the lower index (the
//! newer run) goes first, so that the order never depends on the tree's shape.
//!
//! **Failure**: an error of a source is returned once; the merge must be given up then.
//!
//! Rejected: `dyn Cursor` sources. A virtual call for each key, value and step costs more than the match.

use situ_storage::Result;
use situ_table::{Cursor, KeyRef, WarmBytes};

/// One sorted input of a merge.
pub trait Source {
    /// Returns true if the source stands on an entry.
    fn valid(&self) -> bool;
    /// Returns the entry's key. Must stand on an entry.
    fn key(&self) -> KeyRef<'_>;
    /// Returns the entry's value. Must stand on an entry.
    fn value(&self) -> &[u8];
    /// Moves one entry forward. Must stand on an entry.
    ///
    /// # Errors
    /// Reading failed, or what was read cannot belong here.
    fn next(&mut self) -> Result<()>;
    /// Returns the name of the file that the entry comes from, for errors.
    fn file(&self) -> String;
    /// Returns the number of bytes that the source has read, before the entry, of blocks that are warm in the cache.
    /// Asked once for each output block.
    fn warm_read(&self) -> WarmBytes {
        WarmBytes::default()
    }
}

/// Whatever knows how much it has read of blocks that are warm in the cache.
pub(crate) trait WarmReader {
    /// See [`Source::warm_read`].
    fn warm_read(&self) -> WarmBytes;
}

impl<S: Source> WarmReader for Merge<S> {
    fn warm_read(&self) -> WarmBytes {
        self.sources.iter().map(S::warm_read).sum()
    }
}

/// A cursor with a name is a source.
#[derive(Debug)]
pub struct Named<C> {
    /// The cursor, standing on its first entry.
    pub cursor: C,
    /// The cursor's name in errors.
    pub name: String,
}

impl<C: Cursor> Source for Named<C> {
    #[inline]
    fn valid(&self) -> bool {
        self.cursor.valid()
    }

    #[inline]
    fn key(&self) -> KeyRef<'_> {
        self.cursor.key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.cursor.next()
    }

    fn file(&self) -> String {
        self.name.clone()
    }
}

/// A source in the tournament, with what the next match needs of its key.
#[derive(Debug, Clone, Copy)]
struct Contender {
    prefix: u64,
    source: usize,
}

/// A forward merge over sources of one type.
#[derive(Debug)]
pub struct Merge<S> {
    sources: Vec<S>,
    /// `nodes[0]` is the winner; `nodes[1..]` are the losers, the children of node i being 2i and 2i + 1, and leaf s
    /// being node `sources.len() + s`.
    nodes: Vec<Contender>,
    shared_prefix_bytes: usize,
}

impl<S: Source> Merge<S> {
    /// Merges sources that stand on their first entry (or are used up). All keys must share their first
    /// `shared_prefix_bytes` bytes; 0 is always right, and the true number makes matches cheap for keys like
    /// `user0000001234`.
    pub fn new(sources: Vec<S>, shared_prefix_bytes: usize) -> Merge<S> {
        let mut merge = Merge { sources, nodes: Vec::new(), shared_prefix_bytes };
        let count = merge.sources.len();
        merge.nodes = vec![Contender { prefix: u64::MAX, source: 0 }; count.max(1)];
        // Winners of the subtrees, from the leaves (at count..) up to the root (at 1).
        let mut winners = vec![Contender { prefix: u64::MAX, source: 0 }; count];
        winners.extend((0..count).map(|source| merge.contender(source)));
        for node in (1..count).rev() {
            let (left, right) = (winners[2 * node], winners[2 * node + 1]);
            let right_wins = merge.beats(right, left);
            (winners[node], merge.nodes[node]) = if right_wins { (right, left) } else { (left, right) };
        }
        if let Some(winner) = winners.get(1) {
            merge.nodes[0] = *winner;
        }
        let mut at_nodes: Vec<usize> = merge.nodes.iter().map(|contender| contender.source).collect();
        at_nodes.sort_unstable();
        assert!(at_nodes.iter().copied().eq(0..count.max(1)), "each source is at one node: {at_nodes:?}");
        merge.check_winner();
        merge
    }

    /// Asserts that no source beats the winner.
    #[inline]
    fn check_winner(&self) {
        if cfg!(any(test, feature = "costly-checks")) {
            let winner = self.nodes[0];
            let loses = |source| source == winner.source || !self.beats(self.contender(source), winner);
            assert!((0..self.sources.len()).all(loses), "source {} has not the smallest key", winner.source);
        }
    }

    #[inline]
    fn contender(&self, source: usize) -> Contender {
        let cursor = &self.sources[source];
        let prefix = if cursor.valid() { prefix(cursor.key().user, self.shared_prefix_bytes) } else { u64::MAX };
        Contender { prefix, source }
    }

    #[inline]
    fn beats(&self, a: Contender, b: Contender) -> bool {
        if a.prefix != b.prefix { a.prefix < b.prefix } else { self.beats_by_whole_key(a.source, b.source) }
    }

    #[inline]
    fn beats_by_whole_key(&self, a: usize, b: usize) -> bool {
        let (left, right) = (&self.sources[a], &self.sources[b]);
        if !left.valid() || !right.valid() {
            return left.valid();
        }
        match left.key().cmp(&right.key()) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Equal => a < b,
        }
    }

    /// Returns true if the merge stands on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.sources.get(self.nodes[0].source).is_some_and(Source::valid)
    }

    /// The source that stands on the smallest key; `None` behind the last entry.
    #[inline]
    pub(crate) fn winner(&self) -> Option<&S> {
        self.sources.get(self.nodes[0].source).filter(|source| source.valid())
    }

    /// Returns the smallest key of all sources. Must stand on an entry.
    #[inline]
    pub fn key(&self) -> KeyRef<'_> {
        self.current().key()
    }

    /// Returns its value. Must stand on an entry.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.current().value()
    }

    /// Returns the source that the entry comes from. Must stand on an entry.
    #[inline]
    pub fn current(&self) -> &S {
        &self.sources[self.nodes[0].source]
    }

    /// Moves one entry forward. Must stand on an entry.
    ///
    /// # Errors
    /// The source's.
    #[inline]
    pub fn advance(&mut self) -> Result<()> {
        let source = self.nodes[0].source;
        self.sources[source].next()?;
        let mut winner = self.contender(source);
        let mut node = (self.sources.len() + source) / 2;
        while node > 0 {
            let loser = self.nodes[node];
            if self.beats(loser, winner) {
                self.nodes[node] = winner;
                winner = loser;
            }
            node /= 2;
        }
        self.nodes[0] = winner;
        self.check_winner();
        Ok(())
    }
}

/// The 8 bytes of `key` behind the first `skip`, as an integer that orders as they do; missing bytes count as zero.
#[inline]
fn prefix(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    if let Some(bytes) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    bytes[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests;
