//! An owner as small as can be: a map from keys to handles, over a value log that is trimmed and collected.

use situ_base::Env;
use situ_sim::Rng;
use situ_storage::{Error, Result, Volume};
use situ_values::{Handle, KnownSegment, Moved, Options, Owner, Phase, ValueLog, ValueWriter, Walked, numbers_from};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a value of a key is at its `version`: any length, compressible or not, and zeros like those that trimming leaves.
pub(crate) fn value(key: u64, version: u64, longest: u64) -> Vec<u8> {
    let mut rng = Rng::new(key.wrapping_mul(1_000_003).wrapping_add(version));
    let mut value = vec![0; rng.below(longest) as usize];
    if !rng.chance(0.2) {
        rng.fill(&mut value);
    }
    value
}

pub(crate) fn key_bytes(key: u64) -> Vec<u8> {
    format!("{key:08}").into_bytes()
}

/// A map whose values lie in a log.
pub(crate) struct Map {
    pub(crate) log: Arc<ValueLog>,
    pub(crate) writer: ValueWriter,
    /// The key's version, and where it lies.
    pub(crate) live: BTreeMap<u64, (u64, Handle)>,
    pub(crate) longest: u64,
    /// Every segment that was ever written to and not removed, with what was synced.
    pub(crate) known: BTreeMap<u64, u64>,
}

impl Map {
    pub(crate) fn new(log: Arc<ValueLog>, longest: u64) -> Map {
        let writer = log.writer();
        Map { log, writer, live: BTreeMap::new(), longest, known: BTreeMap::new() }
    }

    /// Writes a batch, syncs it, and tells of what died.
    pub(crate) fn put(&mut self, batch: &[(u64, u64)]) -> Result<()> {
        let mut handles = Vec::new();
        for (key, version) in batch {
            let value = value(*key, *version, self.longest);
            handles.push(self.writer.append(*key, &key_bytes(*key), &value)?);
        }
        for written in self.writer.sync()? {
            *self.known.entry(written.segment).or_default() += written.record_bytes;
        }
        for ((key, version), handle) in batch.iter().zip(handles) {
            if let Some((_, old)) = self.live.insert(*key, (*version, handle)) {
                self.log.died(old.segment, &[old])?;
            }
        }
        Ok(())
    }

    pub(crate) fn delete(&mut self, key: u64) -> Result<()> {
        match self.live.remove(&key) {
            Some((_, old)) => self.log.died(old.segment, &[old]),
            None => Ok(()),
        }
    }

    pub(crate) fn check(&self, key: u64) {
        let Some((version, handle)) = self.live.get(&key) else { return };
        let expected = value(key, *version, self.longest);
        let found = self.log.read(handle, &key_bytes(key));
        assert_eq!(found.unwrap_or_else(|e| panic!("key {key}: {e}")).into_vec(), expected, "key {key}");
    }

    /// Collects one segment, if one is due; true if one was.
    pub(crate) fn collect(&mut self) -> Result<bool> {
        let Some(victim) = self.log.victim() else { return Ok(false) };
        let mut writer = self.log.collecting_writer();
        let (live, known) = (&mut self.live, &mut self.known);
        self.log.collect(victim.number, &mut writer, &mut Keeper { live, known })?;
        for written in writer.finish()? {
            *known.entry(written.segment).or_default() += written.record_bytes;
        }
        assert!(self.live.values().all(|(_, handle)| handle.segment != victim.number));
        // The owner forgets the segment first: a crash then leaves an orphan, and never a hole.
        self.known.remove(&victim.number);
        self.log.remove(victim.number)?;
        Ok(true)
    }

    pub(crate) fn known(&self) -> Vec<KnownSegment> {
        let known = |(number, record_bytes): (&u64, &u64)| KnownSegment {
            number: *number,
            record_bytes: *record_bytes,
            ..KnownSegment::default()
        };
        self.known.iter().map(known).collect()
    }
}

pub(crate) struct Keeper<'a> {
    pub(crate) live: &'a mut BTreeMap<u64, (u64, Handle)>,
    pub(crate) known: &'a mut BTreeMap<u64, u64>,
}

impl Owner for Keeper<'_> {
    fn is_live(&mut self, record: &Walked<'_>) -> Result<bool> {
        let key: u64 = std::str::from_utf8(record.key).ok().and_then(|key| key.parse().ok()).expect("a key of the map");
        assert_eq!(record.tag, key);
        Ok(self.live.get(&key).is_some_and(|(_, handle)| *handle == record.handle))
    }

    fn moved(&mut self, moved: &[Moved]) -> Result<()> {
        for moved in moved {
            let entry = self.live.get_mut(&moved.tag).ok_or_else(|| Error::Invalid("moved a dead key".into()))?;
            assert_eq!(entry.1, moved.from);
            entry.1 = moved.to;
            self.known.entry(moved.to.segment).or_default();
        }
        Ok(())
    }
}

/// Random work on a map, checked all the time; returns the map.
pub(crate) fn run(volume: Arc<dyn Volume>, env: &Env, options: Options, longest: u64, seed: u64, steps: u64) -> Map {
    let log = ValueLog::open(volume, env, options, numbers_from(1), &[]).unwrap();
    let mut map = Map::new(log, longest);
    let mut rng = Rng::new(seed);
    for step in 0..steps {
        match rng.below(10) {
            0..=5 => {
                let batch: BTreeMap<u64, u64> = (0..=rng.below(8)).map(|_| (rng.below(60), step)).collect();
                map.put(&batch.into_iter().collect::<Vec<_>>()).unwrap();
            }
            6 => map.delete(rng.below(60)).unwrap(),
            7 => while map.log.tidy().unwrap() {},
            8 => {
                map.collect().unwrap();
            }
            _ => map.check(rng.below(60)),
        }
    }
    (0..60).for_each(|key| map.check(key));
    map
}

mod tests {
    use super::*;
    use situ_sim::{FaultPlan, SimExecutor, SimVolume, for_each_seed};
    use situ_values::{Layout, Trim, Victims};

    fn options(rng: &mut Rng) -> Options {
        Options {
            segment_bytes: 32 << 10,
            trim: [Trim::Off, Trim::DiscardOnly, Trim::Full][rng.index(3)],
            layout: [Layout::Packed, Layout::OwnSectors][rng.index(2)],
            victims: [Victims::Garbage, Victims::Fifo, Victims::GarbageAndAge][rng.index(3)],
            zero_at_percent: [101, 150, 200][rng.index(3)],
            zero_above_percent: [100, 105][rng.index(2)],
            collect_above_percent: [110, 150][rng.index(2)],
            dead_ranges_bytes_max: [200, 64 << 20][rng.index(2)],
            open_segments_max: 2,
            ..Options::default()
        }
    }

    #[test]
    fn a_map_over_a_log_reads_what_it_wrote() {
        for_each_seed(1, 40, |seed| {
            let mut rng = Rng::new(seed);
            let (options, longest) = (options(&mut rng), [700, 3000, 9000][rng.index(3)]);
            let sim = SimExecutor::new(seed);
            sim.run(|| {
                let plan = FaultPlan::none();
                let plan = if rng.chance(0.3) { plan.without_discard() } else { plan };
                let volume = SimVolume::new(&sim.env(), plan, seed);
                let map = run(Arc::new(volume.clone()), &sim.env(), options.clone(), longest, seed, 120);
                let live: u64 = map.live.values().map(|(_, handle)| handle.footprint()).sum();
                assert_eq!(map.log.inflation().live_bytes, live, "live bytes are exact");
                let again = ValueLog::open(Arc::new(volume), &sim.env(), options, numbers_from(10_000), &map.known());
                let log = again.unwrap();
                assert!(log.damaged().is_empty());
                assert!(log.segments().iter().all(|segment| segment.phase == Phase::Sealed));
                let map = Map { writer: log.writer(), log, ..map };
                (0..60).for_each(|key| map.check(key));
            });
        });
    }

    /// Without an owner that collects, trimming alone brings the adjusted inflation down, and zeros are what lies in dead places.
    #[test]
    fn trimming_zeroes_the_dead_and_nothing_else() {
        let sim = SimExecutor::new(3);
        sim.run(|| {
            let volume = SimVolume::new(&sim.env(), FaultPlan::none(), 3);
            let options = Options {
                segment_bytes: 256 << 10,
                trim: Trim::Full,
                zero_at_percent: 101,
                zero_above_percent: 100,
                ..Options::default()
            };
            let log = ValueLog::open(Arc::new(volume.clone()), &sim.env(), options, numbers_from(1), &[]).unwrap();
            let mut writer = log.writer();
            let value = vec![0xab; 1990];
            let handles: Vec<Handle> =
                (0..100).map(|key| writer.append(key, &key_bytes(key), &value).unwrap()).collect();
            writer.finish().unwrap();
            let dead: Vec<Handle> = handles.iter().copied().filter(|h| h.offset % 3 != 0).collect();
            log.died(1, &dead).unwrap();
            while log.tidy().unwrap() {}
            let bytes = volume.contents(situ_storage::FileName::Values(1)).unwrap();
            for (key, handle) in (0..).zip(&handles) {
                let record = &bytes[handle.offset as usize..][..handle.bytes as usize];
                match dead.contains(handle) {
                    true => assert!(record.iter().all(|byte| *byte == 0), "{handle:?}"),
                    false => assert_eq!(*log.read(handle, &key_bytes(key)).unwrap(), *value),
                }
            }
            let info = &log.segments()[0];
            assert_eq!(info.trimmed_bytes, dead.iter().map(Handle::footprint).sum::<u64>());
            assert_eq!(log.inflation().adjusted_percent(), 100);
        });
    }
}
