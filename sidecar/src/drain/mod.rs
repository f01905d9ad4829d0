//! From the bytes of the ring buffer to [`Sample`](crate::sample::Sample)s.
