//! Checking a whole store: every bucket, every entry of the overflow, and the counts.
//!
//! All pending writes are applied first. Then the gate is closed until the check has ended: so the totals and what is found can be
//! compared. Readers go on; writers go on until pending writes take as much memory as they may.
//!
//! What is checked: each bucket has the checksum of its contents, and the number of its place. Each entry lies in the bucket of its hash,
//! and once. A mark says how many entries of the bucket the overflow has. The totals are the sums of what buckets say.

use crate::Result;
use crate::address::{State, hash_of};
use crate::collect::pointer_of;
use crate::core::{Core, Sums};
use crate::entry::Entry;
use crate::io::BUCKETS_MAX;
use crate::rewrite::decode_all;
use crate::store::HashStore;
use crate::superblock::Totals;

/// Damages that a report names; more are counted.
const DAMAGES_MAX: usize = 64;

/// What a check has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HashReport {
    /// Buckets that were read.
    pub buckets: u64,
    /// What these hold, with their overflow.
    pub totals: Totals,
    /// Entries that lie in the overflow and count for nothing: what a crash has left. They take room, and do no harm.
    pub dead_overflow_entries: u64,
    /// What the live values in the value log take there.
    pub value_bytes: u64,
    /// How much damage was found.
    pub damage_count: u64,
    /// The first damages, in words.
    pub damages: Vec<String>,
    /// Damage that was there when the store was opened, and was mended then: what a crash leaves, or a disk that is in doubt.
    pub mended: Vec<String>,
}

impl HashReport {
    /// Whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.damage_count == 0
    }

    fn damage(&mut self, text: impl FnOnce() -> String) {
        self.damage_count += 1;
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(text());
        }
    }
}

impl HashStore {
    /// Checks every bucket and every entry. The result says what is damaged.
    ///
    /// # Errors
    /// The store is closed or has failed, or the device cannot be read. Damage is no error here.
    pub fn verify(&self) -> Result<HashReport> {
        let core = &self.inner.core;
        core.check_open()?;
        core.wait_applied(core.writes.visible())?;
        let _closed = core.gate.close();
        let mut report = core.verify()?;
        core.verify_superblock(&mut report)?;
        Ok(report)
    }
}

impl Core {
    fn verify(&self) -> Result<HashReport> {
        let state = self.state();
        let mut report = HashReport::default();
        let mut sums = Sums::default();
        let numbers: Vec<u64> = (0..BUCKETS_MAX as u64).collect();
        let mut first = 0;
        while first < state.buckets() {
            let numbers: Vec<u64> =
                numbers.iter().map(|number| number + first).take_while(|number| *number < state.buckets()).collect();
            let blocks = self.io.read_many(&numbers)?;
            for (number, block) in numbers.iter().zip(&blocks) {
                self.verify_bucket(*number, block, &state, &mut sums, &mut report)?;
            }
            self.io.give_back(blocks);
            first += numbers.len() as u64;
        }
        report.buckets = state.buckets();
        report.totals = sums.to_totals();
        self.verify_overflow(&mut report)?;
        let expected = self.totals();
        if expected != report.totals {
            let found = report.totals;
            report.damage(|| format!("the totals are {expected:?}, and the buckets have {found:?}"));
        }
        Ok(report)
    }

    fn verify_superblock(&self, report: &mut HashReport) -> Result<()> {
        for damage in self.superblock.check_slots()? {
            report.damage(|| format!("a slot of the superblock is damaged: {damage}"));
        }
        report
            .mended
            .extend(self.superblock.damage().map(|damage| format!("a slot of the superblock was damaged: {damage}")));
        Ok(())
    }

    fn verify_bucket(
        &self,
        number: u64,
        block: &[u8],
        state: &State,
        sums: &mut Sums,
        report: &mut HashReport,
    ) -> Result<()> {
        let bucket = match self.codec.open(number, block) {
            Ok(bucket) => bucket,
            Err(error) if error.is_corruption() => {
                report.damage(|| error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let header = bucket.header();
        sums.plus(&header.now);
        let entries: Vec<_> = bucket.entries().collect();
        for (at, entry) in entries.iter().enumerate() {
            let home = state.bucket_of(hash_of(entry.key, self.seed));
            if home != number {
                report.damage(|| format!("bucket {number} has an entry of bucket {home}"));
            }
            if entries[..at].iter().any(|other| other.key == entry.key) {
                report.damage(|| format!("bucket {number} has a key twice"));
            }
        }
        let stored = self.marked_overflow(number, state, header)?;
        let overflow = decode_all(self, &stored)?;
        let is_shadowed = |key: &[u8]| entries.iter().any(|other| other.key == key);
        let alive: Vec<_> = overflow.iter().map(|(_, entry)| entry).filter(|entry| !is_shadowed(entry.key)).collect();
        for entry in entries.iter().chain(alive.iter().copied()) {
            self.verify_value(number, entry, report)?;
        }
        let alive = alive.len();
        if alive != header.now.overflow_entries as usize {
            let marked = header.now.overflow_entries;
            report.damage(|| format!("bucket {number} says {marked} entries of it overflow, and {alive} do"));
        }
        Ok(())
    }

    /// A value in the value log can be read.
    fn verify_value(&self, number: u64, entry: &Entry<'_>, report: &mut HashReport) -> Result<()> {
        let Some(handle) = pointer_of(entry)? else { return Ok(()) };
        report.value_bytes += handle.footprint();
        if let Err(error) = self.large.log.read(&handle, entry.key) {
            report.damage(|| format!("a value of bucket {number} cannot be read: {error}"));
        }
        Ok(())
    }

    fn verify_overflow(&self, report: &mut HashReport) -> Result<()> {
        let mut found = 0;
        for pair in self.overflow.all()? {
            let pair = pair?;
            let (hash, entry) = self.overflow.decode(&pair)?;
            if hash != hash_of(entry.key, self.seed) {
                report.damage(|| "an entry of the overflow has the hash of another key".to_owned());
            }
            found += 1;
        }
        report.dead_overflow_entries = u64::saturating_sub(found, report.totals.overflow_entries);
        if found < report.totals.overflow_entries {
            let expected = report.totals.overflow_entries;
            report.damage(|| format!("the overflow has {found} entries of {expected}"));
        }
        Ok(())
    }
}
