//! Fallible allocation, for lengths that come from data. If memory runs out, the caller gets a result and the process
//! continues.

use std::alloc::{Layout, alloc_zeroed};

/// Allocates zeroed bytes; `None` if memory runs out. A large block consists of untouched pages.
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

/// Resizes a buffer to `bytes`, with zeros at its end if it grows. Returns false, with the buffer unchanged, if memory
/// runs out.
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
        // No machine has this much memory.
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
