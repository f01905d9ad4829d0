//! Arrays in memory that jemalloc itself gives: what hooks keep, they must not ask the program's allocator for.
//!
//! In: values. Out: arrays of them, or nothing where there is no memory. The program's `#[global_allocator]` may stand around jemalloc, and have a lock or be
//! amid its own accounts while jemalloc calls a hook inside it: it is not entered once more. Callable from hooks; anybody may free.

use std::ffi::{c_int, c_void};
use std::fmt::{self, Debug, Formatter};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether there is no memory: for tests.
static REFUSES: AtomicBool = AtomicBool::new(false);

/// From now on there is no memory for what hooks keep, or there is again: for tests of what is lost then.
pub(super) fn refuse_memory(refuses: bool) {
    REFUSES.store(refuses, Ordering::Relaxed);
}

/// Values behind one another.
///
/// Invariant: `start` is a block of jemalloc's, with room for `capacity` values, of which the first `length` are there; no block where `capacity` is 0.
pub(super) struct Array<T> {
    start: NonNull<T>,
    length: u32,
    capacity: u32,
}

// SAFETY: an array owns its values, as a `Vec` does, and jemalloc's blocks belong to no thread.
unsafe impl<T: Send> Send for Array<T> {}
// SAFETY: as above: what is shared are the values.
unsafe impl<T: Sync> Sync for Array<T> {}

impl<T> Array<T> {
    /// jemalloc's flag for how values are aligned: the power of two (jemalloc(3), `MALLOCX_LG_ALIGN`).
    const ALIGNED: c_int = align_of::<T>().trailing_zeros() as c_int;

    /// One without values and without memory.
    pub(super) const fn new() -> Self {
        assert!(size_of::<T>() > 0, "values without a size need no memory");
        Self { start: NonNull::dangling(), length: 0, capacity: 0 }
    }

    /// So many values; `None` where there is no memory.
    pub(super) fn filled(length: usize, mut value: impl FnMut() -> T) -> Option<Self> {
        let mut array = Self::new();
        array.grow(length)?;
        (0..length).try_for_each(|_| array.put(value()))?;
        Some(array)
    }

    /// Puts a value behind the others. Where there is no room, there is some for so many `more` from then on; `None` where there is no memory for it.
    pub(super) fn push(&mut self, value: T, more: usize) -> Option<()> {
        if self.length == self.capacity {
            self.grow(more)?;
        }
        self.put(value)
    }

    /// How many values there is room for.
    pub(super) fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Puts a value where there is room.
    fn put(&mut self, value: T) -> Option<()> {
        if self.length == self.capacity {
            return None;
        }
        // SAFETY: the place is within the block, and no value is there (invariant).
        unsafe { self.start.add(self.length as usize).write(value) };
        self.length += 1;
        Some(())
    }

    /// Makes room for so many more.
    fn grow(&mut self, more: usize) -> Option<()> {
        if REFUSES.load(Ordering::Relaxed) {
            return None;
        }
        let capacity = u32::try_from(more).ok()?.max(1).checked_add(self.capacity)?;
        let bytes = size_of::<T>().checked_mul(capacity as usize)?;
        // SAFETY: the size is not 0; a block that there is comes from jemalloc (invariant), and is not used any more once its values are in the next one
        //         (jemalloc(3), `rallocx`), which has the same alignment.
        let start = unsafe {
            match self.capacity {
                0 => tikv_jemalloc_sys::mallocx(bytes, Self::ALIGNED),
                _ => tikv_jemalloc_sys::rallocx(self.block(), bytes, Self::ALIGNED),
            }
        };
        (self.start, self.capacity) = (NonNull::new(start.cast())?, capacity);
        Some(())
    }

    fn block(&self) -> *mut c_void {
        self.start.as_ptr().cast()
    }
}

impl<T: Copy> Array<T> {
    /// A copy of these; `None` where there is no memory.
    pub(super) fn copied(values: &[T]) -> Option<Self> {
        let mut array = Self::new();
        array.grow(values.len())?;
        values.iter().try_for_each(|value| array.put(*value))?;
        Some(array)
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: so many values are there (invariant), which are borrowed as this is; of none, the place is aligned.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length as usize) }
    }
}

impl<T> DerefMut for Array<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and exclusively.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length as usize) }
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: the values that are there are dropped once, and the block is given back with the size and alignment that it was asked for.
            unsafe {
                ptr::drop_in_place(&raw mut **self);
                tikv_jemalloc_sys::sdallocx(self.block(), size_of::<T>() * self.capacity(), Self::ALIGNED);
            }
        }
    }
}

impl<T> Default for Array<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Debug> Debug for Array<T> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(&**self).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    /// Check that values stay in their order over growth, each at an address as its type wants it, and that each is dropped once.
    #[test]
    fn values_stay_and_go_once() {
        #[repr(align(64))]
        struct Line(Rc<()>, usize);
        impl Drop for Line {
            fn drop(&mut self) {
                assert!(Rc::strong_count(&self.0) > 1, "dropped twice");
            }
        }
        let shared = Rc::new(());
        let mut lines = Array::new();
        for n in 0..1000 {
            assert!(lines.push(Line(Rc::clone(&shared), n), n / 4 + 1).is_some());
        }
        assert!(lines.iter().enumerate().all(|(n, line)| line.1 == n && ptr::from_ref(line).addr().is_multiple_of(64)));
        assert_eq!((Rc::strong_count(&shared), lines.len()), (1001, 1000));
        assert!((1000..=1250).contains(&lines.capacity()), "{}", lines.capacity());
        lines[7] = Line(Rc::clone(&shared), 0);
        assert_eq!(Rc::strong_count(&shared), 1001);
        drop(lines);
        assert_eq!(Rc::strong_count(&shared), 1);
    }

    /// Check that an array can be made of many, of a copy, and of none, and that more than there is memory for is nothing.
    #[test]
    fn arrays_are_made_of_what_there_is() {
        let mut next = 0;
        let counted = Array::filled(100, || {
            next += 1;
            next
        });
        assert_eq!(*counted.unwrap(), (1..=100).collect::<Vec<_>>());
        assert_eq!(*Array::copied(&[3_u64, 1, 2]).unwrap(), [3, 1, 2]);
        assert!(Array::<u64>::new().is_empty() && Array::<u64>::copied(&[]).unwrap().is_empty());
        assert!(Array::filled(1 << 40, || 0_u64).is_none());
    }
}
