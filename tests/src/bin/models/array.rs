//! Arrays as the heap's, in the memory of the program's allocator: jemalloc's own functions need more stack than the checker gives its threads.
//!
//! In: values. Out: arrays of them.

use std::ops::Deref;

/// So many values.
#[derive(Debug)]
pub(crate) struct Array<T>(Box<[T]>);

impl<T> Array<T> {
    pub(crate) fn filled(length: usize, value: impl FnMut() -> T) -> Option<Self> {
        Some(Self(std::iter::repeat_with(value).take(length).collect()))
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}
