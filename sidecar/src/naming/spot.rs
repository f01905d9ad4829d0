//! What is known of one address of a process: its location, and what the walk needs to know of it.
//!
//! In: a place and what its binary says. Out: a [`Spot`], kept as long as the mappings stay as they are. Pure.

use std::sync::Arc;

use super::binary::Found;
use super::frame::{Kind, Line, Location, lines_of};
use super::space::{Place, Source};
use crate::go::{Elision, Role};

/// An address with names.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    /// As stacks show it; nothing where Go's own traces show nothing: wrappers, the very root.
    pub(super) shown: Option<Arc<Location>>,
    /// The same where it called a panic, which shows wrappers.
    shown_by_panic: Option<Arc<Location>>,
    /// What the physical function is to its caller.
    pub(super) role: Role,
    /// How far the stack pointer is below the return address, of Go, and of the kernel's library where it has no frame.
    pub(super) depth: Option<i32>,
    /// Whether its function sets the stack pointer as it likes, so that the depth may say nothing.
    pub(super) writes_sp: bool,
    /// Where its Go function begins, in the file's numbering, and in which mapping: equal for two addresses of one function.
    pub(super) entry: Option<(u64, u64)>,
    /// What it is to the walk.
    pub(super) part: Part,
    /// Whether it may be run at all.
    pub(super) executable: bool,
    /// Whether it has a name.
    pub(super) is_named: bool,
}

/// What a function is to the walk of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// One of Go.
    Go,
    /// One of Go that nothing called.
    GoRoot,
    /// Where Go leaves a goroutine's stack for want of room on it: what called this is there.
    GoGrowth,
    /// Where Go has a goroutine give way, on the thread's stack: another one may have its place by now.
    GoYield,
    /// Go's handler of signals: what stands behind it was interrupted, not calling.
    GoSignal,
    /// What Go's handler of signals has put on the stack: what stands behind it was interrupted, too.
    GoInjected,
    /// What has a function of the runtime's, in assembly, call C for it.
    GoToC,
    /// What C calls to call Go.
    GoFromC,
    /// The kernel's library in every process, which has frame pointers where it has frames.
    Vdso,
    /// Anything else.
    Native,
    /// `main`, which a library without frames called.
    Main,
    /// Where programs and threads of C begin.
    NativeRoot,
}

/// Functions in which programs and threads of C libraries begin. Source: glibc, musl: csu/, nptl/, sysdeps/.
const ROOTS: [&str; 10] = [
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "generic_start_main",
    "start_thread",
    "clone",
    "__clone",
    "clone3",
    "__clone3",
];

/// Functions of Go that called nothing: what goroutines return to, and signal handlers. Go's own profiles do not show them.
const HIDDEN: [&str; 3] = ["runtime.goexit", "runtime.sigreturn", "runtime.sigreturn__sigaction"];

impl Spot {
    /// What is known of `address`.
    pub(super) fn of(address: u64, place: &Place, found: &Found) -> Self {
        let kind = found.kind.unwrap_or(Kind::Native);
        let location = |lines: Arc<[Line]>| {
            let module = Some(Arc::clone(&place.image.module));
            Some(Arc::new(Location { address, module, lines, kind }))
        };
        let part = if place.image.source == Source::Vdso { Part::Vdso } else { part(found, kind) };
        let role = found.lines.last().map_or(Role::Normal, |(_, role)| *role);
        let entry = found.entry.map(|entry| (place.image.module.start, entry));
        let all = found.lines.len();
        let mut spot = Self {
            shown: None,
            shown_by_panic: None,
            role,
            depth: found.depth,
            writes_sp: found.writes_sp,
            entry,
            part,
            executable: place.executable,
            is_named: all > 0,
        };
        if all == 0 {
            let name = format!("{}+{:#x}", place.image.name, place.address);
            spot.shown = location(lines_of(&name));
            spot.shown_by_panic = spot.shown.clone();
            return spot;
        }
        if found.lines.last().is_some_and(|(line, _)| HIDDEN.contains(&&*line.function.name)) {
            return spot;
        }
        let usual = visible(&found.lines, Role::Normal);
        let by_panic = visible(&found.lines, Role::Panic);
        let is_same = usual.len() == by_panic.len();
        spot.shown = (!usual.is_empty()).then(|| location(usual.into())).flatten();
        spot.shown_by_panic = if is_same { spot.shown.clone() } else { location(by_panic.into()) };
        spot
    }

    /// An address of which nothing is known.
    pub(super) fn unknown(address: u64) -> Self {
        let lines = lines_of(&format!("[unknown]+{address:#x}"));
        let shown = Some(Arc::new(Location { address, module: None, lines, kind: Kind::Native }));
        let shown_by_panic = shown.clone();
        Self {
            shown,
            shown_by_panic,
            role: Role::Normal,
            depth: None,
            writes_sp: false,
            entry: None,
            part: Part::Native,
            executable: false,
            is_named: false,
        }
    }

    /// The location behind one of this role.
    pub(super) fn behind(&self, callee: Role) -> Option<&Arc<Location>> {
        match callee {
            Role::Panic | Role::SignalPanic => self.shown_by_panic.as_ref(),
            Role::Normal | Role::Wrapper => self.shown.as_ref(),
        }
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> usize {
        2 * size_of::<Self>() + self.shown.as_ref().map_or(0, |location| location.bytes())
    }
}

/// The lines that Go's own traces show behind a callee of this role.
fn visible(lines: &[(Line, Role)], callee: Role) -> Vec<Line> {
    let mut elision = Elision::default();
    elision.shows(callee);
    lines.iter().filter(|(_, role)| elision.shows(*role)).map(|(line, _)| line.clone()).collect()
}

fn part(found: &Found, kind: Kind) -> Part {
    let (name, role) = found.lines.last().map_or(("", Role::Normal), |(line, role)| (&*line.function.name, *role));
    match (kind, name) {
        // With cgo the kernel enters the second, which goes on to the first by a jump (runtime/os_linux.go, `setsig`).
        (Kind::Go, "runtime.sigtramp" | "runtime.cgoSigtramp") => Part::GoSignal,
        (Kind::Go, name) if role.is_injected(name) => Part::GoInjected,
        (Kind::Go, "runtime.morestack") => Part::GoGrowth,
        (Kind::Go, "runtime.goschedImpl" | "runtime.preemptPark") => Part::GoYield,
        (Kind::Go, "runtime.cgocall") => Part::GoToC,
        (Kind::Go, "crosscall2") => Part::GoFromC,
        // It never returns to who called it: it runs on another stack.
        (Kind::Go, "runtime.mcall") => Part::GoRoot,
        (Kind::Go, _) if found.is_top => Part::GoRoot,
        (Kind::Go, _) => Part::Go,
        (_, "main") => Part::Main,
        (_, name) if ROOTS.contains(&name) => Part::NativeRoot,
        _ => Part::Native,
    }
}
