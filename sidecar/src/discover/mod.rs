//! Which processes there are, what they are, whose pod, what is left out.
//!
//! In: `/proc` of our pid namespace, again and again; what the kernel side tells of exec, exit and fork ([`Event`]); whom the settings
//! choose. Out: [`Table`], which knows each process once ([`Target`]): its program, whether it is Go, whether it profiles itself, its
//! container, its resource, and whether it is profiled or why not. One thread owns the table; targets are shared.
//!
//! It reads and never writes, and takes nothing that a process says of itself for more than words.

mod classify;
mod container;
mod context;
mod environment;
mod program;
mod resource;
mod scout;
mod table;
mod target;

pub use container::Container;
pub use context::Published;
pub use environment::Environment;
pub use program::{Program, Programs};
pub use resource::{MOST_ATTRIBUTES, POD, Pod};
pub use table::{Choose, Counters, Event, Options, Sweep, Table};
pub use target::{BELOW, Candidate, Exe, Kind, Target, WhyNot};
