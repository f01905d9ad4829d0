//! A reader in another process: what a profiler outside sees of this one, by OpenTelemetry's rules alone.
//!
//! In: a process id. Out: its process context ([`published`]), and the record of a thread that stands still ([`stopped`],
//! [`record`]). Nothing of the SDK is used there: this is how anybody would read it. [`watched`] is what a thread does meanwhile that
//! every record can be checked against, and [`changing`] are threads that do it, with the SDK.
//!
//! Source: OTEP 4719 "Process Context", OTEP 4947 "Thread Context", both "Reading Protocol".

pub mod changing;
pub mod published;
pub mod record;
pub mod stopped;
pub mod watched;
