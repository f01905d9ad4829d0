//! Which samples a request asks for: a type, a range of time, tags; for memory in use also how it grew.
//!
//! In: parsed parameters, and what there is. Out: typed values, or what was wrong and what would be right. The same for all that
//! shows samples.

use profiler_proto::model::TagFilter;

use super::clock::now;
use super::process::Chosen;
use super::query::{BadParameter, Query};
use super::range::Range;
use super::sample_type::SampleType;
use super::site::Site;

/// Which samples are asked for, by the parameters [`SAMPLES`](super::query::SAMPLES).
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) sample_type: SampleType,
    /// Not what is in use, but by how much that changed in the range.
    pub(super) growth: bool,
    pub(super) range: Range,
    /// When it was asked.
    pub(super) now: u64,
    pub(super) filter: TagFilter,
    /// Of which processes.
    pub(super) of: Chosen,
}

impl Site {
    /// What a request asks for.
    pub(super) fn asked(&self, query: &Query) -> Result<Asked, BadParameter> {
        let (now, filter) = (now(), query.tags()?);
        let range = query.range(now, self.store.window())?;
        let (sample_type, growth) = (self.type_of(query)?, query.flag("growth")?);
        if growth && !sample_type.is_state() {
            return Err(query.refusal("growth", "with type=inuse_space, type=inuse_objects or type=goroutine only"));
        }
        Ok(Asked { sample_type, growth, range, now, filter, of: query.process()? })
    }

    /// The types that can be asked for: on-CPU time, what is in the store, and, where the heap is sampled, what will be.
    pub(super) fn types(&self) -> Vec<SampleType> {
        let (stored, heap) = (self.store.types(), self.source.stats().heap);
        let allocated = heap.dumps.is_none_or(|dumps| dumps.accumulated);
        let will_be =
            |sample_type: SampleType| heap.on && sample_type.is_heap() && (sample_type.is_state() || allocated);
        let is_there =
            |sample_type| sample_type == SampleType::Cpu || will_be(sample_type) || stored.contains(&sample_type);
        SampleType::ALL.into_iter().filter(|sample_type| is_there(*sample_type)).collect()
    }

    fn type_of(&self, query: &Query) -> Result<SampleType, BadParameter> {
        let there = self.types();
        let Some(name) = query.one("type") else { return Ok(SampleType::Cpu) };
        if let Some(found) = there.iter().find(|known| known.name() == name) {
            return Ok(*found);
        }
        let known = SampleType::ALL.iter().find(|known| known.name() == name);
        let why = match known {
            Some(heap) if heap.is_heap() => {
                "there are no heap profiles, /stats says why at heap.notes, of a sidecar at go_PID; "
            }
            Some(_) => {
                "there are no such profiles: Go's runtime keeps them, and the sidecar reads it, whose /stats says at go_PID why there are none; "
            }
            None => "",
        };
        let names: Vec<&str> = there.iter().map(|sample_type| sample_type.name()).collect();
        Err(query.refusal("type", format!("{why}there are: {}", names.join(", "))))
    }
}
