//! Rights of users, and the rights that each command needs.

use crate::protocol::parse::Request;

/// A set of rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rights(u8);

impl Rights {
    pub(crate) const NONE: Rights = Rights(0);
    /// To see items, and figures of the server.
    pub(crate) const READ: Rights = Rights(1);
    /// To change items, and what the server counts.
    pub(crate) const WRITE: Rights = Rights(2);
    /// To run commands of the program over HTTP.
    pub(crate) const ADMINISTER: Rights = Rights(4);
    /// All that a client of memcached needs.
    pub(crate) const READ_AND_WRITE: Rights = Rights::READ.and(Rights::WRITE);

    pub(crate) const fn and(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }

    pub(crate) const fn contain(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    /// Reads letters: `r`, `w` and `a`, each once.
    ///
    /// # Errors
    /// There are none, or others; in words.
    pub(crate) fn parse(text: &[u8]) -> Result<Rights, &'static str> {
        let mut rights = Rights::NONE;
        for letter in text {
            let right = match letter {
                b'r' => Rights::READ,
                b'w' => Rights::WRITE,
                b'a' => Rights::ADMINISTER,
                _ => return Err("rights are r to read, w to write and a to administer, as in rw"),
            };
            if rights.contain(right) {
                return Err("a right is there twice");
            }
            rights = rights.and(right);
        }
        if rights == Rights::NONE { Err("there are no rights; write r, w, a, or several of them") } else { Ok(rights) }
    }

    /// Returns the answer to a client that lacks some of `needed`.
    pub(crate) fn refusal(self, needed: Rights) -> &'static str {
        match self.contain(Rights::READ) || !needed.contain(Rights::READ) {
            true => "CLIENT_ERROR this user has no right to write",
            false => "CLIENT_ERROR this user has no right to read",
        }
    }
}

/// Returns the rights that a request needs. `incr`, `decr` and `ma` answer with the number that they made.
pub(crate) fn needed(request: &Request<'_>) -> Rights {
    match request {
        Request::Get { touch: None, .. }
        | Request::MetaDebug { .. }
        | Request::Stats { .. }
        | Request::StatsDetailDump
        | Request::Dump
        | Request::Watch { .. } => Rights::READ,
        Request::MetaGet { meta, .. } if !meta.changes_item => Rights::READ,
        Request::Get { touch: Some(_), .. } | Request::MetaGet { .. } => Rights::READ_AND_WRITE,
        Request::Store(_)
        | Request::Delete { .. }
        | Request::Arithmetic { .. }
        | Request::Touch { .. }
        | Request::MetaDelete { .. }
        | Request::MetaArithmetic { .. }
        | Request::FlushAll { .. }
        | Request::StatsReset
        | Request::StatsDetail { .. }
        | Request::Verbosity { .. } => Rights::WRITE,
        Request::SharedMemory { .. }
        | Request::RemoteMemory { .. }
        | Request::Quit
        | Request::Answer { .. }
        | Request::Foreign => Rights::NONE,
    }
}

/// Returns true if a request asks for no answer, an error included, as far as memcached goes along.
pub(crate) fn is_noreply(request: &Request<'_>) -> bool {
    match request {
        Request::Store(store) => store.noreply && store.meta.is_none(),
        Request::Delete { noreply, .. }
        | Request::Arithmetic { noreply, .. }
        | Request::Touch { noreply, .. }
        | Request::FlushAll { noreply, .. }
        | Request::Verbosity { noreply, .. } => *noreply,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::parse::parse;

    #[test]
    fn each_command_needs_its_rights() {
        let (r, w, rw) = (Rights::READ, Rights::WRITE, Rights::READ_AND_WRITE);
        for (line, rights) in [
            ("get a b", r),
            ("gets a", r),
            ("gat 10 a", rw),
            ("gats 10 a", rw),
            ("mg a v t", r),
            ("mg a v T10", rw),
            ("mg a v N10", rw),
            ("mg a v R10", rw),
            ("me a", r),
            ("stats", r),
            ("stats detail dump", r),
            ("lru_crawler metadump all", r),
            ("watch fetchers", r),
            ("set a 0 0 1", w),
            ("cas a 0 0 1 1", w),
            ("append a 0 0 1", w),
            ("ms a 1", w),
            ("delete a", w),
            ("md a I", w),
            ("incr a 1", w),
            ("ma a", w),
            ("touch a 0", w),
            ("flush_all", w),
            ("stats reset", w),
            ("stats detail on", w),
            ("verbosity 1", w),
            ("mn", Rights::NONE),
            ("version", Rights::NONE),
            ("quit", Rights::NONE),
            ("nonsense", Rights::NONE),
        ] {
            assert_eq!(needed(&parse(line.as_bytes())), rights, "{line}");
        }
    }

    #[test]
    fn rights_are_letters() {
        assert_eq!(Rights::parse(b"rw"), Ok(Rights::READ_AND_WRITE));
        assert_eq!(Rights::parse(b"a"), Ok(Rights::ADMINISTER));
        assert!(Rights::parse(b"").unwrap_err().contains("no rights"));
        assert!(Rights::parse(b"rr").unwrap_err().contains("twice"));
        assert!(Rights::parse(b"rx").unwrap_err().contains("r to read"));
        assert!(Rights::READ.refusal(Rights::READ_AND_WRITE).ends_with("to write"));
        assert!(Rights::WRITE.refusal(Rights::READ_AND_WRITE).ends_with("to read"));
        assert!(Rights::WRITE.refusal(Rights::READ).ends_with("to read"));
        assert!(Rights::NONE.refusal(Rights::WRITE).ends_with("to write"));
    }
}
