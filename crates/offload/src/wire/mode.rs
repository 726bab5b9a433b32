//! Rules of modes and records of decisions as bytes: `docs/formats/metrics.md`. A host sends its rule with a task; the
//! unit elsewhere answers with the decision that it made by that rule.
//!
//! **Invariants.** What was encoded is decoded to the same values, and what is decoded is encoded to the same bytes.
//! Decoded rules have finite numbers, and bounds on threads and names. **Failure.** As for tasks.

use super::{In, Out};
use crate::decide::{DecisionRecord, Held, ReadInputs, Term};
use crate::mode::{DecisionRules, ModeRule};
use situ_compaction::{MEASURE_NAME_BYTES_MAX, ReadTail, RunMode};
use situ_storage::Result;
use std::time::Duration;

const RULE_MAGIC: &[u8; 8] = b"siturule";
const DECISION_MAGIC: &[u8; 8] = b"situwhys";
/// A run that comes from elsewhere has no more merging threads.
const MERGE_THREADS_MAX: u32 = 256;
/// A rule that comes from elsewhere has no more further measures.
const FURTHER_MAX: usize = 64;

impl ModeRule {
    /// Encodes the rule as bytes, for units elsewhere.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Out::begin(RULE_MAGIC);
        match self {
            ModeRule::Fixed(mode) => {
                out.u8(0);
                out.mode(*mode);
            }
            ModeRule::Decided(rules) => {
                out.u8(1);
                out.decision_rules(rules);
            }
        }
        out.seal()
    }

    /// Decodes the bytes that [`to_bytes`](ModeRule::to_bytes) gave.
    ///
    /// # Errors
    /// [`Corruption`](situ_storage::Error::Corruption): the bytes are not a rule, or one that no unit can follow.
    pub fn from_bytes(bytes: &[u8]) -> Result<ModeRule> {
        let mut fields = In::open(bytes, RULE_MAGIC, "mode rule")?;
        let rule = match fields.flag()? {
            false => ModeRule::Fixed(fields.mode()?),
            true => ModeRule::Decided(fields.decision_rules()?),
        };
        fields.end()?;
        Ok(rule)
    }
}

impl DecisionRecord {
    /// Encodes the record as bytes, for the answer of a unit elsewhere.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Out::begin(DECISION_MAGIC);
        out.u64(self.number);
        out.duration(self.at);
        out.u64(self.task);
        out.list(&self.terms, Out::term);
        [self.f, self.threshold, self.hysteresis].into_iter().for_each(|number| out.f64(number));
        out.duration(self.dwell_min);
        out.u8(u8::from(self.reads.is_some()));
        if let Some(ReadInputs { factor_max, with_pipelines, without_pipelines }) = &self.reads {
            out.f64(*factor_max);
            out.tail(with_pipelines.as_ref());
            out.tail(without_pipelines.as_ref());
        }
        out.mode(self.mode);
        out.u8(u8::from(self.is_changed));
        out.u8(match self.held {
            None => 0,
            Some(Held::Hysteresis) => 1,
            Some(Held::Dwell) => 2,
            Some(Held::Reads) => 3,
        });
        out.bytes(self.why.as_bytes());
        out.seal()
    }

    /// Decodes the bytes that [`to_bytes`](DecisionRecord::to_bytes) gave.
    ///
    /// # Errors
    /// [`Corruption`](situ_storage::Error::Corruption): the bytes are not a record.
    pub fn from_bytes(bytes: &[u8]) -> Result<DecisionRecord> {
        let mut fields = In::open(bytes, DECISION_MAGIC, "decision")?;
        let record = DecisionRecord {
            number: fields.u64()?,
            at: fields.duration()?,
            task: fields.u64()?,
            terms: fields.list("terms", 17, In::term)?,
            f: fields.finite("f")?,
            threshold: fields.finite("threshold")?,
            hysteresis: fields.finite("hysteresis")?,
            dwell_min: fields.duration()?,
            reads: fields.reads()?,
            mode: fields.mode()?,
            is_changed: fields.flag()?,
            held: fields.held()?,
            why: fields.text("reason")?.to_owned(),
        };
        fields.end()?;
        Ok(record)
    }
}

impl Out {
    fn f64(&mut self, number: f64) {
        self.u64(number.to_bits());
    }

    fn duration(&mut self, time: Duration) {
        self.u64(time.as_secs());
        self.u32(time.subsec_nanos());
    }

    fn optional(&mut self, number: Option<f64>) {
        self.u8(u8::from(number.is_some()));
        number.into_iter().for_each(|number| self.f64(number));
    }

    fn mode(&mut self, mode: RunMode) {
        match mode {
            RunMode::Linear => self.u32(0),
            RunMode::Pipelined { merge_threads } => self.u32(merge_threads),
        }
    }

    fn decision_rules(&mut self, rules: &DecisionRules) {
        let DecisionRules {
            cpu_weight,
            memory_weight,
            large_value_weight,
            large_value_bytes,
            further_weights,
            threshold,
            hysteresis,
            dwell_min,
            read_p99_factor_max,
            merge_threads,
        } = rules;
        [*cpu_weight, *memory_weight, *large_value_weight].into_iter().for_each(|weight| self.f64(weight));
        self.u64(*large_value_bytes);
        self.list(further_weights, |out, (name, weight)| {
            out.bytes(name.as_bytes());
            out.f64(*weight);
        });
        self.f64(*threshold);
        self.f64(*hysteresis);
        self.duration(*dwell_min);
        self.optional(*read_p99_factor_max);
        self.u32(*merge_threads);
    }

    fn term(&mut self, term: &Term) {
        self.bytes(term.name.as_bytes());
        self.f64(term.weight);
        self.optional(term.value);
        self.bytes(term.note.as_bytes());
    }

    fn tail(&mut self, tail: Option<&ReadTail>) {
        self.u8(u8::from(tail.is_some()));
        if let Some(ReadTail { samples, p99_low, p99, p99_high }) = tail {
            self.u64(*samples);
            [*p99_low, *p99, *p99_high].into_iter().for_each(|time| self.duration(time));
        }
    }
}

impl In<'_> {
    fn finite(&mut self, what: &str) -> Result<f64> {
        let number = f64::from_bits(self.u64()?);
        self.require(number.is_finite(), &format!("{what}: a finite number"), number)?;
        Ok(number)
    }

    fn not_negative(&mut self, what: &str) -> Result<f64> {
        let number = self.finite(what)?;
        self.require(number >= 0.0, &format!("{what}: 0 or more"), number)?;
        Ok(number)
    }

    fn duration(&mut self) -> Result<Duration> {
        let (seconds, nanoseconds) = (self.u64()?, self.u32()?);
        self.require(nanoseconds < 1_000_000_000, "less than a second of nanoseconds", nanoseconds)?;
        Ok(Duration::new(seconds, nanoseconds))
    }

    fn mode(&mut self) -> Result<RunMode> {
        let merge_threads = self.u32()?;
        self.require(merge_threads <= MERGE_THREADS_MAX, "at most 256 merging threads", merge_threads)?;
        Ok(if merge_threads == 0 { RunMode::Linear } else { RunMode::Pipelined { merge_threads } })
    }

    fn decision_rules(&mut self) -> Result<DecisionRules> {
        let (cpu_weight, memory_weight) = (self.finite("weight")?, self.finite("weight")?);
        let (large_value_weight, large_value_bytes) = (self.finite("weight")?, self.u64()?);
        let further_weights = self.list("further measures", 12, |fields| {
            let name = fields.text("name")?.to_owned();
            let fits = (1..=MEASURE_NAME_BYTES_MAX).contains(&name.len());
            fields.require(fits, "a name of 1 to 64 bytes", name.len())?;
            Ok((name, fields.finite("weight")?))
        })?;
        self.require(further_weights.len() <= FURTHER_MAX, "at most 64 further measures", further_weights.len())?;
        let (threshold, hysteresis) = (self.finite("threshold")?, self.not_negative("hysteresis")?);
        let dwell_min = self.duration()?;
        let read_p99_factor_max = if self.flag()? { Some(self.not_negative("factor")?) } else { None };
        let merge_threads = self.u32()?;
        let fits = (1..=MERGE_THREADS_MAX).contains(&merge_threads);
        self.require(fits, "1 to 256 merging threads", merge_threads)?;
        Ok(DecisionRules {
            cpu_weight,
            memory_weight,
            large_value_weight,
            large_value_bytes,
            further_weights,
            threshold,
            hysteresis,
            dwell_min,
            read_p99_factor_max,
            merge_threads,
        })
    }

    fn term(&mut self) -> Result<Term> {
        Ok(Term {
            name: self.text("name")?.to_owned(),
            weight: self.finite("weight")?,
            value: if self.flag()? { Some(self.finite("measure")?) } else { None },
            note: self.text("note")?.to_owned(),
        })
    }

    fn reads(&mut self) -> Result<Option<ReadInputs>> {
        if !self.flag()? {
            return Ok(None);
        }
        let factor_max = self.finite("factor")?;
        Ok(Some(ReadInputs { factor_max, with_pipelines: self.tail()?, without_pipelines: self.tail()? }))
    }

    fn tail(&mut self) -> Result<Option<ReadTail>> {
        if !self.flag()? {
            return Ok(None);
        }
        let samples = self.u64()?;
        Ok(Some(ReadTail { samples, p99_low: self.duration()?, p99: self.duration()?, p99_high: self.duration()? }))
    }

    fn held(&mut self) -> Result<Option<Held>> {
        Ok(match self.u8()? {
            0 => None,
            1 => Some(Held::Hysteresis),
            2 => Some(Held::Dwell),
            3 => Some(Held::Reads),
            other => return Err(self.broken("0 to 3 for what held the mode", other)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{Decider, LargeValues};
    use crate::policy::Policy;
    use crc32c::crc32c;
    use situ_compaction::testing::{Rng, with_seeds};
    use situ_compaction::{Measure, decode_measures, encode_measures};

    const PAGE: &str = include_str!("../../../../docs/formats/metrics.md");

    /// The bytes of the page's example under a heading.
    fn golden(heading: &str) -> String {
        let section = PAGE.split(&format!("### {heading}\n")).nth(1).unwrap();
        let hex = section.split("```hex\n").nth(1).unwrap().split("```").next().unwrap();
        let digits: Vec<&str> = hex.lines().map(|line| line.split("  ").next().unwrap()).collect();
        digits.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    }

    fn tail() -> ReadTail {
        let us = Duration::from_micros;
        ReadTail { samples: 300, p99_low: us(900), p99: us(1000), p99_high: us(1100) }
    }

    fn measures() -> Vec<Measure> {
        vec![
            Measure::Processors(0.5),
            Measure::MemoryFree(1 << 30),
            Measure::ReadsWithPipelines(tail()),
            Measure::Named("queue".to_owned(), 2.0),
        ]
    }

    fn rules() -> DecisionRules {
        DecisionRules {
            further_weights: vec![("queue".to_owned(), 0.25)],
            dwell_min: Duration::from_millis(1500),
            read_p99_factor_max: Some(1.5),
            merge_threads: 2,
            ..DecisionRules::copro_plus(32 << 10)
        }
    }

    fn record() -> DecisionRecord {
        let decider = Decider::new(None);
        let large = LargeValues { share: Some(0.25), tables: 3, ..LargeValues::default() };
        let now = Duration::from_secs(7);
        decider.collect(&encode_measures(&measures()), now).unwrap();
        (*decider.decide_by(&rules(), 9, &large, now)).clone()
    }

    #[test]
    fn the_bytes_are_those_of_the_page() {
        let message = encode_measures(&measures());
        assert_eq!(hex(&message), golden("A message"));
        assert_eq!(decode_measures(&message).unwrap(), measures());
        assert_eq!(hex(&ModeRule::Fixed(RunMode::PIPELINED).to_bytes()), golden("A fixed mode"));
        assert_eq!(hex(&ModeRule::Decided(rules()).to_bytes()), golden("Rules of decisions"));
        assert_eq!(hex(&record().to_bytes()), golden("A decision"));
    }

    #[test]
    fn rules_and_records_come_back() {
        for name in Policy::NAMES {
            let policy = Policy::named(name).unwrap();
            for rule in [policy.host, policy.elsewhere] {
                assert_eq!(ModeRule::from_bytes(&rule.to_bytes()).unwrap(), rule);
            }
        }
        let (record, rule) = (record(), ModeRule::Decided(rules()));
        assert_eq!(DecisionRecord::from_bytes(&record.to_bytes()).unwrap(), record);
        let bare = DecisionRecord { reads: None, held: Some(Held::Reads), terms: Vec::new(), ..record };
        assert_eq!(DecisionRecord::from_bytes(&bare.to_bytes()).unwrap(), bare);
        assert_eq!(ModeRule::from_bytes(&rule.to_bytes()).unwrap(), rule);
    }

    /// Numbers that no decision could be made by do not get in.
    #[test]
    fn rules_that_no_unit_can_follow_are_refused() {
        let broken = [
            DecisionRules { cpu_weight: f64::NAN, ..rules() },
            DecisionRules { threshold: f64::INFINITY, ..rules() },
            DecisionRules { hysteresis: -0.1, ..rules() },
            DecisionRules { read_p99_factor_max: Some(-1.0), ..rules() },
            DecisionRules { merge_threads: 0, ..rules() },
            DecisionRules { merge_threads: 257, ..rules() },
            DecisionRules { further_weights: vec![(String::new(), 1.0)], ..rules() },
            DecisionRules { further_weights: vec![("n".repeat(65), 1.0)], ..rules() },
            DecisionRules { further_weights: vec![("n".to_owned(), 1.0); 65], ..rules() },
        ];
        for rules in broken {
            let error = ModeRule::from_bytes(&ModeRule::Decided(rules.clone()).to_bytes()).unwrap_err();
            assert!(error.is_corruption(), "{rules:?}: {error}");
        }
        let threads = ModeRule::Fixed(RunMode::Pipelined { merge_threads: 1000 });
        assert!(ModeRule::from_bytes(&threads.to_bytes()).is_err());
    }

    fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(bytes.len() as u64 - 4) as usize;
            match rng.below(4) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = [0, 1, 0x7f, 0xff][rng.below(4) as usize],
                2 => drop(bytes.drain(at..(at + 2).min(bytes.len() - 4))),
                _ => bytes.insert(at, rng.below(256) as u8),
            }
            if bytes.len() < 12 {
                return;
            }
        }
        let end = bytes.len() - 4;
        let checksum = crc32c(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&checksum);
    }

    /// No bytes break the decoders: small damage under a checksum that is right. What is taken is encoded to the same
    /// bytes.
    #[test]
    fn damaged_bytes_are_refused_or_are_whole() {
        let (mut taken, mut refused) = (0, 0);
        let mut count = |is_taken: bool| if is_taken { taken += 1 } else { refused += 1 };
        with_seeds(4000, |rng| {
            let mut bytes = ModeRule::Decided(rules()).to_bytes();
            damage(rng, &mut bytes);
            let rule = ModeRule::from_bytes(&bytes);
            count(rule.is_ok());
            assert!(rule.is_err() || rule.unwrap().to_bytes() == bytes);
            let mut bytes = record().to_bytes();
            damage(rng, &mut bytes);
            let record = DecisionRecord::from_bytes(&bytes);
            count(record.is_ok());
            assert!(record.is_err() || record.unwrap().to_bytes() == bytes);
            let mut bytes = encode_measures(&measures());
            damage(rng, &mut bytes);
            let measures = decode_measures(&bytes);
            count(measures.is_ok());
            if let Ok(measures) = measures {
                assert_eq!(decode_measures(&encode_measures(&measures)).unwrap(), measures);
            }
        });
        assert!(taken > 1000 && refused > 1000, "{taken} taken, {refused} refused");
    }

    /// A message with a right size and a right checksum.
    fn sealed(measures: &[u8]) -> Vec<u8> {
        let size = (measures.len() + 8) as u32;
        let covered = [&size.to_le_bytes()[..], measures].concat();
        [&covered[..], &crc32c(&covered).to_le_bytes()].concat()
    }

    #[test]
    fn the_page_lists_the_flags_that_the_code_knows() {
        let table = PAGE.split("| flag | measure | value |").nth(1).unwrap().split("\n\n").next().unwrap();
        let first = |row: &str| row.split('|').nth(1).and_then(|flag| flag.trim().parse::<u16>().ok());
        let page: Vec<u16> = table.lines().filter_map(first).collect();
        // No measure is empty: a flag that is known is refused without a value, and another one is skipped.
        let is_known = |flag: &u16| decode_measures(&sealed(&[&flag.to_le_bytes()[..], &[0, 0]].concat())).is_err();
        assert_eq!((0..1000).filter(is_known).collect::<Vec<u16>>(), page);
    }

    #[test]
    fn a_message_keeps_its_rules() {
        let number =
            |flag: u16, number: f64| [&flag.to_le_bytes()[..], &8u16.to_le_bytes(), &number.to_le_bytes()].concat();
        let decoded = |measures: &[u8]| decode_measures(&sealed(measures));
        assert_eq!(decoded(&[]).unwrap(), []);
        assert_eq!(decoded(&number(1, 1.0)).unwrap(), [Measure::Processors(1.0)]);
        let unknown = [number(999, f64::NAN), number(2, 0.5)].concat();
        assert_eq!(decoded(&unknown).unwrap(), [Measure::Memory(0.5)], "what is not known is skipped");
        for broken in [number(1, 1.5), number(1, -0.5), number(2, f64::NAN), number(3, f64::INFINITY), vec![1, 0, 9]] {
            assert!(decoded(&broken).unwrap_err().is_corruption(), "{broken:?}");
        }
        let name = |name: &[u8], value: &[u8]| {
            [&[255, 0, (1 + name.len() + 8) as u8, 0, name.len() as u8], name, value].concat()
        };
        assert!(decoded(&name(b"n", &1f64.to_le_bytes())).is_ok());
        assert!(decoded(&name(b"", &1f64.to_le_bytes())).is_err());
        assert!(decoded(&name(b"\xff", &1f64.to_le_bytes())).is_err());
        assert!(decoded(&name(&[b'n'; 65], &1f64.to_le_bytes())).is_err());
        assert!(decode_measures(&vec![0; 70_000]).is_err());
    }
}
