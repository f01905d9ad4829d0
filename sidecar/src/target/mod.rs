//! A process from outside: its memory, its mappings, its files.
//!
//! In: a pid. Out: [`Process`], which is this one process and no later one of the same number, and through it bytes of its
//! memory ([`Memory`]), its mappings ([`Mappings`]) and its files ([`Files`]). Nothing is written into a target, it gets no
//! signal and is never stopped. On whichever thread asks; which calls can wait for a target is said where they stand
//! ([`Files`], [`Memory`]).

mod aside;
mod fault;
mod files;
mod folder;
mod hurry;
mod mappings;
mod memory;
pub mod numbers;
mod process;
mod stat;

pub use aside::{Aside, NoAnswer, Whom};
pub use fault::Fault;
pub use files::{Files, Identity, Root};
pub use folder::Folder;
pub use hurry::Hurry;
pub(crate) use mappings::undeleted;
pub use mappings::{Device, Line, Mapping, Mappings, Scan};
pub use memory::{Memory, Piece};
pub use process::Process;
pub(crate) use process::stat;
pub use stat::{Stat, State};
