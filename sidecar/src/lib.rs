//! Profiles the processes of a pod from outside: Go and other native ones.
//!
//! The way of a sample: `bpf` (kernel) → `drain` → `naming` → `aggregate` → `assemble` → the exporter and the store of the SDK's crate. Beside it
//! `capture` reads what Go's runtime keeps, `pull` asks programs that serve it, and `receive` takes what the pod's SDKs send. `discover` says which processes there are. A
//! binary with a library, so that its parts can be tried by tests: nothing here is an interface for others.

#![expect(
    rustdoc::private_intra_doc_links,
    reason = "these pages are for those who work on the sidecar, who read the private ones, too"
)]

pub mod aggregate;
pub mod allocator;
pub mod assemble;
pub mod bpf;
pub mod budget;
pub mod capture;
pub mod cli;
pub mod clock;
pub mod config;
pub mod discover;
pub mod doctor;
pub mod drain;
pub mod elf;
pub mod error;
pub mod go;
mod hangup;
pub mod inspect;
mod named_file;
pub mod naming;
mod oversize;
pub mod pipeline;
mod plain;
pub mod privilege;
pub mod pull;
pub mod receive;
pub mod record;
pub mod run;
pub mod sample;
mod spare;
pub mod target;
mod text;
