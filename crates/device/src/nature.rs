//! The nature of a drive: whether it compresses, and what it is.

/// A drive's answer to the question whether it compresses what is written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compresses {
    /// Zeros cost nothing, and a block costs what its contents compress to.
    Yes,
    /// A block costs its length, whatever it holds.
    No,
    /// The drive does not say.
    Unknown,
}

impl Compresses {
    /// Returns it in a word: "yes", "no" or "unknown".
    pub fn word(self) -> &'static str {
        match self {
            Compresses::Yes => "yes",
            Compresses::No => "no",
            Compresses::Unknown => "unknown",
        }
    }
}

/// The kind of a drive, as far as compression is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nature {
    /// The drive's compression, as far as it is known.
    pub compresses: Compresses,
    /// The kind of drive, in words: "zram", "dm-vdo", "ScaleFlux", "virtio disk", "btrfs".
    pub kind: String,
    /// The kernel's names of the devices from the path down to the drive, the topmost first.
    pub devices: Vec<String>,
    /// The most logical bytes that the drive can be set to expose for a hundred physical ones. `None` without such a
    /// limit, and where the limit is not known.
    pub exposes_percent_max: Option<u32>,
    /// True if others may keep something on the drive: the path is on a partition of it, or on a part that a device
    /// above it hands out.
    pub is_shared: bool,
    /// The path is in a file system that does not tell the drive what is deleted, as it is mounted without `discard`.
    pub keeps_discards: bool,
    /// The reason why something is unknown.
    pub why: Option<String>,
}

impl Nature {
    /// Creates the nature of a drive that says nothing.
    pub fn unknown(kind: impl Into<String>, why: impl Into<String>) -> Nature {
        Nature { why: Some(why.into()), ..Nature::of(Compresses::Unknown, kind) }
    }

    /// Creates the nature of a drive of which it is known whether it compresses.
    pub fn of(compresses: Compresses, kind: impl Into<String>) -> Nature {
        let (kind, devices) = (kind.into(), Vec::new());
        Nature {
            compresses,
            kind,
            devices,
            exposes_percent_max: None,
            is_shared: false,
            keeps_discards: false,
            why: None,
        }
    }

    /// Returns true if it is known to compress.
    pub fn compresses(&self) -> bool {
        self.compresses == Compresses::Yes
    }
}
