//! The exporter behind a proxy that breaks connections, to the last stack.
//!
//! Each scenario has a receiver, a proxy before it and an exporter with a ledger of its own, all real. It ends by comparing what
//! the ledger says with what the receiver decoded, each counted on its own side.

#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod chaos;
mod hour;
mod kills;
mod matrix;
mod rig;
