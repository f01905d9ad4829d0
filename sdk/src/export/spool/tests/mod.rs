//! What holds for a spool.

mod bytes;
