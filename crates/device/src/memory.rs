//! Memory of a length that data decides. If the system has none, the caller gets an answer and the process goes on.

use std::alloc::{Layout, alloc_zeroed};

/// Zero bytes, from pages that the system has not given yet if there are many; `None` if it has no memory for them.
pub fn zeroed(bytes: usize) -> Option<Vec<u8>> {
    if bytes == 0 {
        return Some(Vec::new());
    }
    let layout = Layout::array::<u8>(bytes).ok()?;
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc_zeroed(layout) };
    // SAFETY: the memory came from the global allocator with the layout of a vector of that capacity, and is all zeros.
    (!start.is_null()).then(|| unsafe { Vec::from_raw_parts(start, bytes, bytes) })
}

/// Makes a buffer `bytes` long, with zeros at its end if it grows. Returns false if there is no memory; the buffer is as it was
/// then.
pub fn resize(buffer: &mut Vec<u8>, bytes: usize) -> bool {
    if buffer.try_reserve(bytes.saturating_sub(buffer.len())).is_err() {
        return false;
    }
    buffer.resize(bytes, 0);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_an_answer() {
        assert_eq!(zeroed(0).unwrap(), []);
        assert_eq!(zeroed(5).unwrap(), [0; 5]);
        // Nothing is that large.
        assert!(zeroed(usize::MAX).is_none() && zeroed(1 << 62).is_none());
        let mut buffer = vec![1, 2];
        assert!(!resize(&mut buffer, 1 << 62));
        assert_eq!(buffer, [1, 2]);
        assert!(resize(&mut buffer, 3));
        assert_eq!(buffer, [1, 2, 0]);
        assert!(resize(&mut buffer, 1));
        assert_eq!(buffer, [1]);
    }
}
