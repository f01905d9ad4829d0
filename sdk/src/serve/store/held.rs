//! What the store holds, a room for each process: how much it is, what is in it, what goes where there is no room.
//!
//! In: which processes and which types somebody wants. Out: lanes and sets in the order of their arrival. Guarded by the store's lock, under which
//! nothing here takes long.

use std::collections::BTreeMap;

use super::super::lane::{Lane, Stored};
use super::super::process::{Chosen, Process};
use super::super::sample_type::SampleType;

/// Of each process sets with on-CPU time, and all others: none drives those that take less room out.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) rooms: BTreeMap<Process, [Lane; 2]>,
}

/// Processes beyond this many are not kept apart: the one that said nothing for longest goes.
pub(super) const MOST_PROCESSES: usize = 512;

impl Held {
    /// The end of the newest profile.
    pub(super) fn newest(&self) -> u64 {
        self.rooms.values().flatten().map(Lane::newest).max().unwrap_or(0)
    }

    /// The estimated size of everything.
    pub(super) fn bytes(&self) -> usize {
        self.rooms.values().flatten().map(Lane::bytes).sum()
    }

    /// What a process had that goes, for there are too many beside a new one.
    pub(super) fn make_room(&mut self, process: &Process) -> Option<impl Iterator<Item = Stored> + use<>> {
        if self.rooms.len() < MOST_PROCESSES || self.rooms.contains_key(process) {
            return None;
        }
        let silent = |(_, lanes): &(&Process, &[Lane; 2])| lanes.iter().map(Lane::newest).max();
        let gone = self.rooms.iter().min_by_key(silent).map(|(process, _)| process.clone())?;
        let lanes = self.rooms.remove(&gone)?;
        Some(lanes.into_iter().flat_map(|mut lane| std::iter::from_fn(move || lane.pop())))
    }

    /// What goes: what ends after `latest`, which came while the clock was wrong; what ended more than `window` nanoseconds before the newest; and the oldest of
    /// the fullest until `max_bytes` hold all.
    pub(super) fn drive_out(&mut self, latest: u64, window: u64, max_bytes: usize) -> Vec<Stored> {
        let mut out = Vec::new();
        if self.newest() > latest {
            self.rooms.values_mut().flatten().for_each(|lane| out.extend(lane.take_after(latest)));
        }
        let oldest = self.newest().saturating_sub(window);
        for lane in self.rooms.values_mut().flatten() {
            out.extend(std::iter::from_fn(|| lane.pop_before(oldest)));
        }
        let mut bytes = self.bytes();
        while bytes > max_bytes {
            let Some(oldest) = self.fullest().and_then(Lane::pop) else { break };
            bytes -= oldest.bytes();
            out.push(oldest);
        }
        self.rooms.retain(|_, lanes| lanes.iter().any(|lane| !lane.is_empty()));
        out
    }

    /// Where there is no room: the lane that takes most, but the newest set of each stays as long as another lane has older ones.
    fn fullest(&mut self) -> Option<&mut Lane> {
        self.rooms.values_mut().flatten().max_by_key(|lane| (lane.len() > 1, lane.bytes()))
    }

    /// The lanes of the chosen processes.
    pub(super) fn chosen(&self, of: &Chosen) -> impl Iterator<Item = &[Lane; 2]> {
        self.rooms.iter().filter(|(process, _)| of.has(process)).map(|(_, lanes)| lanes)
    }

    /// Their sets with profiles of a type.
    pub(super) fn of_type(&self, sample_type: SampleType, of: &Chosen) -> impl Iterator<Item = &Stored> {
        let lanes = self.chosen(of).flatten();
        lanes.flat_map(Lane::iter).filter(move |stored| sample_type.is_in(stored.set()))
    }
}
