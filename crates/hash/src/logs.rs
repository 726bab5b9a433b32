//! Which log file holds which writes.

use std::collections::VecDeque;

/// The log files in use, under the commit lock.
pub(crate) struct LogFiles {
    /// Number and first sequence number of each, oldest first.
    files: VecDeque<(u64, u64)>,
}

impl LogFiles {
    pub(crate) fn beginning_with(number: u64, first_sequence: u64) -> LogFiles {
        LogFiles { files: VecDeque::from([(number, first_sequence)]) }
    }

    /// The log goes on in file `number`.
    pub(crate) fn add(&mut self, number: u64, first_sequence: u64) {
        let (last, first) = self.newest();
        assert!(number > last && first_sequence >= first, "log file {number} follows {last}");
        self.files.push_back((number, first_sequence));
    }

    /// The file that is written now, and its first sequence number.
    pub(crate) fn newest(&self) -> (u64, u64) {
        *self.files.back().expect("the log has a file")
    }

    /// Files before `number` are not needed any more.
    pub(crate) fn forget_before(&mut self, number: u64) {
        while self.files.len() > 1 && self.files.front().is_some_and(|(oldest, _)| *oldest < number) {
            self.files.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_in_use_is_never_forgotten() {
        let mut files = LogFiles::beginning_with(3, 1);
        files.add(4, 10);
        assert_eq!(files.newest(), (4, 10));
        files.forget_before(4);
        files.forget_before(9);
        assert_eq!(files.newest(), (4, 10));
    }
}
