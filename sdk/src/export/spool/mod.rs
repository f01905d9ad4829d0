//! Keeps on disk what has not arrived yet: it outlives an outage longer than memory lasts, and the process.
//!
//! In: bodies, encoded already. Out: the same bodies, with what they count, from files that may have been cut or changed at any
//! byte, on disks that are full or gone. So far the folder alone, for a thread that may wait for the disk.

mod files;
mod folder;
#[cfg(test)]
mod fuzz;
mod lock;
mod record;
mod replay;
mod segment;
mod settled;
#[cfg(test)]
mod tests;
mod writing;
