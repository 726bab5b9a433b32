//! The room that a thread has left on its stack.

use std::cell::Cell;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;

/// The room that a completion takes, generously. HotSpot keeps 96 KiB at the end of a stack for itself, and ends the
/// process if a call from C to Java meets them.
const ROOM_BYTES: usize = 192 << 10;

thread_local! {
    /// The addresses of the stack, which the first question finds out.
    static BOUNDS: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

/// Returns true if the stack of this thread might not last for a completion. A coroutine's own stack is never short:
/// its bounds are not known.
pub(crate) fn is_short() -> bool {
    let mark = 0_u8;
    is_short_at(black_box(ptr::from_ref(&mark)).addr(), bounds())
}

fn is_short_at(place: usize, stack: Range<usize>) -> bool {
    stack.contains(&place) && place - stack.start < ROOM_BYTES
}

/// Returns the addresses of the thread's stack; none if the system does not tell.
fn bounds() -> Range<usize> {
    let (start, end) = BOUNDS.get().unwrap_or_else(|| {
        let bounds = ask().unwrap_or_default();
        BOUNDS.set(Some(bounds));
        bounds
    });
    start..end
}

fn ask() -> Option<(usize, usize)> {
    let mut attributes = MaybeUninit::uninit();
    let (mut start, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: the attributes are those of this thread. They are read and destroyed only after they were filled.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let status = libc::pthread_attr_getstack(attributes.as_ptr(), &mut start, &mut bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (status == 0).then(|| (start.addr(), start.addr() + bytes))
    }
}
