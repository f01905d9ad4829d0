//! What a Go runtime keeps in its memory: heap, goroutines, block and mutex, read from outside.
//!
//! In: a process. `source` finds the program and, by `variables` and `operands`, where it keeps things; `heap` (by `moment`), `contention` (both by `buckets`) and
//! `goroutines` (by `stack`, `labels`, `sets`) read them, `figures` the runtime's own figures; `frames` gives names; `profile` makes profiles of them. Nothing is written into the process,
//! it is not stopped and gets no signal. All that is read is taken for hostile: bounded (in what it costs by `work`, and by whether anybody waits for it, `awaited`),
//! checked, and what cannot be is counted.

mod awaited;
mod buckets;
pub mod contention;
mod figures;
pub mod frames;
pub mod goroutines;
pub mod heap;
mod labels;
pub(crate) mod lacking;
mod loaded;
mod memory;
mod modules;
mod moment;
mod names;
mod operands;
mod periodic;
pub mod profile;
mod room;
mod sets;
mod source;
mod stack;
mod stacks;
mod state;
#[cfg(test)]
mod tests;
mod ticks;
mod variables;
pub(crate) mod work;

pub use awaited::{Awaited, Awaiting};
pub use buckets::Walk;
pub use contention::Contention;
pub use figures::RuntimeFigures;
pub use goroutines::{Doing, Goroutine, Goroutines};
pub use heap::Heap;
pub use labels::Labels;
pub use loaded::Loaded;
pub use memory::Memory;
pub use periodic::{Captured, Periodic, What};
pub use room::{Room, Taken};
pub use source::{Bounds, Code as Place, Source, unreadable};
pub use stack::{End, Pc};
pub use variables::{Code, Function, Variables};
