//! Checking a whole store: every bucket, every entry of the overflow, and the counts.
//!
//! 1. All writes that were visible are applied.
//! 2. [`BUCKETS_MAX`] buckets are checked at a time, with the gate closed. Between two groups, workers and the keeper
//!    go on.
//! 3. A worker that changes a checked bucket adds the difference to the *sums behind the check* (`CheckUnderWay`). So
//!    in the end, what was found and these sums are the totals, whatever was written, split and merged meanwhile.
//! 4. The values in the value log of a group are read when the gate is open again. A value that cannot be read is
//!    damaged if its bucket still leads to it: otherwise it has died meanwhile.
//! 5. The overflow is read once. Entries beyond the marks are dead; while callers write, their number is an estimate.
//!
//! The check covers these claims: each bucket has the checksum of its contents, and the number of its place. Each entry
//! lies in the bucket of its hash, and once. A mark says how many entries of the bucket the overflow has. The totals
//! are the sums of what buckets say.

use crate::Result;
use crate::api::store::HashStore;
use crate::disk::io::BUCKETS_MAX;
use crate::format::address::{State, hash_of};
use crate::format::superblock::Totals;
use crate::live::collect::pointer_of;
use crate::live::core::{Core, Sums};
use crate::live::rewrite::decode_all;
use crate::opening::repair::HashRepair;
use situ_values::Handle;
use std::sync::atomic::Ordering;

/// Damages that a report names; more are counted.
const DAMAGES_MAX: usize = 64;

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HashReport {
    /// Buckets that were read.
    pub buckets: u64,
    /// The contents of these buckets, with their overflow.
    pub totals: Totals,
    /// Entries that lie in the overflow and count for nothing: what a crash has left. They take room, and do no harm.
    pub dead_overflow_entries: u64,
    /// The bytes that live values take in the value log.
    pub value_bytes: u64,
    /// The number of damages that were found.
    pub damage_count: u64,
    /// The first damages, in words.
    pub damages: Vec<String>,
    /// Damage that was there when the store was opened, and was mended then: what a crash leaves, or a disk that is in
    /// doubt.
    pub mended: Vec<String>,
}

impl HashReport {
    /// Returns true if nothing is damaged.
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
    /// Checks every bucket and every entry, while others read and write. The result says what is damaged. One check
    /// runs at a time.
    ///
    /// # Errors
    /// The store is closed, has failed or is out of space, or the device cannot be read. Damage is no error here.
    pub fn verify(&self) -> Result<HashReport> {
        self.check().map(|(report, _)| report)
    }

    /// Checks as [`verify`](HashStore::verify) does. Also returns the keys whose values in the value log cannot be
    /// read.
    pub(crate) fn check(&self) -> Result<(HashReport, Vec<Vec<u8>>)> {
        let core = &self.inner.core;
        core.check_open()?;
        core.wait_applied(core.writes.visible())?;
        let _turn = Turn::begin(core);
        let before = core.moment();
        let mut check = Check::default();
        while core.verify_next(&mut check)? {
            core.verify_values(&mut check)?;
        }
        let Check { mut report, lost, .. } = check;
        core.verify_overflow(&mut report, before)?;
        Ok((report, lost))
    }

    /// Does the last step of a repair.
    pub(crate) fn delete_lost_values(&self, report: &mut HashRepair) -> Result<()> {
        let (found, keys) = self.check()?;
        found.damages.iter().for_each(|damage| report.damage(damage));
        for key in &keys {
            self.delete(key)?;
        }
        report.lost_keys = keys;
        Ok(())
    }
}

/// The right to check; given back when it is dropped.
struct Turn<'a>(&'a Core);

impl Turn<'_> {
    /// Waits until no other check runs.
    fn begin(core: &Core) -> Turn<'_> {
        loop {
            let seen = core.writes.progress.generation();
            if !core.check.runs.swap(true, Ordering::AcqRel) {
                return Turn(core);
            }
            core.writes.progress.wait(seen, None);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.check.pass_to(0);
        self.0.check.runs.store(false, Ordering::Release);
        self.0.writes.progress.notify();
    }
}

/// A check under way.
#[derive(Default)]
struct Check {
    next: u64,
    sums: Sums,
    report: HashReport,
    /// Keys of the group that was checked last, and where their values lie.
    values: Vec<(Vec<u8>, Handle)>,
    /// Keys whose values cannot be read.
    lost: Vec<Vec<u8>>,
}

impl Core {
    /// Returns two numbers that change when something is written.
    fn moment(&self) -> (u64, u32) {
        (self.writes.visible(), self.epoch())
    }

    /// Checks the next buckets. False if there were none, and all is compared.
    fn verify_next(&self, check: &mut Check) -> Result<bool> {
        let _closed = self.close_gate_with_space()?;
        self.check_sound()?;
        if check.next == 0 {
            self.check.reset();
        }
        let state = self.state();
        let numbers: Vec<u64> = (check.next..state.buckets()).take(BUCKETS_MAX).collect();
        if numbers.is_empty() {
            self.verify_totals(check, &state);
            return self.verify_superblock(&mut check.report).map(|()| false);
        }
        let blocks = self.io.read_many(&numbers)?;
        for (number, block) in numbers.iter().zip(&blocks) {
            self.verify_bucket(*number, block, &state, check)?;
        }
        self.io.give_back(blocks);
        check.next += numbers.len() as u64;
        self.check.pass_to(check.next);
        Ok(true)
    }

    fn verify_totals(&self, check: &mut Check, state: &State) {
        let Check { sums, report, .. } = check;
        sums.add(&self.check.behind());
        report.buckets = state.buckets();
        report.totals = sums.to_totals();
        let (expected, found) = (self.totals(), report.totals);
        if expected != found {
            report.damage(|| expected.difference(&found));
        }
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

    fn verify_bucket(&self, number: u64, block: &[u8], state: &State, check: &mut Check) -> Result<()> {
        let Check { sums, report, values, .. } = check;
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
        if let Err(error) = self.require_age(number, header) {
            report.damage(|| error.to_string());
        }
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
            if let Some(handle) = pointer_of(entry)? {
                report.value_bytes += handle.footprint();
                values.push((entry.key.to_vec(), handle));
            }
        }
        let alive = alive.len();
        if alive != header.now.overflow_entries as usize {
            let marked = header.now.overflow_entries;
            report.damage(|| format!("bucket {number} says {marked} entries of it overflow, and {alive} do"));
        }
        Ok(())
    }

    /// Checks that the values of the last group can be read.
    fn verify_values(&self, check: &mut Check) -> Result<()> {
        for (key, handle) in check.values.drain(..) {
            let Err(error) = self.large.log.read(&handle, &key) else { continue };
            if self.still_leads_to(&key, &handle)? {
                let number = self.state().bucket_of(hash_of(&key, self.seed));
                check.report.damage(|| format!("a value of bucket {number} cannot be read: {error}"));
                check.lost.push(key);
            }
        }
        Ok(())
    }

    /// Returns true if the bucket of `key`, or the overflow, still has this handle.
    fn still_leads_to(&self, key: &[u8], handle: &Handle) -> Result<bool> {
        let _closed = self.close_gate_with_space()?;
        let state = self.state();
        let number = state.bucket_of(hash_of(key, self.seed));
        let blocks = self.io.read_many(&[number])?;
        // A bucket that is damaged now was sound when it led to the value.
        let Ok(bucket) = self.codec.open(number, &blocks[0]) else { return Ok(true) };
        let stored = self.marked_overflow(number, &state, bucket.header())?;
        let overflow = decode_all(self, &stored)?;
        let mut entries = bucket.entries().chain(overflow.iter().map(|(_, entry)| *entry));
        let entry = entries.find(|entry| entry.key == key);
        Ok(entry.map(|entry| pointer_of(&entry)).transpose()?.flatten() == Some(*handle))
    }

    /// Checks the overflow. `before` is the moment at which the check began.
    fn verify_overflow(&self, report: &mut HashReport, before: (u64, u32)) -> Result<()> {
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
        let nothing_was_written = self.moment() == before;
        if nothing_was_written && found < report.totals.overflow_entries {
            let expected = report.totals.overflow_entries;
            report.damage(|| format!("the overflow has {found} entries of {expected}"));
        }
        Ok(())
    }
}
