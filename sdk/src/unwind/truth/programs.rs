//! Programs in single steps: what Rust and C code does all day, and what is rare and hard.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::hint::black_box;
use std::ptr;

use super::assembly::{WITH_FRAME_POINTER, WITH_TABLES, read_first, run_on_stack};
use super::stepper::{Run, handle};
use super::variants::both;
use crate::unwind::frames::StackEnd;
use crate::unwind::modules::Modules;

/// Calls functions in assembly.
fn call_all(functions: &[unsafe extern "C" fn(u64) -> u64]) {
    for function in functions {
        for number in 0..4 {
            // SAFETY: functions of this signature that read no memory but their own stack.
            black_box(unsafe { function(number) });
        }
    }
}

fn recurse(depth: u64) -> u64 {
    if depth == 0 { 1 } else { black_box(recurse(black_box(depth - 1))) + depth }
}

/// Memory for a stack.
struct Memory(Vec<u8>);

impl Memory {
    fn new(size: usize) -> Self {
        Self(vec![0; size])
    }

    fn range(&self) -> std::ops::Range<u64> {
        let start = self.0.as_ptr() as u64;
        start..start + self.0.len() as u64
    }

    fn top(&self) -> *mut libc::c_void {
        // Inside the range even before anything is pushed.
        ((self.range().end - 1) & !63) as *mut _
    }
}

/// Check that hand-written functions with call frame information are known at every instruction: leaves, tail calls, early
/// returns, realigned stacks, frames found by other registers.
#[test]
fn assembly_with_tables_is_known() {
    let steps = Run::new().check(|| call_all(&WITH_TABLES));
    assert!(steps > 400, "{steps}");
}

/// Check that functions without call frame information are known by their frame pointers, prologue and epilogue included,
/// and leaves without either by the call that led to them.
#[test]
fn assembly_without_tables_is_known_by_frame_pointer() {
    let steps = Run::new().check(|| call_all(&WITH_FRAME_POINTER));
    assert!(steps > 100, "{steps}");
}

/// Check that ordinary Rust is known at every instruction, with the allocator and the formatting of the standard library.
#[test]
fn rust_is_known() {
    trait Shape {
        fn area(&self) -> f64;
    }
    struct Square(f64);
    impl Shape for Square {
        fn area(&self) -> f64 {
            self.0 * self.0
        }
    }
    fn generic<T: Ord + Copy>(values: &mut [T]) -> Option<T> {
        values.sort_unstable();
        values.first().copied()
    }
    let steps = Run::new().check(|| {
        let mut text = String::new();
        write!(text, "{:>12.3} {:?} {:x}", 1234.5, Some("text"), 255).unwrap();
        let words: Vec<String> = (0..8).map(|n| format!("{text}{n}")).collect();
        let map: HashMap<&str, usize> = words.iter().map(|word| (word.as_str(), word.len())).collect();
        let tree: BTreeMap<_, _> = map.iter().map(|(key, value)| (*value, *key)).collect();
        let shapes: Vec<Box<dyn Shape>> = vec![Box::new(Square(2.0)), Box::new(Square(3.0))];
        let area: f64 = shapes.iter().map(|shape| shape.area()).sum();
        let mut numbers: Vec<u64> = (0..40_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let add = |n: u64| move |m: u64| n + m;
        black_box((generic(&mut numbers), area, tree.len(), add(1)(2), recurse(40)));
    });
    assert!(steps > 50_000, "{steps}");
}

/// Check that futures are known: state machines that are polled.
#[test]
fn futures_are_known() {
    async fn leaf(number: u64) -> u64 {
        black_box(number) + 1
    }
    async fn branch(depth: u64) -> u64 {
        if depth == 0 { leaf(1).await } else { Box::pin(branch(depth - 1)).await + leaf(depth).await }
    }
    let steps = Run::new().check(|| {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut future = Box::pin(branch(6));
        assert!(future.as_mut().poll(&mut context).is_ready());
    });
    assert!(steps > 1000, "{steps}");
}

/// Check that the C library is known, with callbacks into Rust, and the vDSO.
#[test]
fn the_c_library_is_known() {
    extern "C" fn compare(left: *const libc::c_void, right: *const libc::c_void) -> i32 {
        // SAFETY: qsort(3) passes pointers to elements, which are numbers.
        unsafe { (*left.cast::<i64>()).cmp(&*right.cast::<i64>()) as i32 }
    }
    let steps = Run::new().check(|| {
        let mut numbers: Vec<i64> = (0..64).map(|n| (n * 37) % 64).collect();
        let mut text = [0_u8; 256];
        // SAFETY: calls of the C library as their pages say, on memory that is ours.
        unsafe {
            libc::qsort(numbers.as_mut_ptr().cast(), numbers.len(), 8, Some(compare));
            libc::snprintf(
                text.as_mut_ptr().cast(),
                text.len(),
                c"%s %d %.17g %p".as_ptr(),
                c"text".as_ptr(),
                42,
                0.1,
                1_usize,
            );
            libc::strtod(c"3.14159265358979e-200".as_ptr(), ptr::null_mut());
            let mut now = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
            libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now);
            libc::time(ptr::null_mut());
            let mut time = std::mem::zeroed();
            libc::gmtime_r(&now.tv_sec, &raw mut time);
            libc::strftime(text.as_mut_ptr().cast(), text.len(), c"%A %B %c".as_ptr(), &raw const time);
            libc::free(libc::realloc(libc::malloc(100), 10_000));
            libc::free(libc::calloc(1000, 1000));
            libc::getenv(c"PATH".as_ptr());
            libc::sysconf(libc::_SC_NPROCESSORS_ONLN);
            libc::usleep(1);
            let file = libc::fopen(c"/proc/self/status".as_ptr(), c"r".as_ptr());
            libc::fgets(text.as_mut_ptr().cast(), 256, file);
            libc::fclose(file);
        }
        assert!(numbers.is_sorted());
    });
    assert!(steps > 20_000, "{steps}");
}

/// Check that the dynamic loader is known while it opens, looks up and closes.
#[test]
fn the_dynamic_loader_is_known() {
    let steps = Run::new().check(|| {
        // SAFETY: dlopen(3), dlsym(3) and dlclose(3) with the C library itself.
        unsafe {
            let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null() && !libc::dlsym(library, c"getpid".as_ptr()).is_null());
            libc::dlclose(library);
        }
    });
    assert!(steps > 4_000, "{steps}");
}

/// Check that a signal handler, its return and what it interrupted are known, on the stack of the thread.
#[test]
fn a_signal_handler_is_known() {
    let steps = Run::new().check(|| {
        handle(libc::SIGUSR1, 0, || call_all(&WITH_TABLES));
        // SAFETY: raise(3); the handler is there.
        unsafe { libc::raise(libc::SIGUSR1) };
    });
    assert!(steps > 400, "{steps}");
}

/// Check the same for a handler on an alternate stack.
#[test]
fn a_signal_handler_on_another_stack_is_known() {
    let memory = Memory::new(1 << 18);
    let (range, stack) = (memory.range(), memory.0.as_ptr() as usize);
    let steps = Run::new().with_stack(range).check(|| {
        handle(libc::SIGUSR2, libc::SA_ONSTACK, || call_all(&WITH_TABLES));
        let stack = libc::stack_t { ss_sp: stack as *mut _, ss_flags: 0, ss_size: 1 << 18 };
        // SAFETY: sigaltstack(2) with memory that outlives its use; raise(3).
        unsafe {
            let mut old = std::mem::zeroed();
            assert_eq!(libc::sigaltstack(&raw const stack, &raw mut old), 0);
            libc::raise(libc::SIGUSR2);
            assert_eq!(libc::sigaltstack(&raw const old, ptr::null_mut()), 0);
        }
    });
    assert!(steps > 400, "{steps}");
}

/// Check that a function that a signal caught at its very first instruction is known, where the byte before belongs to
/// another one.
#[test]
fn a_signal_at_the_first_instruction_is_known() {
    use std::sync::atomic::{AtomicPtr, Ordering};
    static PAGE: AtomicPtr<libc::c_void> = AtomicPtr::new(ptr::null_mut());
    // SAFETY: a fresh anonymous mapping that nobody may read (mmap(2)).
    let page =
        unsafe { libc::mmap(ptr::null_mut(), 4096, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    PAGE.store(page, Ordering::Relaxed);
    let steps = Run::new().check(|| {
        handle(libc::SIGSEGV, 0, || {
            // SAFETY: the page made above; from now on it is read (mprotect(2)).
            unsafe { libc::mprotect(PAGE.load(Ordering::Relaxed), 4096, libc::PROT_READ) };
        });
        assert_eq!(read_first(PAGE.load(Ordering::Relaxed).cast()), 0);
        // SAFETY: signal(2).
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    });
    // SAFETY: unmaps what was mapped above.
    unsafe { libc::munmap(page, 4096) };
    assert!(steps > 20, "{steps}");
}

/// Check that code on a stack of its own is known through to the thread's root, as `stacker` and coroutines run it.
#[test]
fn code_on_another_stack_is_known() {
    extern "C" fn work() {
        call_all(&WITH_TABLES);
        black_box(format!("{}", recurse(20)));
    }
    let memory = Memory::new(1 << 18);
    let (range, top) = (memory.range(), memory.top() as usize);
    let steps = Run::new().with_stack(range).check(|| run_on_stack(work, top as *mut _));
    assert!(steps > 1000, "{steps}");
}

/// Check that from inside a coroutine the walk leads to the root of the thread that resumed it, as `backtrace` has it.
#[test]
fn coroutines_are_known() {
    use corosensei::{Coroutine, CoroutineResult};
    #[inline(never)]
    fn deeper(yielder: &corosensei::Yielder<u64, u64>, depth: u64) -> u64 {
        if depth > 0 {
            return deeper(yielder, depth - 1) + 1;
        }
        let (end, ours, theirs) = both();
        // The trampoline between the stacks says of itself that it is a signal frame: its caller's address is taken as it is.
        let differing = ours.iter().zip(&theirs).filter(|(ours, theirs)| *ours != *theirs).count();
        let farthest = ours.iter().zip(&theirs).map(|(ours, theirs)| ours.abs_diff(*theirs)).max();
        assert_eq!((end, ours.len(), farthest.max(Some(1))), (StackEnd::Root, theirs.len(), Some(1)));
        assert!(differing <= 1 && ours.len() > 10, "{ours:x?} {theirs:x?}");
        yielder.suspend(1)
    }
    let mut work = Coroutine::new(|yielder, first: u64| first + deeper(yielder, 3) + deeper(yielder, 12));
    let mut resumed = 0;
    while let CoroutineResult::Yield(_) = work.resume(recurse(resumed)) {
        resumed += 1;
    }
    assert_eq!(resumed, 2);
}

/// Check that the stack is known while a panic unwinds it: raise, search, cleanup, catch.
#[test]
fn a_panic_is_known() {
    struct Cleanup;
    impl Drop for Cleanup {
        fn drop(&mut self) {
            black_box(recurse(3));
        }
    }
    fn fail(depth: u64) {
        let _cleanup = Cleanup;
        if depth == 0 {
            std::panic::resume_unwind(Box::new(7));
        }
        fail(depth - 1);
    }
    // When it has found the landing pad, libgcc puts the registers for it where its own callers saved theirs. Until it jumps,
    // there is no stack to be known.
    let modules = Modules::read(&Modules::default());
    let libgcc = modules.iter().find(|module| module.name.contains("libgcc_s")).unwrap().range.clone();
    let steps = Run::new().except(libgcc).check(|| {
        assert!(std::panic::catch_unwind(|| fail(black_box(4))).is_err());
    });
    assert!(steps > 10_000, "{steps}");
}
