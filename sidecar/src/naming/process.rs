//! What is known of one program of a process: its memory, and the names of addresses that came up.
//!
//! In: addresses. Out: [`Spot`]s, each looked up once as long as the mappings stay as they are; many together, as each look costs the sampling
//! thread a wait for the [`Reader`].

use std::collections::BTreeMap;
use std::time::Instant;

use profiler_proto::hash::{Map, Set};

use super::Stats;
use super::allowance::End;
use super::errand::{Answer, Answers, Errand};
use super::reader::Reader;
use super::space::Space;
use super::spot::Spot;
use super::stacks::{Stacks, Walked};
use crate::go::Call;
use crate::target::{self, Device};

/// A program of a process, and what is known of its addresses.
#[derive(Debug)]
pub(super) struct Process {
    space: Space,
    spots: Map<(u64, Call), Spot>,
    /// Bytes of these.
    bytes: usize,
    /// Of which every address has a name: none of them becomes another one as long as the spots stay.
    stacks: Stacks,
    /// Until when nothing is looked up: it took more time than there is.
    rests_until: Option<Instant>,
    /// How often it let wait, one time after the other.
    late: u32,
    /// When it had its last sample, in samples.
    pub(super) used: u64,
    pub(super) stats: Stats,
}

/// Who lets others wait again and again rests so many times as long, at most.
const MOST_REST: u32 = 20;

impl Process {
    pub(super) fn new(process: target::Process, program: u64) -> Self {
        let (spots, stacks, stats) = (Map::default(), Stacks::default(), Stats::default());
        Self {
            space: Space::new(process, program),
            spots,
            bytes: 0,
            stacks,
            rests_until: None,
            late: 0,
            used: 0,
            stats,
        }
    }

    /// Looks at the mappings again where it is time to.
    pub(super) fn refresh(&mut self, reader: &mut Reader, now: Instant) {
        let has_changed = self.space.refresh(reader, now);
        self.follow(has_changed);
    }

    /// Forgets what holds no more where mappings have changed, else what lacks a name that may be had now.
    fn follow(&mut self, has_changed: bool) {
        let retried = self.space.retried();
        if has_changed {
            return self.clear();
        }
        if retried.is_empty() {
            return;
        }
        let is_retried = |at: u64| {
            retried.get(retried.partition_point(|range| range.end <= at)).is_some_and(|range| range.start <= at)
        };
        let before = self.spots.len();
        self.spots.retain(|(address, call), spot| spot.is_named || !is_retried(within(*address, *call)));
        if self.spots.len() < before {
            self.bytes = self.spots.values().map(Spot::bytes).sum();
            self.forget_stacks();
        }
    }

    /// Whether its mappings cannot be read.
    pub(super) fn is_closed(&self) -> bool {
        self.space.is_closed
    }

    /// Whether an address is in a mapping that is known.
    pub(super) fn is_mapped(&self, address: u64) -> bool {
        self.space.holds(address)
    }

    /// Whether its process runs another program, and nothing is known of this one.
    pub(super) fn is_replaced(&self) -> bool {
        self.space.is_replaced()
    }

    /// What is known of an address.
    pub(super) fn spot(&mut self, address: u64, call: Call, reader: &mut Reader, now: Instant) -> Spot {
        if let Some(known) = self.spots.get(&(address, call)) {
            return known.clone();
        }
        self.learn([(address, call)], reader, now);
        let known = self.spots.get(&(address, call)).cloned();
        // What nothing is known of now may be mapped later, a file that gives no answer may give one.
        known.unwrap_or_else(|| match self.space.bare(within(address, call)) {
            Some(place) => Spot::of(address, &place.shifted(address), &super::binary::Found::default()),
            None => Spot::unknown(address),
        })
    }

    /// Whether an address was looked up.
    pub(super) fn knows(&self, address: u64, call: Call) -> bool {
        self.spots.contains_key(&(address, call))
    }

    /// What became of a stack that was made of these words; `None` where it was not seen, or nothing can be said of the memory.
    pub(super) fn stack(&self, words: &[u64]) -> Option<&Walked> {
        self.stacks.find(words).filter(|_| !self.is_closed())
    }

    /// Keeps what became of a stack, if it is certain.
    pub(super) fn keep_stack(&mut self, words: &[u64], walked: &Walked) {
        if walked.number.is_some() {
            self.stacks.keep(words, walked.clone());
        }
    }

    /// Looks up those addresses of which nothing is known.
    pub(super) fn learn(
        &mut self,
        addresses: impl IntoIterator<Item = (u64, Call)>,
        reader: &mut Reader,
        now: Instant,
    ) {
        let addresses = addresses.into_iter().filter(|address| !self.spots.contains_key(address));
        let unknown: Set<(u64, Call)> = addresses.collect();
        if unknown.is_empty() || self.rests_until.is_some_and(|until| now < until) {
            return;
        }
        let is_mapped = |space: &Space| unknown.iter().all(|(address, call)| space.holds(within(*address, *call)));
        if !is_mapped(&self.space) {
            let has_changed = self.space.look_again(reader, now);
            self.follow(has_changed);
        }
        let patience = reader.patience();
        for (device, errands) in self.errands(&unknown) {
            let answers = match device {
                None => Some(Answers::of(errands, reader.book(), patience)),
                Some(device) => reader.read(device.into(), move |book| {
                    let answers = Answers::of(errands, book, patience);
                    book.settle(device);
                    answers
                }),
            };
            let Some(Answers { answers, end }) = answers else { continue };
            answers.into_iter().for_each(|answer| self.keep(answer));
            self.rest(end, now);
            if end != End::Done {
                break;
            }
        }
    }

    /// What is to be asked of each file system; of none what has no file.
    fn errands(&self, unknown: &Set<(u64, Call)>) -> BTreeMap<Option<Device>, Vec<Errand>> {
        let mut of_parts: BTreeMap<usize, Vec<(u64, Call)>> = BTreeMap::new();
        for (address, call) in unknown {
            if let Some(part) = self.space.part_at(within(*address, *call)) {
                of_parts.entry(part).or_default().push((*address, *call));
            }
        }
        let mut errands: BTreeMap<Option<Device>, Vec<Errand>> = BTreeMap::new();
        for (part, asked) in of_parts {
            if let Some(errand) = self.space.errand(part, asked) {
                errands.entry(errand.device()).or_default().push(errand);
            }
        }
        errands
    }

    fn keep(&mut self, answer: Answer) {
        for (address, call, spot) in answer.spots {
            self.bytes += spot.bytes();
            self.spots.insert((address, call), spot);
        }
        self.space.keep(answer.part, answer.image);
    }

    /// Opens the file that it runs, so that names can be had when it is gone.
    pub(super) fn open_program(&mut self, reader: &mut Reader, now: Instant) {
        let errand = self.space.program().and_then(|part| self.space.errand(part, Vec::new()));
        let Some((device, errand)) = errand.and_then(|errand| Some((errand.device()?, errand))) else { return };
        let patience = reader.patience();
        let answers = reader.read(device.into(), move |book| Answers::of(vec![errand], book, patience));
        let Some(Answers { answers, end }) = answers else { return };
        answers.into_iter().for_each(|answer| self.keep(answer));
        self.rest(end, now);
    }

    /// Looks nothing up for a while where that takes too much, or lets wait again and again: a disk may be slow once.
    fn rest(&mut self, end: End, now: Instant) {
        let rest = match end {
            End::Done | End::Full => None,
            End::Spent(rest) => Some(rest),
            End::Late(waited) => Some(waited.saturating_mul((self.late * 4).min(MOST_REST))),
        };
        self.late = if let End::Late(_) = end { self.late.saturating_add(1).min(MOST_REST) } else { 0 };
        if let Some(rest) = rest {
            self.rests_until = now.checked_add(rest);
        }
    }

    /// Forgets the stacks, which are only found sooner.
    pub(super) fn forget_stacks(&mut self) {
        self.stacks = Stacks::default();
    }

    /// Forgets all names.
    pub(super) fn clear(&mut self) {
        (self.spots, self.bytes) = (Map::default(), 0);
        self.forget_stacks();
    }

    /// Mappings that are left out, or kept without their name.
    pub(super) fn left_out(&self) -> u64 {
        self.space.left_out
    }

    /// Forgets the mappings, with all names.
    pub(super) fn unmap(&mut self) {
        self.clear();
        self.space.unmap();
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.stacks.bytes() + self.space.bytes()
    }
}

/// The address of the code that is meant: a call may be the last instruction of a mapping.
pub(super) fn within(address: u64, call: Call) -> u64 {
    address.saturating_sub(u64::from(call == Call::Return))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::space::{Image, Source};
    use super::*;

    /// Check that what has no name because its file could not be opened, or not again, is asked for once more when it is time to, and that all that is named stays.
    #[test]
    fn a_file_that_could_not_be_had_is_tried_again() {
        let own = target::Process::find(std::process::id()).unwrap();
        let (mut process, mut later) = (Process::new(own, 0), Instant::now());
        // Two of the program, and one of a library that the program maps: both have code.
        let [ours, other] = [a_file_that_could_not_be_had_is_tried_again as fn(), other_function as fn()];
        let [ours, other, theirs] = [ours as usize as u64, other as usize as u64, libc_function()];
        let is_named = |process: &mut Process, address, now| {
            // Nothing that was open stays so.
            let mut reader = Reader::default();
            process.refresh(&mut reader, now);
            process.spot(address, Call::Interrupted, &mut reader, now).is_named
        };
        assert!([ours, other, theirs].into_iter().all(|address| is_named(&mut process, address, later)));
        let shown = |process: &Process, address| process.spots[&(address, Call::Interrupted)].shown.clone().unwrap();
        let kept = [other, theirs].map(|address| shown(&process, address));
        let image = |process: &Process, address| {
            let part = process.space.part_at(address).unwrap();
            (part, process.space.errand(part, Vec::new()).unwrap().image.unwrap())
        };
        let ((part, image_of_ours), (_, image_of_theirs)) = (image(&process, ours), image(&process, theirs));
        let Source::File(identity) = image_of_ours.source else { panic!("{image_of_ours:?}") };
        let keep = |process: &mut Process, source| {
            process.bytes -= process.spots.remove(&(ours, Call::Interrupted)).map_or(0, |spot| spot.bytes());
            process.keep(Answer { part, image: Image { source, ..image_of_ours.clone() }, spots: Vec::new() });
        };
        for source in [Source::Lost(identity), Source::Nothing] {
            keep(&mut process, source);
            assert!(!is_named(&mut process, ours, later + Duration::from_secs(5)), "{source:?}");
            later += Duration::from_secs(600);
            assert!(is_named(&mut process, ours, later), "{source:?}");
        }
        // It is opened again, and is another one.
        keep(&mut process, image_of_theirs.source);
        assert!(!is_named(&mut process, ours, later));
        assert!(matches!(image(&process, ours).1.source, Source::Lost(_)));
        let are_same =
            [other, theirs].map(|address| shown(&process, address)).iter().zip(&kept).all(|(a, b)| Arc::ptr_eq(a, b));
        assert!(are_same, "what is named was looked up again");
        assert_eq!(process.bytes, process.spots.values().map(Spot::bytes).sum::<usize>());
    }

    fn other_function() {}

    /// Where the C library has `getpid`.
    fn libc_function() -> u64 {
        let own = target::Process::find(std::process::id()).unwrap().mappings().unwrap();
        let is_of =
            |mapping: &&target::Mapping| mapping.executable && mapping.name.to_string_lossy().contains("libc.so");
        let mapping = own.list().iter().find(is_of).unwrap();
        let file = crate::elf::File::open(std::fs::File::open(&*mapping.name).unwrap()).unwrap();
        let symbol = file.symbols().unwrap().address_of(&file, "getpid").unwrap();
        mapping.start - mapping.offset + symbol
    }
}
