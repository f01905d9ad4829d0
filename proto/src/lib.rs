//! What a profile is: in memory ([`model`]) and on the wire ([`otlp`], [`pprof`], [`folded`]; of jemalloc, [`heap_v2`]),
//! and to look at ([`svg`]); and what people call functions (`demangle`).
//!
//! Everything that is captured, received, stored, served or sent passes through one type, [`model::ProfileSet`]. This
//! crate is pure: no I/O, no clock, no threads, no `unsafe`. Encoders are deterministic, decoders are total: any bytes
//! give a value or a named error, within stated bounds of memory ([`Limits`]).
//!
//! ```
//! use profiler_proto::model::{TagFilter, merge};
//! use profiler_proto::{DecodeError, Limits, folded, otlp, pprof};
//!
//! // From one format to another, all through the model.
//! let set = folded::decode(b"{endpoint=/orders};main;price 3\n{endpoint=/search};main;find 4\n", &Limits::default())?;
//! let request = otlp::encode_to_vec(&set);
//! let received = otlp::decode_bytes(&request, &Limits::default())?;
//! let orders = merge(&received).filtered(&TagFilter::new().with("endpoint", "/orders"));
//! let again = pprof::decode(&pprof::encode(&orders), &Limits::default())?;
//! assert_eq!(folded::encode(&again.profiles[0], &again.dictionary, folded::Tags::Left), "main;price 3\n");
//!
//! // What cannot be decoded says where it is wrong.
//! let error = folded::decode(b"main;price", &Limits::default()).unwrap_err();
//! assert_eq!(error.to_string(), "line 1: no space before a value");
//! # Ok::<(), DecodeError>(())
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "demangle")]
pub mod demangle;
mod error;
pub mod folded;
#[doc(hidden)]
pub mod fuzz;
#[doc(hidden)]
pub mod hash;
pub mod heap_v2;
mod limits;
pub mod loss;
pub mod model;
pub mod otlp;
#[doc(hidden)]
pub mod paths;
pub mod pprof;
pub mod split;
pub mod svg;
pub mod validate;
mod wire;

#[doc(inline)]
pub use error::DecodeError;
#[doc(inline)]
pub use limits::Limits;
#[doc(inline)]
pub use model::{Dictionary, Profile, ProfileSet, Sample, resource};
