//! What a profile is: in memory ([`model`]) and on the wire (`otlp`, `pprof`, `folded`).
//!
//! Everything that is captured, received, stored, served or sent passes through one type, [`model::ProfileSet`]. This
//! crate is pure: no I/O, no clock, no threads, no `unsafe`. Encoders are deterministic, decoders are total: any bytes
//! give a value or a named error, within stated bounds of memory.

#![forbid(unsafe_code)]

mod error;
pub mod folded;
#[doc(hidden)]
pub mod fuzz;
mod limits;
pub mod loss;
pub mod model;
pub mod otlp;
pub mod pprof;
pub mod resource;
pub mod split;
pub mod validate;
mod wire;

#[doc(inline)]
pub use error::DecodeError;
#[doc(inline)]
pub use limits::Limits;
#[doc(inline)]
pub use model::{Dictionary, Profile, ProfileSet, Sample};
