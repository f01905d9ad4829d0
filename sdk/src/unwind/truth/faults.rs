//! Nothing that a walk finds makes it fault: registers, stacks and code that are not what they seem, or not there any more.
//!
//! In: registers made up for the purpose, memory that was unmapped a moment ago. Out: a stack that ends.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use super::folder::Folder;
use super::just_in_time::{Code, FRAMED};
use super::libraries::compile;
use crate::unwind::arch::{FRAME_POINTER, REGISTERS, RETURN_ADDRESS, Registers, STACK_POINTER};
use crate::unwind::frames::{Frames, LEAF, ROOT, StackEnd, WALK};
use crate::unwind::memory::{StackMemory, Window};
use crate::unwind::modules::Modules;
use crate::unwind::rules::Cache;
use crate::unwind::walk::Snapshot;

/// What walks need.
struct Walker {
    snapshot: Snapshot,
    cache: Cache,
    frames: Frames,
    window: Window,
}

impl Walker {
    fn new() -> Self {
        let snapshot = Snapshot::take(&Modules::default());
        Self { snapshot, cache: Cache::new(), frames: Frames::new(), window: Window::new() }
    }

    /// Walks from these registers, reading nothing directly.
    fn walk(&mut self, registers: &Registers) -> (StackEnd, Vec<u64>) {
        self.frames.clear();
        // SAFETY: the direct range is empty.
        let mut memory = unsafe { StackMemory::new(0..0, &mut self.window, std::process::id()) };
        let end = self.snapshot.walk(registers, &mut self.cache, &mut memory, &mut self.frames);
        (end, self.frames.parts().concat())
    }
}

fn registers(pc: u64, sp: u64, bp: u64) -> Registers {
    let mut values = [0; REGISTERS];
    values[usize::from(RETURN_ADDRESS)] = pc;
    values[usize::from(STACK_POINTER)] = sp;
    values[usize::from(FRAME_POINTER)] = bp;
    Registers::new(values)
}

/// Check that a walk ends without a fault from any combination of right, wrong, unaligned and unmapped registers.
#[test]
fn bad_registers_end_the_walk() {
    let mut walker = Walker::new();
    let code = Code::new(&FRAMED);
    let stack = [0_u64; 512];
    let gone = Code::new(&FRAMED).address();
    let own = bad_registers_end_the_walk as *const () as u64;
    let known =
        [0, 1, 8, 4096, gone, gone + 4, code.address() + 9, own, own + 30, libc::qsort as *const () as u64 + 50];
    let wrong =
        [stack.as_ptr() as u64, stack.as_ptr() as u64 + 3, u64::MAX, u64::MAX - 7, 1 << 47, 1 << 63, i64::MAX as u64];
    let all = [&known[..], &wrong[..]].concat();
    let mut walks = 0;
    for pc in &all {
        for sp in &all {
            for bp in &all {
                let (_, frames) = walker.walk(&registers(*pc, *sp, *bp));
                assert_eq!(frames[0], *pc);
                walks += 1;
            }
        }
    }
    assert_eq!(walks, all.len().pow(3));
}

/// Check that a walk that ends early says why: nothing tells the caller, or what does leads to where nothing can be read.
#[test]
fn an_early_end_has_its_reason() {
    let mut walker = Walker::new();
    let (code, stack) = (Code::new(&FRAMED), [0_u64; 512]);
    let (sp, nowhere) = (stack.as_ptr() as u64, 1 << 47);
    // In code with tables; in code without, with no call on its stack; where there is no code.
    let own = libc::qsort as *const () as u64;
    let ends =
        [(own, nowhere), (code.address() + 9, sp), (8, sp)].map(|(pc, sp)| walker.walk(&registers(pc, sp, sp)).0);
    assert_eq!(ends, [StackEnd::Unreadable, StackEnd::Unknown, StackEnd::Unknown]);
}

/// Check that a walk from every byte of the C library's code ends without a fault on a stack of noise.
#[test]
fn noise_ends_the_walk() {
    let mut walker = Walker::new();
    let modules = Modules::read(&Modules::default());
    let libc = modules.find(libc::qsort as *const () as u64).unwrap().code.clone();
    let mut random = 1_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 11
    };
    // Words that look like code, like this stack, and like nothing.
    let mut stack = vec![0_u64; 4096];
    let start = stack.as_ptr() as u64;
    for word in &mut stack {
        *word = match next() % 3 {
            0 => libc.start + next() % (libc.end - libc.start),
            1 => start + 8 * (next() % 4096),
            _ => next() << (next() % 40),
        };
    }
    for pc in libc.step_by(61) {
        let sp = start + 8 * (next() % 4000);
        let (_, frames) = walker.walk(&registers(pc, sp, stack[(next() % 4096) as usize]));
        assert_eq!(frames[0], pc);
    }
}

/// Check that the tables of a library still serve when the library is gone.
#[test]
fn a_library_that_is_gone_is_still_known() {
    let folder = Folder::new("gone");
    let library =
        compile(&folder, "gone", "long gone(long n) { volatile char a[88]; a[n] = 1; return a[n]; }", &["-O2"]);
    let path = CString::new(library.as_os_str().as_bytes()).unwrap();
    // By its name: once it is gone, another test's library may be in its place.
    let is_loaded = || Modules::read(&Modules::default()).iter().any(|module| module.name.contains("libgone.so"));
    // SAFETY: dlopen(3), dlsym(3), dlclose(3) with a library that does nothing when it is opened or closed.
    let (function, mut walker) = unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null());
        let function = libc::dlsym(handle, c"gone".as_ptr()) as u64;
        let walker = Walker::new();
        assert!(is_loaded());
        assert_eq!(libc::dlclose(handle), 0);
        (function, walker)
    };
    assert!(!is_loaded(), "it is still loaded");
    let stack: Vec<u64> = (1..100).map(|n| 0x1000_0000 + n).collect();
    // At its first instruction the return address is on top.
    let (_, frames) = walker.walk(&registers(function, stack.as_ptr() as u64, 0));
    assert_eq!(frames[..2], [function, stack[0] - 1]);
}

/// Goes down to `depth`, then hands over the registers.
#[inline(never)]
fn descend(depth: usize, found: &mut impl FnMut(&Registers)) {
    if depth > 0 {
        descend(depth - 1, found);
    } else {
        // SAFETY: getcontext(3) fills the structure.
        let context = unsafe {
            let mut context = std::mem::zeroed();
            assert_eq!(libc::getcontext(&raw mut context), 0);
            context
        };
        found(&Registers::of_signal_frame(&context));
    }
    std::hint::black_box(depth);
}

/// Check that of a deep stack the leaf and the root are kept, with the number of frames between, and that a walk ends
/// where its bound is.
#[test]
fn deep_stacks_keep_leaf_and_root() {
    let check = |depth: usize| {
        let mut walker = Walker::new();
        descend(depth, &mut |registers| {
            let (end, kept) = walker.walk(registers);
            let mut truth = Vec::new();
            backtrace::trace(|frame| {
                truth.push((frame.ip() as u64).wrapping_sub(1));
                frame.ip() as usize != 0
            });
            // Behind the root; and before the function that is walked from, whose own address differs.
            truth.retain(|address| *address != u64::MAX);
            let callers = truth.iter().position(|address| kept[1] == *address).unwrap();
            let whole = [&[registers.pc][..], &truth[callers..]].concat();
            assert!(whole.len() > depth);
            let seen = whole.len().min(WALK);
            let bound = if whole.len() >= WALK { StackEnd::TooDeep } else { StackEnd::Root };
            assert_eq!((end, usize::from(walker.frames.elided())), (bound, seen.saturating_sub(LEAF + ROOT)));
            assert_eq!(kept[..LEAF.min(seen)], whole[..LEAF.min(seen)]);
            assert_eq!(kept[kept.len() - ROOT.min(seen)..], whole[seen - ROOT.min(seen)..seen]);
        });
    };
    let deep = move || [50, 380, 500, 520, 700, 4000, 5000].into_iter().for_each(check);
    std::thread::Builder::new().stack_size(64 << 20).spawn(deep).unwrap().join().unwrap();
}
