//! The rows of the table, each in a file of its own that says what it means and how it is measured.
//!
//! A later row is one more file and one more line in [`ALL`].

pub(crate) mod completeness;
pub(crate) mod cost;
pub(crate) mod engines;
pub(crate) mod export;
pub(crate) mod heap;
pub(crate) mod memory;
pub(crate) mod overhead;
pub(crate) mod packages;
pub(crate) mod rest;
pub(crate) mod short;
pub(crate) mod sidecar;
pub(crate) mod start;
pub(crate) mod tags;

use profiler_tests::Result;

use crate::lab::Lab;
use crate::report::Report;

/// A row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it says, for who waits.
    pub(crate) what: &'static str,
    /// Measures it for everybody and adds its lines.
    pub(crate) measure: fn(&Lab, &mut Report) -> Result<()>,
}

/// All rows in the order of the table.
pub(crate) const ALL: [Row; 18] = [
    completeness::ROW,
    engines::ROW,
    short::ROW,
    cost::ROW,
    tags::ROW,
    overhead::ROW,
    overhead::TOLD,
    overhead::ITSELF,
    memory::ROW,
    rest::ROW,
    start::ROW,
    packages::ROW,
    export::ROW,
    heap::ROW,
    sidecar::cost::ROW,
    sidecar::target::ROW,
    sidecar::symbols::ROW,
    sidecar::runtime::ROW,
];
