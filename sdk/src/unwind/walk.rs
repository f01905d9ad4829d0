//! The walk itself: from the interrupted instruction, caller by caller, to the root.
//!
//! In: registers, modules with their unwind tables, stack memory. Out: addresses in [`Frames`]. [`Snapshot`] is made by the
//! `profiler` thread and only read afterwards; [`Cache`] is scratch that one handler at a time owns. Where no tables speak of
//! an address, the frame pointer is followed. The walk runs in the signal handler: no allocation, no lock, bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::arch::{Registers, code, frame_pointer};
use super::cfi::{self, Row};
use super::cursor::Cursor;
use super::frames::{Frames, StackEnd};
use super::memory::StackMemory;
use super::modules::Modules;
use super::rules::{Cache, Step};
use super::tables::UnwindTables;

/// The modules as they were at one time; never changed once made.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) modules: Arc<Modules>,
    /// Different from that of every other snapshot of this process but for its copies, which have the same modules.
    generation: u64,
}

/// What came of a step.
pub(crate) enum Stepped {
    ToCaller,
    AtRoot,
    /// There are no tables, and the caller could not be found.
    Unknown,
    /// The caller could not be found, or could not be read.
    Lost,
}

impl From<Option<()>> for Stepped {
    fn from(done: Option<()>) -> Self {
        done.map_or(Self::Lost, |()| Self::ToCaller)
    }
}

impl Snapshot {
    /// Everything that is loaded now. What is in `known` is not read again.
    pub(crate) fn take(known: &Modules) -> Self {
        Self::of(Modules::read(known))
    }

    /// With these modules.
    pub(crate) fn of(modules: Modules) -> Self {
        static GENERATIONS: AtomicU64 = AtomicU64::new(1);
        Self { modules: Arc::new(modules), generation: GENERATIONS.fetch_add(1, Ordering::Relaxed) }
    }

    /// What tells it from others of the same time.
    pub(crate) fn number(&self) -> u8 {
        self.generation as u8
    }

    /// Fills `frames` with the stack that `registers` stand on. Callable from a signal handler.
    pub(crate) fn walk(
        &self,
        registers: &Registers,
        cache: &mut Cache,
        memory: &mut StackMemory<'_>,
        frames: &mut Frames,
    ) -> StackEnd {
        cache.begin(self.generation);
        let mut cursor = Cursor::new(registers);
        loop {
            if !frames.push(cursor.address()) {
                return StackEnd::TooDeep;
            }
            match self.step(&mut cursor, cache, memory) {
                Stepped::ToCaller if cursor.pc == 0 => return StackEnd::Root,
                Stepped::ToCaller => {}
                Stepped::AtRoot => return StackEnd::Root,
                Stepped::Unknown => return StackEnd::Unknown,
                Stepped::Lost => return StackEnd::Unreadable,
            }
        }
    }

    /// Where the function begins that holds `address`, as its unwind tables say.
    #[cfg(feature = "heap")]
    pub(crate) fn function_at(&self, address: u64) -> Option<u64> {
        cfi::start_of_function(self.tables(address)?, address)
    }

    fn step(&self, cursor: &mut Cursor, cache: &mut Cache, memory: &mut StackMemory<'_>) -> Stepped {
        let address = cursor.address();
        let row = || self.tables(address).and_then(|tables| Some((tables, cfi::row(tables, address)?)));
        let before = cursor.is_exact.then(|| cursor.clone());
        let stepped = match cache.step(address, || row().map_or(Step::NoTables, |(_, row)| Step::of_row(&row))) {
            Step::Frame(frame) => cursor.apply(frame, memory).into(),
            Step::Root => Stepped::AtRoot,
            Step::Evaluate => row().and_then(|(tables, row)| evaluate(&row, tables, cursor, memory)).into(),
            Step::NoTables => {
                return match frame_pointer::step(cursor, memory) {
                    Stepped::Lost => Stepped::Unknown,
                    stepped => stepped,
                };
            }
        };
        // Some hand-written functions push and do not say so in their tables. Only a leaf can be caught by that.
        if let Some(before) = before
            && matches!(stepped, Stepped::ToCaller)
            && !cursor.is_exact
            && self.modules.find(cursor.address()).is_none()
            && let Some(function) = self.tables(address).and_then(|tables| cfi::start_of_function(tables, address))
            && let Some(repaired) = frame_pointer::repaired(&before, cursor.pc, function, memory)
        {
            *cursor = repaired;
        }
        stepped
    }

    fn tables(&self, address: u64) -> Option<&UnwindTables> {
        self.modules.find(address)?.unwind.as_ref()
    }
}

/// Moves to the caller by a row that is more than numbers.
fn evaluate(row: &Row, tables: &UnwindTables, cursor: &mut Cursor, memory: &mut StackMemory<'_>) -> Option<()> {
    // The kernel's own tables for aarch64 leave the interrupted instruction out; the frame that it wrote has all of it.
    if row.is_signal_frame
        && let Some(registers) = code::interrupted(cursor.pc, cursor.sp, memory)
    {
        cursor.resume(&registers);
        return Some(());
    }
    cursor.apply_row(row, tables, memory)
}
