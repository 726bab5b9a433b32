//! The faults, with their places and times: a plan that is a value.
//!
//! A [`FaultPlan`] is a list of [`Rule`]s. Each says *which* operations it looks at (by [`Operation`], by
//! [`FileKind`], by place), *when* it strikes among those ([`When`]) and *what* happens then ([`Fault`]). The first
//! rule that strikes wins; delays add up. A plan can be exchanged while a store runs; rules then count from zero.

use crate::Rng;
use situ_storage::FileName;
use std::ops::Range;
use std::time::Duration;

/// An operation of a volume or a device. A device knows [`Read`](Operation::Read),
/// [`WritePages`](Operation::WritePages), [`Sync`](Operation::Sync) (its flush), [`Discard`](Operation::Discard),
/// [`Zero`](Operation::Zero) and [`Lock`](Operation::Lock).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Beginning a write-once file.
    Create,
    /// Reserving a page file.
    CreatePages,
    /// Opening a file of either kind.
    Open,
    /// Reading bytes of a file of either kind.
    Read,
    /// A [`Writer`](situ_storage::Writer) handing collected bytes to the system.
    Append,
    /// A write to a [`PageFile`](situ_storage::PageFile), durable or not.
    WritePages,
    /// Making a file of either kind durable.
    Sync,
    /// Replacing a small file.
    Replace,
    /// Changing a name.
    Rename,
    /// Removing a name.
    Remove,
    /// Making names durable.
    SyncNames,
    /// Listing the files.
    List,
    /// Taking the lock.
    Lock,
    /// Telling a device that bytes are not needed.
    Discard,
    /// Having a device write zeros.
    Zero,
}

impl Operation {
    /// All operations that change the disk; the ones that [`SimVolume::crash_at`](crate::SimVolume::crash_at) and
    /// [`SimDevice::crash_at`](crate::SimDevice::crash_at) count.
    pub const CHANGES: [Operation; 11] = [
        Operation::Create,
        Operation::CreatePages,
        Operation::Append,
        Operation::WritePages,
        Operation::Sync,
        Operation::Replace,
        Operation::Rename,
        Operation::Remove,
        Operation::SyncNames,
        Operation::Discard,
        Operation::Zero,
    ];

    /// Returns true if it can change the disk.
    pub fn is_change(self) -> bool {
        Operation::CHANGES.contains(&self)
    }

    /// Returns its name in errors and traces.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::CreatePages => "reserve room for",
            Operation::Open => "open",
            Operation::Read => "read",
            Operation::Append | Operation::WritePages => "write",
            Operation::Sync => "sync",
            Operation::Replace => "replace",
            Operation::Rename => "rename",
            Operation::Remove => "remove",
            Operation::SyncNames => "sync names of",
            Operation::List => "list",
            Operation::Lock => "lock",
            Operation::Discard => "discard",
            Operation::Zero => "zero",
        }
    }
}

/// A file's role, without its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// [`FileName::Log`].
    Log,
    /// [`FileName::Spare`].
    Spare,
    /// [`FileName::Table`].
    Table,
    /// [`FileName::Manifest`].
    Manifest,
    /// [`FileName::ManifestCopy`].
    ManifestCopy,
    /// [`FileName::Current`].
    Current,
    /// [`FileName::Lock`].
    Lock,
    /// [`FileName::Identity`].
    Identity,
    /// [`FileName::Temporary`].
    Temporary,
    /// [`FileName::Values`].
    Values,
    /// Names that came after this list was written.
    Other,
}

impl From<FileName> for FileKind {
    fn from(name: FileName) -> FileKind {
        match name {
            FileName::Log(_) => FileKind::Log,
            FileName::Spare(_) => FileKind::Spare,
            FileName::Table(_) => FileKind::Table,
            FileName::Manifest(_) => FileKind::Manifest,
            FileName::ManifestCopy(_) => FileKind::ManifestCopy,
            FileName::Current => FileKind::Current,
            FileName::Lock => FileKind::Lock,
            FileName::Identity => FileKind::Identity,
            FileName::Temporary(_) => FileKind::Temporary,
            FileName::Values(_) => FileKind::Values,
            _ => FileKind::Other,
        }
    }
}

/// The outcome instead of success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// `EIO`. A failed write has stored nothing, some of its sectors or all of them, none durably.
    Io,
    /// `ENOSPC`. A failed append may have stored a part.
    NoSpace,
    /// `EACCES`.
    PermissionDenied,
    /// `EROFS`; strikes only operations that change something.
    ReadOnly,
    /// `ENOENT`: the directory has gone.
    NotFound,
    /// A sync, or a durable page write, fails *and* the dirty bytes count as clean from now on: readable, but no later
    /// sync makes them durable (as Linux did until 4.13, and partly still does: "fsyncgate").
    DropDirty,
    /// A sync, or a durable page write, is acknowledged, but nothing becomes durable: a disk that lies. Visible only
    /// after a crash.
    FalseDurability,
    /// A write is acknowledged and not stored at all.
    LoseWrite,
    /// A page write lands on other pages of the same file; those meant keep what they held.
    Misdirect,
    /// One bit of what is written is stored inverted; of what is read, handed out inverted.
    FlipBit,
    /// Success, after this much time.
    Delay(Duration),
}

impl Fault {
    /// Returns true if the fault can happen to the operation; a rule looks only at those.
    fn fits(self, operation: Operation) -> bool {
        use Operation::{Append, Read, Sync, WritePages};
        match self {
            Fault::Io | Fault::PermissionDenied | Fault::NotFound | Fault::Delay(_) => true,
            Fault::ReadOnly => operation.is_change() || operation == Operation::Lock,
            Fault::NoSpace => operation.is_change() && !matches!(operation, Operation::Remove | Operation::Discard),
            Fault::DropDirty | Fault::FalseDurability => matches!(operation, Sync | WritePages),
            Fault::LoseWrite => matches!(operation, Append | WritePages),
            Fault::Misdirect => operation == WritePages,
            Fault::FlipBit => matches!(operation, Append | WritePages | Read),
        }
    }
}

/// The operations that a rule strikes, among those that it matches. Counting starts at 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    /// Every one.
    Always,
    /// The operation with this number alone.
    Nth(u64),
    /// The operation with this number and all later ones.
    From(u64),
    /// Each with this probability.
    Chance(f64),
}

impl When {
    /// Returns true if it strikes the matching operation with this number.
    pub(crate) fn strikes(self, number: u64, rng: &mut Rng) -> bool {
        match self {
            When::Always => true,
            When::Nth(n) => number == n,
            When::From(n) => number >= n,
            When::Chance(p) => rng.chance(p),
        }
    }
}

/// One thing that goes wrong.
///
/// ```
/// use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule};
/// let plan = FaultPlan::none()
///     .with(Rule::new(Fault::Io).on(&[Operation::Sync]).files(&[FileKind::Manifest]).nth(2))
///     .with(Rule::new(Fault::FlipBit).on(&[Operation::Read]).chance(0.001));
/// assert_eq!(plan.rules.len(), 2);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The fault.
    pub fault: Fault,
    /// The operations that the rule matches; empty for all that the fault can happen to.
    pub operations: Vec<Operation>,
    /// The files that the rule matches; empty for all, and for operations that name none.
    pub files: Vec<FileKind>,
    /// The bytes of the file or device that the rule matches; `None` for all, and for operations that have no place.
    pub within: Option<Range<u64>>,
    /// The matching operations that the rule strikes.
    pub when: When,
}

impl Rule {
    /// Creates a rule by which the fault happens always and everywhere it can.
    pub fn new(fault: Fault) -> Rule {
        Rule { fault, operations: Vec::new(), files: Vec::new(), within: None, when: When::Always }
    }

    /// Limits the rule to these operations.
    pub fn on(mut self, operations: &[Operation]) -> Rule {
        self.operations = operations.to_vec();
        self
    }

    /// Limits the rule to these files.
    pub fn files(mut self, kinds: &[FileKind]) -> Rule {
        self.files = kinds.to_vec();
        self
    }

    /// Limits the rule to operations that touch these bytes of the file or device.
    pub fn within(mut self, bytes: Range<u64>) -> Rule {
        self.within = Some(bytes);
        self
    }

    /// Limits the rule to the operation with this number, counted from 0 among those that match.
    pub fn nth(mut self, number: u64) -> Rule {
        self.when = When::Nth(number);
        self
    }

    /// Limits the rule to the operation with this number and all later ones.
    pub fn from(mut self, number: u64) -> Rule {
        self.when = When::From(number);
        self
    }

    /// Makes the rule strike each matching operation with this probability.
    pub fn chance(mut self, probability: f64) -> Rule {
        self.when = When::Chance(probability);
        self
    }

    fn looks_at(&self, operation: Operation, file: Option<FileName>, place: &Range<u64>) -> bool {
        let touches = |within: &Range<u64>| place.start < within.end && within.start < place.end;
        self.fault.fits(operation)
            && self.within.as_ref().is_none_or(touches)
            && (self.operations.is_empty() || self.operations.contains(&operation))
            && (self.files.is_empty() || file.is_some_and(|name| self.files.contains(&name.into())))
    }
}

/// Everything that goes wrong on one volume.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FaultPlan {
    /// The rules, in order of precedence.
    pub rules: Vec<Rule>,
    /// Room on the volume: what does not fit is refused with `ENOSPC`. `None`: no limit.
    pub capacity_bytes: Option<u64>,
    /// Every operation takes a random time in this range, by the environment's clock.
    pub latency: Option<Range<Duration>>,
    /// A crash may also leave a 512-byte sector half old and half new. Off, because the contract of
    /// `situ_storage` says that sectors are atomic.
    pub tear_sectors: bool,
    /// Page files of the volume cannot discard pages.
    pub no_discard: bool,
}

impl FaultPlan {
    /// Returns a sound volume without limits.
    pub fn none() -> FaultPlan {
        FaultPlan::default()
    }

    /// Returns the same plan and one more rule, which yields to those before it.
    pub fn with(mut self, rule: Rule) -> FaultPlan {
        self.rules.push(rule);
        self
    }

    /// Returns the same plan on a volume of this size.
    pub fn capacity(mut self, bytes: u64) -> FaultPlan {
        self.capacity_bytes = Some(bytes);
        self
    }

    /// Returns the same plan with operations that take their time.
    pub fn latency(mut self, range: Range<Duration>) -> FaultPlan {
        self.latency = Some(range);
        self
    }

    /// Returns the same plan on a volume whose page files cannot discard pages.
    pub fn without_discard(mut self) -> FaultPlan {
        self.no_discard = true;
        self
    }

    /// Returns the same plan with crashes that tear sectors.
    pub fn tear_sectors(mut self) -> FaultPlan {
        self.tear_sectors = true;
        self
    }
}

/// A plan at work: it counts.
#[derive(Debug)]
pub(crate) struct FaultState {
    pub(crate) plan: FaultPlan,
    /// Per rule, how many operations it has looked at.
    seen: Vec<u64>,
}

impl FaultState {
    pub(crate) fn new(plan: FaultPlan) -> FaultState {
        FaultState { seen: vec![0; plan.rules.len()], plan }
    }

    /// Decides the fate of this operation, and the time that it takes.
    pub(crate) fn judge(
        &mut self,
        operation: Operation,
        file: Option<FileName>,
        place: &Range<u64>,
        rng: &mut Rng,
    ) -> (Option<Fault>, Duration) {
        let mut fault = None;
        let mut delay = match &self.plan.latency {
            Some(range) if range.end > range.start => {
                let spread = (range.end - range.start).as_nanos().min(u128::from(u64::MAX)) as u64;
                range.start + Duration::from_nanos(rng.below(spread))
            }
            Some(range) => range.start,
            None => Duration::ZERO,
        };
        for (rule, seen) in self.plan.rules.iter().zip(&mut self.seen) {
            if !rule.looks_at(operation, file, place) {
                continue;
            }
            let number = *seen;
            *seen += 1;
            match rule.fault {
                _ if !rule.when.strikes(number, rng) => {}
                Fault::Delay(more) => delay = delay.saturating_add(more),
                other => fault = fault.or(Some(other)),
            }
        }
        (fault, delay)
    }
}
