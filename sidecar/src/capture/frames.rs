//! From the addresses of a stack to places with names, by the rule of the profile that it is of.
//!
//! The runtime keeps stacks in two ways: with an address for each function, inlined ones included (heap), or with return addresses alone
//! (block and mutex since 1.23, and what we walk ourselves). Where the first is taken for the second, inlined functions show twice; where the second
//! is taken for the first, they are lost. Out: a place for each call, with all functions inlined there, as Go's own profiles have them.
//!
//! Sources: runtime/pprof/proto.go (`appendLocsForStack`), runtime/traceback.go (`tracebackPCs`), runtime/symtab.go (`Frames.Next`).

use crate::go::layouts::Stacks;
use crate::go::{Call, Elision, Frame, Frames};

use super::loaded::Loaded;
use super::stack::Pc;

/// The outermost function of each goroutine, which Go's profiles leave out.
const EXIT: &str = "runtime.goexit";

/// A place in a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its address in the process.
    pub address: u64,
    /// The functions there, innermost first; none is without one.
    pub lines: Vec<Frame>,
}

/// The places of a stack that the runtime keeps.
#[must_use]
pub fn kept(loaded: &Loaded, stack: &[u64], shape: Stacks) -> Vec<Place> {
    let mut places = match shape {
        Stacks::Logical => logical(loaded, stack),
        Stacks::Physical => stack.iter().map(|pc| physical(*pc, &loaded.frames(*pc, Call::Return))).collect(),
    };
    places.retain(|place| is_shown(place));
    places
}

/// The places of a heap's stack: without the allocator's own functions at its top.
///
/// Source: runtime/pprof/protomem.go, `writeHeapProto`.
#[must_use]
pub fn of_heap(loaded: &Loaded, stack: &[u64]) -> Vec<Place> {
    let hidden = stack.iter().take_while(|pc| {
        // `FuncForPC` looks up the return address itself.
        let frames = loaded.frames(**pc, Call::Interrupted);
        frames
            .first()
            .is_some_and(|frame| ["runtime.", "internal/runtime/"].iter().any(|of| frame.function.starts_with(of)))
    });
    let hidden = hidden.count();
    let shown = kept(loaded, stack.get(hidden..).unwrap_or_default(), Stacks::Logical);
    if shown.is_empty() { kept(loaded, stack, Stacks::Logical) } else { shown }
}

/// The places of a stack that was walked: wrappers left out as in the runtime's own traces.
#[must_use]
pub fn walked(loaded: &Loaded, stack: &[Pc]) -> Vec<Place> {
    let mut elision = Elision::default();
    let places = stack.iter().map(|pc| {
        let call = if pc.is_return { Call::Return } else { Call::Interrupted };
        let frames = loaded.frames(pc.address, call);
        let lines = frames.iter().filter(|frame| elision.shows(frame.role)).cloned().collect();
        Place { address: pc.address, lines }
    });
    places.filter(is_shown).collect()
}

fn is_shown(place: &Place) -> bool {
    place.lines.first().is_some_and(|frame| &*frame.function != EXIT)
}

/// All functions of a return address; of wrappers among those that others are inlined into, as `Frames.Next` does.
fn physical(pc: u64, frames: &Frames) -> Place {
    let mut elision = Elision::default();
    let shown = frames.iter().enumerate().filter(|(at, frame)| elision.shows(frame.role) || *at == 0);
    Place { address: pc, lines: shown.map(|(_, frame)| frame.clone()).collect() }
}

/// An address stands for its innermost function alone; those that this is inlined into follow with addresses of their own, which belong to the
/// same place. Where the stack was cut they are missing, and come from the table.
fn logical(loaded: &Loaded, stack: &[u64]) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let mut rest = stack;
    while let Some((pc, behind)) = rest.split_first() {
        rest = behind;
        let frames = loaded.frames(*pc, Call::Return);
        let mut place = physical(*pc, &frames);
        let followers = place.lines.iter().skip(1).zip(behind);
        let same = followers.take_while(|(line, pc)| loaded.frames(**pc, Call::Return).first() == Some(line)).count();
        if same < place.lines.len().saturating_sub(1) && same < behind.len() {
            // What follows is another call: the address stood for what is inlined up to there.
            place.lines.truncate(same + 1);
        }
        rest = rest.get(same..).unwrap_or_default();
        places.push(place);
    }
    places
}
