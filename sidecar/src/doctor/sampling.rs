//! The attempt: the eBPF side loaded, its clock started, and taken out again.
//!
//! In: nothing. Out: one [`Check`], which counts for more than all that was read: a kernel, a filter or a security module may refuse for
//! reasons of its own.

use super::check::Check;
use crate::bpf::{Options, Sampler};

const NAME: &str = "CPU sampling";

pub(super) fn attempt() -> Check {
    match Sampler::load(Options { rate_hz: 1, ..Options::default() }) {
        Ok(sampler) => {
            let lacks = sampler.lacks().join("; ");
            if lacks.is_empty() {
                Check::works(NAME, "the eBPF program was loaded and its clock started")
            } else {
                Check::lacks(NAME, lacks, "see the checks above")
            }
        }
        Err(error) => Check::fails(NAME, format!("{}: {}", error.what, error.why), error.remedy),
    }
}
