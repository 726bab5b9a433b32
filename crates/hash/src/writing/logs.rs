//! Which log file holds which writes.

use std::collections::VecDeque;

/// The log files in use, under the commit lock.
pub(crate) struct LogFiles {
    /// Number and first sequence number of each, oldest first.
    files: VecDeque<(u64, u64)>,
}

/// The result of [`LogFiles::newest_applied`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) file: u64,
    /// Its first sequence number.
    pub(crate) first: u64,
    pub(crate) older: usize,
    pub(crate) files: usize,
}

impl LogFiles {
    pub(crate) fn beginning_with(number: u64, first_sequence: u64) -> LogFiles {
        LogFiles { files: VecDeque::from([(number, first_sequence)]) }
    }

    /// Notes that the log goes on in file `number`.
    pub(crate) fn add(&mut self, number: u64, first_sequence: u64) {
        let (last, first) = self.newest();
        assert!(number > last && first_sequence >= first, "log file {number} follows {last}");
        self.files.push_back((number, first_sequence));
    }

    /// Returns the file that is written now, and its first sequence number.
    pub(crate) fn newest(&self) -> (u64, u64) {
        *self.files.back().expect("the log has a file")
    }

    /// Returns the newest file of which all earlier writes are applied, if those up to `drained` are. With it how many
    /// files are older, and how many there are.
    pub(crate) fn newest_applied(&self, drained: u64) -> Applied {
        let newer = self.files.iter().rev().take_while(|(_, first)| *first > drained + 1).count();
        let older = (self.files.len() - newer).saturating_sub(1);
        let (file, first) = self.files[older];
        Applied { file, first, older, files: self.files.len() }
    }

    /// Forgets the files before `number`, which are not needed any more.
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

    #[test]
    fn files_are_applied_up_to_the_newest_whose_earlier_writes_are() {
        let mut files = LogFiles::beginning_with(3, 1);
        files.add(4, 10);
        files.add(7, 20);
        let found = |drained| {
            let Applied { file, first, older, files } = files.newest_applied(drained);
            (file, first, older, files)
        };
        assert_eq!(found(0), (3, 1, 0, 3));
        assert_eq!(found(8), (3, 1, 0, 3));
        assert_eq!(found(9), (4, 10, 1, 3));
        assert_eq!(found(18), (4, 10, 1, 3));
        assert_eq!(found(19), (7, 20, 2, 3));
        assert_eq!(found(99), (7, 20, 2, 3));
    }
}
