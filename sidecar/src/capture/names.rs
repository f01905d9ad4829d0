//! Names of addresses that are kept, and what the names of frames take that are held: each text once, whoever else has it.
//!
//! In: frames. Out: what was found of an address before; how many bytes frames keep from being freed. A program's tables may give any text for any address,
//! four kilobytes a name, so numbers of addresses alone bound nothing. On the thread that captures.

use std::sync::Arc;

use profiler_proto::hash::{Map, Set};

use crate::go::Frames;

/// Most addresses that are kept.
const KNOWN: usize = 1 << 16;
/// Bytes that names of addresses may take that are kept: of so many addresses, where texts are as long as in the largest real programs.
const BYTES: usize = 16 << 20;
/// What an entry of a table takes beside what it points to, and what a text takes beside its bytes.
const BESIDE: usize = 64;

/// What a return address stands for.
#[derive(Debug, Clone)]
pub struct Named {
    /// The functions, innermost first.
    pub frames: Frames,
    /// The addresses that stand for the functions around the innermost one, in stacks with one for each.
    pub implied: Arc<[u64]>,
}

/// What addresses stand for. All are forgotten when there is no room for one more, and looked up again, which is work that counts.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: Map<u64, Named>,
    held: Held,
}

impl Names {
    pub(super) fn known(&self, pc: u64) -> Option<&Named> {
        self.known.get(&pc)
    }

    /// What all of them take.
    pub(super) fn bytes(&self) -> usize {
        self.known.capacity() * size_of::<(u64, Named)>() + self.held.bytes()
    }

    pub(super) fn keep(&mut self, pc: u64, named: Named) {
        if self.known.len() >= KNOWN || self.held.bytes() >= BYTES {
            *self = Self::default();
        }
        self.held.hold(&named.frames);
        self.known.insert(pc, named);
    }
}

/// Frames that are held, as long as this is.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// By where they lie, which nothing else does as long as they are held.
    texts: Set<usize>,
    bytes: usize,
}

impl Held {
    /// Counts frames that are held from now on.
    pub(super) fn hold(&mut self, frames: &Frames) {
        self.bytes += BESIDE + size_of_val(&**frames);
        for text in frames.iter().flat_map(|frame| [&frame.function, &frame.file]) {
            if self.texts.insert(text.as_ptr().addr()) {
                self.bytes += BESIDE + text.len();
            }
        }
    }

    /// What all of them take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::go::{Frame, Role};

    fn frame(name: &Arc<str>) -> Frame {
        Frame { function: Arc::clone(name), file: Arc::clone(name), line: 1, start_line: 1, role: Role::default() }
    }

    /// Check that addresses with long names are kept as long as these have room, and that short ones are kept in any number that a program has.
    #[test]
    fn names_are_kept_within_bytes() {
        let (mut names, mut most) = (Names::default(), 0);
        for pc in 0..10_000 {
            let frames = [(); 4].map(|()| frame(&"x".repeat(8 << 10).into()));
            names.keep(pc, Named { frames: frames.into(), implied: Arc::default() });
            most = most.max(names.known.len());
            assert!(names.known(pc).is_some());
        }
        assert!((100..600).contains(&most), "{most}");
        let (mut names, name) = (Names::default(), "net/http.(*conn).serve".into());
        (0..1 << 16).for_each(|pc| names.keep(pc, Named { frames: [frame(&name)].into(), implied: Arc::default() }));
        assert!((0..1 << 16).all(|pc| names.known(pc).is_some()));
    }

    /// Check that a text that many frames have counts once, and each of its own.
    #[test]
    fn a_text_counts_once() {
        let (mut held, name) = (Held::default(), "x".repeat(4096).into());
        let same: Vec<Frames> = (0..1000).map(|_| [frame(&name), frame(&name)].into()).collect();
        same.iter().for_each(|frames| held.hold(frames));
        assert!((4096..300 * 1000).contains(&held.bytes()), "{}", held.bytes());
        let before = held.bytes();
        let others: Vec<Frames> = (0..1000).map(|_| [frame(&"x".repeat(4096).into())].into()).collect();
        others.iter().for_each(|frames| held.hold(frames));
        assert!((4096 * 1000..4500 * 1000).contains(&(held.bytes() - before)), "{}", held.bytes());
    }
}
