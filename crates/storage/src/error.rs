//! The errors below the engine, as values that name the place and the cure.

use rustix::io::Errno;
use std::fmt;
use std::io;
use std::sync::Arc;

/// A result of the storage rooms.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of a volume, a log or a table. Cheap to clone, so that many writers can share one failed sync.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The system refused an operation.
    Io {
        /// The operation that was tried, as a verb: "read", "write", "sync", "create".
        op: &'static str,
        /// The file, with its directory where there is one.
        path: String,
        /// The cause.
        source: Arc<io::Error>,
    },
    /// No room: a full disk, a quota, or a limit on the length of a file (`ulimit -f`). Writes succeed again when there
    /// is room.
    NoSpace {
        /// The operation that was tried.
        op: &'static str,
        /// The file.
        path: String,
    },
    /// Bytes read are not the bytes written.
    Corruption(Box<Corruption>),
    /// The store is open for writing, in another process or in this one.
    Locked {
        /// The lock file, or the device.
        path: String,
        /// The holder, if that is known; `None` for another process.
        why: Option<String>,
    },
    /// The file does not exist.
    NotFound {
        /// The file.
        path: String,
    },
    /// The system has no memory for an allocation whose size comes from data. A retry may succeed when memory is free.
    OutOfMemory {
        /// The purpose of the memory: a file, or a part of one.
        what: String,
        /// The size of the allocation.
        bytes: usize,
    },
    /// The answer is not in memory, and the caller asked for one that needs no disk.
    NotInMemory,
    /// The caller asked for something that cannot be done; the text says what can.
    Invalid(String),
}

/// A place where damage was found, with the expected and the found contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The file.
    pub file: String,
    /// First byte of the damaged structure.
    pub offset: u64,
    /// The structure, in words: "data block", "log page 17".
    pub what: String,
    /// The contents of a sound file at this place.
    pub expected: String,
    /// The contents of this file.
    pub found: String,
}

impl Error {
    /// Wraps an I/O error, telling a full disk and a missing file apart from the rest.
    pub fn io(op: &'static str, path: impl fmt::Display, source: io::Error) -> Error {
        let path = path.to_string();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Error::NoSpace { op, path }
            }
            io::ErrorKind::NotFound => Error::NotFound { path },
            _ => Error::Io { op, path, source: Arc::new(source) },
        }
    }

    /// Returns a [`Corruption`].
    pub fn corruption(
        file: impl fmt::Display,
        offset: u64,
        what: impl Into<String>,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Error {
        Error::Corruption(Box::new(Corruption {
            file: file.to_string(),
            offset,
            what: what.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        }))
    }

    /// Makes an [`OutOfMemory`](Error::OutOfMemory) error.
    pub fn out_of_memory(bytes: usize, what: impl fmt::Display) -> Error {
        Error::OutOfMemory { what: what.to_string(), bytes }
    }

    /// Returns true if the system had no memory.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Error::OutOfMemory { .. })
    }

    /// Returns true if bytes on disk were found damaged.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Error::Corruption(_))
    }

    /// Returns true if only the disk has the answer, and the call must not read the disk.
    pub fn is_not_in_memory(&self) -> bool {
        matches!(self, Error::NotInMemory)
    }

    /// Returns true if the caller lacks a right. The contents of the disk may be sound.
    pub fn is_permission_denied(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Returns true if the disk did not answer, and may be sound. The operation may be done or not.
    pub fn is_unreachable(&self) -> bool {
        use io::ErrorKind::{ConnectionAborted, TimedOut};
        matches!(self, Error::Io { source, .. } if matches!(source.kind(), ConnectionAborted | TimedOut))
    }

    /// Returns true if the error says nothing about the file: the caller lacks a right, memory or a free descriptor, or
    /// the disk did not answer.
    pub fn is_not_of_the_file(&self) -> bool {
        let is_out_of_files = matches!(self, Error::Io { source, .. }
            if matches!(Errno::from_io_error(source), Some(Errno::MFILE | Errno::NFILE)));
        self.is_permission_denied() || self.is_out_of_memory() || self.is_unreachable() || is_out_of_files
    }

    /// Returns true if the disk is full.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::NoSpace { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { op, path, source } => write!(f, "cannot {op} {path}: {source}"),
            Error::NoSpace { op, path } => {
                write!(
                    f,
                    "cannot {op} {path}: the disk is full, or a quota or a limit on files (`ulimit -f`) is reached; \
                     free some room, or raise the limit, and try again"
                )
            }
            Error::Corruption(c) => c.fmt(f),
            Error::Locked { why: Some(why), .. } => f.write_str(why),
            Error::Locked { path, why: None } => write!(
                f,
                "the store is open in another process (lock {path} is held); close that one, or open read-only"
            ),
            Error::NotFound { path } => write!(f, "{path} does not exist"),
            Error::OutOfMemory { what, bytes } => write!(
                f,
                "there is no memory for {bytes} bytes of {what}; free some, or raise the limit of the process (`ulimit -v`), and try \
                 again"
            ),
            Error::NotInMemory => f.write_str(
                "the answer is not in memory, and the read was to be answered from there; read without that bound",
            ),
            Error::Invalid(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Corruption { file, offset, what, expected, found } = self;
        write!(f, "{file} is damaged at byte {offset}, in its {what}: expected {expected}, found {found}")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_file_place_and_cure() {
        let rot = Error::corruption("000007.table", 4096, "data block", "checksum 0x1", "checksum 0x2");
        assert_eq!(
            rot.to_string(),
            "000007.table is damaged at byte 4096, in its data block: expected checksum 0x1, found checksum 0x2"
        );
        let full = Error::io("write", "a.log", io::Error::from_raw_os_error(28));
        assert!(full.is_no_space());
        assert!(full.to_string().contains("free some room"));
        assert!(Error::io("write", "a.log", io::Error::from_raw_os_error(27)).is_no_space());
        let lost = Error::io("sync", "a.log", io::Error::new(io::ErrorKind::ConnectionAborted, "the node is lost"));
        assert!(lost.is_unreachable() && !full.is_unreachable());
        let [io, descriptors] = [Errno::IO, Errno::MFILE].map(|errno| Error::io("open", "a.log", errno.into()));
        assert!(lost.is_not_of_the_file() && descriptors.is_not_of_the_file());
        assert!(!io.is_not_of_the_file() && !rot.is_not_of_the_file());
    }
}
