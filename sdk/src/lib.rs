//! Continuous profiling for Rust services.

mod error;
#[cfg(feature = "export")]
pub mod export;
#[cfg(feature = "serve")]
pub mod serve;
mod stats;

pub use error::{Error, ErrorKind};
pub use stats::{DestinationStats, EngineStats, Ledger, Stats, SymbolStats};
