//! Keeps on disk what has not arrived yet: it outlives an outage longer than memory lasts, and the process.
//!
//! In: bodies, encoded already. Out: the same bodies, with what they count, from files that may have been cut or changed at any
//! byte. So far the bytes alone: records, segments, and how far each destination is.

#[cfg(test)]
mod fuzz;
mod record;
mod segment;
mod settled;
#[cfg(test)]
mod tests;
