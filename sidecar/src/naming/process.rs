//! What is known of one process: its memory, and the names of addresses that came up.
//!
//! In: addresses. Out: [`Spot`]s, each looked up once as long as the mappings stay as they are.

use std::collections::HashMap;
use std::time::Instant;

use super::Stats;
use super::book::Book;
use super::space::Space;
use super::spot::Spot;
use crate::go::Call;
use crate::target;

/// A process and what is known of its addresses.
#[derive(Debug)]
pub(super) struct Process {
    space: Space,
    spots: HashMap<(u64, Call), Spot>,
    bytes: usize,
    /// When it had its last sample, in samples.
    pub(super) used: u64,
    pub(super) stats: Stats,
}

impl Process {
    pub(super) fn new(process: target::Process) -> Self {
        Self { space: Space::new(process), spots: HashMap::new(), bytes: 0, used: 0, stats: Stats::default() }
    }

    /// Looks at the mappings again where it is time to.
    pub(super) fn refresh(&mut self, now: Instant) {
        if self.space.refresh(now) {
            self.clear();
        }
    }

    /// Whether its mappings cannot be read.
    pub(super) fn is_closed(&self) -> bool {
        self.space.is_closed
    }

    /// What is known of an address.
    pub(super) fn spot(&mut self, address: u64, call: Call, book: &mut Book, now: Instant) -> Spot {
        if let Some(known) = self.spots.get(&(address, call)) {
            return known.clone();
        }
        let (spot, is_known) = self.look_up(address, call, book, now);
        // What nothing is known of now may be mapped later.
        if is_known {
            self.bytes += spot.bytes();
            self.spots.insert((address, call), spot.clone());
        }
        spot
    }

    fn look_up(&mut self, address: u64, call: Call, book: &mut Book, now: Instant) -> (Spot, bool) {
        // A call may be the last instruction of a mapping.
        let within = address.saturating_sub(u64::from(call == Call::Return));
        let mut place = self.space.find(within, book);
        if place.is_none() {
            if self.space.look_again(now) {
                self.clear();
            }
            place = self.space.find(within, book);
        }
        let Some(mut place) = place else { return (Spot::unknown(address), false) };
        place.address = place.address.wrapping_add(address - within);
        let binary = self.space.binary(&place, book);
        let found = binary.map(|binary| binary.find(place.address, call)).unwrap_or_default();
        (Spot::of(address, &place, &found), true)
    }

    /// Opens the file that it runs, so that names can be had when it is gone.
    pub(super) fn open_program(&mut self, book: &mut Book) {
        self.space.open_program(book);
    }

    /// Forgets all names.
    pub(super) fn clear(&mut self) {
        self.spots = HashMap::new();
        self.bytes = 0;
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.space.bytes()
    }
}
