//! From addresses of a process to functions: Go's tables, ELF symbols, the kernel's.
//!
//! In: a [`Sample`](crate::sample::Sample), the process that it is of. Out: a [`Stack`] of locations, each with its functions, inlined ones too,
//! and the mapping that it lies in; the callers that the kernel side's walk passes over are put in ([`mend`], [`bridge`]). What has no name is
//! named by file and address. Runs on the thread that drains; reads files and memory of targets, which may hold anything: an answer or
//! a count of what is missing, in bounded memory, never a guess.

mod frame;
pub mod kernel;
pub mod mend;

pub use frame::{BuildId, Function, Kind, Line, Location, Module, Stack};
pub use kernel::Kernel;
