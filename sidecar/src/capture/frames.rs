//! From the addresses of a stack to places with names, by the rule of the profile that it is of.
//!
//! The runtime keeps stacks with an address for each function, inlined ones included (heap; its own locks), or with return addresses alone (block
//! and mutex since 1.23, but for the leaf), and nothing says which. So, as in Go: where the addresses behind one are those that it implies, they
//! belong to the same place; else the functions around it come from the table. Taken for the other, inlined functions would show twice, or
//! be lost. Out: a place for each call, with all functions inlined there, and its address, as Go's own profiles have them.
//!
//! Sources: runtime/pprof/proto.go (`appendLocsForStack`, `emitLocation`), runtime/traceback.go (`tracebackPCs`), runtime/symtab.go (`Frames.Next`).

use crate::go::{Call, Elision, Frame, Frames};

use super::loaded::Loaded;
use super::names::Named;
use super::stack::Pc;

/// The outermost function of each goroutine, which Go's profiles leave out.
const EXIT: &str = "runtime.goexit";

/// A place in a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its address in the process, as Go's own profiles have it: of a call, the byte before the address that it returns to, which is of the call's line.
    pub address: u64,
    /// The functions there, innermost first; none is without one.
    pub lines: Frames,
}

/// The places of a stack that the runtime keeps.
#[must_use]
pub fn kept(loaded: &Loaded, stack: &[u64]) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let mut rest = stack;
    while let Some((pc, behind)) = rest.split_first() {
        let (place, followers) = whole(loaded, *pc, behind);
        rest = behind.get(followers..).unwrap_or_default();
        places.push(place);
    }
    places.retain(is_shown);
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
    let shown = kept(loaded, stack.get(hidden..).unwrap_or_default());
    if shown.is_empty() { kept(loaded, stack) } else { shown }
}

/// The places of a stack that was walked: wrappers left out as in the runtime's own traces, unless there is nothing else.
#[must_use]
pub fn walked(loaded: &Loaded, stack: &[Pc]) -> Vec<Place> {
    let mut elision = Elision::default();
    let shown = named(loaded, stack, |frame| elision.shows(frame.role));
    if shown.is_empty() { named(loaded, stack, |_| true) } else { shown }
}

fn named(loaded: &Loaded, stack: &[Pc], mut shows: impl FnMut(&Frame) -> bool) -> Vec<Place> {
    let mut places = Vec::with_capacity(stack.len());
    for pc in stack {
        let frames = match pc.is_return {
            true => loaded.named(pc.address).frames,
            false => loaded.frames(pc.address, Call::Interrupted),
        };
        let shown = frames.iter().filter(|frame| shows(frame)).collect();
        let address = pc.address.wrapping_sub(pc.is_return.into());
        places.push(Place { address, lines: shared(&frames, shown) });
    }
    places.retain(is_shown);
    places
}

fn is_shown(place: &Place) -> bool {
    place.lines.first().is_some_and(|frame| &*frame.function != EXIT)
}

/// All functions of a return address, but wrappers around them; and how many of the addresses behind it stand for these functions.
fn whole(loaded: &Loaded, pc: u64, behind: &[u64]) -> (Place, usize) {
    let (Named { frames, implied }, address) = (loaded.named(pc), pc.wrapping_sub(1));
    if frames.len() <= 1 {
        return (Place { address, lines: frames }, 0);
    }
    let mut elision = Elision::default();
    let (mut lines, mut followers, mut follow) = (Vec::with_capacity(frames.len()), 0, true);
    for (at, frame) in frames.iter().enumerate() {
        let is_shown = elision.shows(frame.role) || at == 0;
        let follows = at > 0 && follow && implied.get(at - 1).is_some_and(|pc| behind.get(followers) == Some(pc));
        followers += usize::from(follows);
        // A wrapper is left out of both; whatever else is missing ends the row.
        follow = at == 0 || follow && (follows || !is_shown);
        if is_shown || follows {
            lines.push(frame);
        }
    }
    (Place { address, lines: shared(&frames, lines) }, followers)
}

/// The frames that are shown; where they are all of them, without a copy.
fn shared(frames: &Frames, shown: Vec<&Frame>) -> Frames {
    if shown.len() == frames.len() { Frames::clone(frames) } else { shown.into_iter().cloned().collect() }
}
