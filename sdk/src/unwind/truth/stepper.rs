//! Runs code in single steps and checks the walk after each one.
//!
//! In: a function. Out: how many instructions it took; a panic that lists what was wrong. The trap flag of the processor is set
//! for the calling thread, and the handler of SIGTRAP runs after every instruction, on the interrupted stack, with the
//! registers that the kernel saved: exactly what a handler of SIGPROF would find there. It does not allocate, for the code
//! in steps may be the allocator.

use std::arch::global_asm;
use std::cell::Cell;
use std::fmt::Write as _;
use std::ops::Range;
use std::ptr;
use std::sync::Once;

use super::shadow::Shadow;
use crate::unwind::arch::{FRAME_POINTER, REGISTERS, Registers};
use crate::unwind::frames::{Frames, StackEnd};
use crate::unwind::memory::{StackMemory, Window};
use crate::unwind::modules::Modules;
use crate::unwind::rules::Cache;
use crate::unwind::walk::Snapshot;

global_asm!(
    // fn(work, argument): calls `work(argument)` in single steps.
    ".pushsection .text.truth,\"ax\",@progbits",
    ".type truth_step, @function",
    ".globl truth_step; .hidden truth_step",
    "truth_step:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "pushfq",
    "or qword ptr [rsp], 0x100",
    "popfq",
    "call rax",
    "pushfq",
    "and qword ptr [rsp], -0x101",
    "popfq",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size truth_step, . - truth_step",
    // fn(signal, info, context): the handler of a signal of code in single steps.
    ".type truth_handler, @function",
    ".globl truth_handler; .hidden truth_handler",
    "truth_handler:",
    ".cfi_startproc",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "mov rdi, rdx",
    "call {begin_signal}",
    "pushfq",
    "or qword ptr [rsp], 0x100",
    "popfq",
    "call rax",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".size truth_handler, . - truth_handler",
    ".popsection",
    begin_signal = sym begin_signal,
);

unsafe extern "C" {
    fn truth_handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void);
    fn truth_step(work: extern "C" fn(*mut libc::c_void), argument: *mut libc::c_void);
}

/// Most mistakes that are listed.
const LISTED: usize = 12;

/// Most frames of each.
const SHOWN: usize = 64;

/// What a thread in single steps needs.
struct Stepper {
    snapshot: Snapshot,
    cache: Cache,
    frames: Frames,
    window: Window,
    shadow: Shadow,
    own_stack: Range<u64>,
    steps: u64,
    wrong: u64,
    /// Room made beforehand.
    mistakes: Vec<Mistake>,
    listed: usize,
    /// Where the walk is known to be wrong, by no fault of its own.
    except: Vec<Range<u64>>,
    excepted: u64,
    /// Where the walk may end.
    may_stop_in: Option<Range<u64>>,
    look: Option<fn()>,
}

/// A walk that went wrong.
struct Mistake {
    registers: Registers,
    end: StackEnd,
    walked: Vec<u64>,
    truth: Vec<u64>,
}

impl Default for Mistake {
    fn default() -> Self {
        let room = || Vec::with_capacity(SHOWN);
        Self { registers: Registers::new([0; REGISTERS]), end: StackEnd::Root, walked: room(), truth: room() }
    }
}

thread_local! {
    static IN_HANDLER: Cell<fn()> = const { Cell::new(|| ()) };
    static STEPPER: Cell<*mut Stepper> = const { Cell::new(ptr::null_mut()) };
}

/// A run in single steps.
#[derive(Default)]
pub(super) struct Run {
    others: Vec<Range<u64>>,
    except: Vec<Range<u64>>,
    may_stop_in: Option<Range<u64>>,
    look: Option<fn()>,
}

impl Run {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Code may change to this stack.
    pub(super) fn with_stack(mut self, stack: Range<u64>) -> Self {
        self.others.push(stack);
        self
    }

    /// No mistake is one with its leaf in this code.
    pub(super) fn except(mut self, code: Range<u64>) -> Self {
        self.except.push(code);
        self
    }

    /// The walk may end in this code, if it says so.
    pub(super) fn may_stop_in(mut self, code: Range<u64>) -> Self {
        self.may_stop_in = Some(code);
        self
    }

    /// `look` runs behind every instruction, too, in the handler of the trap. It must not allocate.
    #[cfg(all(feature = "opentelemetry", feature = "tracing-layer"))]
    pub(super) fn look(mut self, look: fn()) -> Self {
        self.look = Some(look);
        self
    }

    /// Runs `work` on a thread of its own and checks every instruction; how many there were.
    pub(super) fn check(self, work: impl FnOnce() + Send) -> u64 {
        let step = || self.check_here(work);
        let builder = std::thread::Builder::new().stack_size(64 << 20);
        std::thread::scope(|scope| {
            builder.spawn_scoped(scope, step).unwrap().join().unwrap_or_else(|why| std::panic::resume_unwind(why))
        })
    }

    /// The same on the calling thread.
    pub(super) fn check_here<F: FnOnce()>(self, work: F) -> u64 {
        extern "C" fn call<F: FnOnce()>(work: *mut libc::c_void) {
            // SAFETY: `work` is the Option below, which outlives the call.
            let work = unsafe { &mut *work.cast::<Option<F>>() };
            work.take().unwrap()();
        }
        handle_traps();
        let mut stepper = Stepper::new(self);
        let mut work = Some(work);
        STEPPER.set(&raw mut stepper);
        // SAFETY: `truth_step` calls `call::<F>` with its argument.
        unsafe { truth_step(call::<F>, (&raw mut work).cast()) };
        STEPPER.set(ptr::null_mut());
        stepper.verdict()
    }
}

/// A signal handler whose own code, what `work` does in it, and whose return are in single steps.
pub(super) fn handle(signal: libc::c_int, flags: libc::c_int, work: fn()) {
    IN_HANDLER.set(work);
    // SAFETY: sigaction(2) with a handler of the signature that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = truth_handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | flags;
        assert_eq!(libc::sigaction(signal, &raw const action, ptr::null_mut()), 0);
    }
}

/// Called by `truth_handler` at full speed: a signal begins.
extern "C" fn begin_signal(context: *const libc::c_void) -> extern "C" fn() {
    extern "C" fn work() {
        IN_HANDLER.get()();
    }
    // SAFETY: the stepper of this thread lives while its code runs, and its trap handler does not run now; `context` is what
    //         the kernel gave the handler.
    unsafe {
        let registers = Registers::of_signal_frame(&*context.cast());
        (*STEPPER.get()).shadow.signal(registers.pc, context as u64);
    }
    work
}

fn own_stack() -> Range<u64> {
    // SAFETY: pthread_getattr_np(3) fills the attributes of the calling thread, which pthread_attr_getstack(3) reads.
    unsafe {
        let mut attributes = std::mem::zeroed();
        assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes), 0);
        let (mut start, mut size) = (ptr::null_mut(), 0);
        assert_eq!(libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut size), 0);
        libc::pthread_attr_destroy(&raw mut attributes);
        start as u64..start as u64 + size as u64
    }
}

/// The return addresses of the calling function's callers, root first, as libgcc's unwinder has them.
#[inline(never)]
fn callers_of_caller() -> Vec<u64> {
    let mut addresses = Vec::new();
    backtrace::trace(|frame| {
        addresses.push(frame.ip() as u64);
        true
    });
    let own = callers_of_caller as *const () as u64;
    let start = |ip: &u64| backtrace_function(*ip) == own;
    let place = addresses.iter().position(start).unwrap();
    addresses.drain(..place + 2);
    // Behind the root.
    addresses.retain(|address| *address != 0);
    addresses.reverse();
    addresses
}

/// The start of the function that holds `ip`.
fn backtrace_function(ip: u64) -> u64 {
    unsafe extern "C" {
        fn _Unwind_FindEnclosingFunction(pc: *mut libc::c_void) -> *mut libc::c_void;
    }
    // SAFETY: libgcc's unwinder looks the address up in the tables of the loaded modules.
    unsafe { _Unwind_FindEnclosingFunction((ip - 1) as *mut libc::c_void) as u64 }
}

impl Stepper {
    #[inline(always)]
    fn new(run: Run) -> Self {
        let root = callers_of_caller();
        Self {
            snapshot: Snapshot::take(&Modules::default()),
            cache: Cache::new(),
            frames: Frames::new(),
            window: Window::new(),
            shadow: Shadow::new(&root, run.others),
            own_stack: own_stack(),
            steps: 0,
            wrong: 0,
            mistakes: (0..LISTED).map(|_| Mistake::default()).collect(),
            listed: 0,
            except: run.except,
            may_stop_in: run.may_stop_in,
            look: run.look,
            excepted: 0,
        }
    }

    fn step(&mut self, registers: &Registers) {
        if let Some(look) = self.look {
            look();
        }
        if self.steps == 0 {
            // The first instruction in steps was the call out of `truth_step`, whose own return address is above its frame
            // pointer.
            self.shadow.call(registers.values[usize::from(FRAME_POINTER)] + 8);
        }
        self.steps += 1;
        self.shadow.step(registers.pc, registers.sp);
        let stack = if self.own_stack.contains(&registers.sp) { registers.sp..self.own_stack.end } else { 0..0 };
        // SAFETY: from the stack pointer to the end of this thread's stack.
        let mut memory = unsafe { StackMemory::new(stack, &mut self.window, std::process::id()) };
        self.frames.clear();
        let end = self.snapshot.walk(registers, &mut self.cache, &mut memory, &mut self.frames);
        let truth = || std::iter::once(registers.pc).chain(self.shadow.addresses().rev());
        let walked = || self.frames.parts().into_iter().flatten().copied();
        if end == StackEnd::Root && walked().eq(truth()) {
            return;
        }
        let stops = |code: &Range<u64>| walked().last().is_some_and(|last| code.contains(&last));
        if end == StackEnd::Unknown
            && self.may_stop_in.as_ref().is_some_and(stops)
            && walked().zip(truth()).all(|(a, b)| a == b)
        {
            return;
        }
        if self.except.iter().any(|code| code.contains(&registers.pc)) {
            self.excepted += 1;
            return;
        }
        self.wrong += 1;
        let same = |one: &Mistake| one.registers.pc == registers.pc;
        if self.listed < LISTED && !self.mistakes[..self.listed].iter().any(same) {
            let mistake = &mut self.mistakes[self.listed];
            (mistake.registers, mistake.end) = (*registers, end);
            mistake.walked.extend(walked().take(SHOWN));
            mistake.truth.extend(truth().take(SHOWN));
            self.listed += 1;
        }
    }

    fn verdict(self) -> u64 {
        let Self { steps, wrong, mut mistakes, listed, excepted, .. } = self;
        mistakes.truncate(listed);
        let mut text = String::new();
        for Mistake { registers, end, walked, truth } in mistakes {
            let same = walked.iter().rev().zip(truth.iter().rev()).take_while(|(a, b)| a == b).count();
            let names = |stack: &[u64]| stack[..stack.len() - same].iter().map(|at| name(*at)).collect::<Vec<_>>();
            let code: Vec<u8> = (0..12)
                // SAFETY: code that was executed.
                .map(|at| unsafe { *((registers.pc + at) as *const u8) })
                .collect();
            writeln!(
                text,
                "at {} {code:02x?} sp {:#x} end {end:?}, {same} frames right\n  walked {:?}\n  truth  {:?}",
                name(registers.pc),
                registers.sp,
                names(&walked),
                names(&truth)
            )
            .unwrap();
        }
        assert!(excepted * 50 <= steps, "{excepted} of {steps} steps are excepted");
        println!("{steps} instructions: {wrong} stacks wrong, {excepted} excepted");
        assert_eq!(wrong, 0, "{wrong} of {steps} stacks are wrong:\n{text}");
        steps
    }
}

/// A function's name and the offset in it.
fn name(address: u64) -> String {
    let mut name = None;
    backtrace::resolve(address as *mut _, |symbol| {
        name =
            name.take().or_else(|| symbol.name().map(|name| format!("{name:#}").chars().take(60).collect::<String>()));
    });
    let start = backtrace_function(address + 1);
    let modules = Modules::read(&Modules::default());
    let module = modules
        .find(address)
        .map(|module| format!("{}+{:#x}", module.name.rsplit('/').next().unwrap(), address - module.bias));
    format!(
        "{}+{} ({})",
        name.unwrap_or_default(),
        address.wrapping_sub(start),
        module.unwrap_or_else(|| format!("{address:#x}"))
    )
}

fn handle_traps() {
    static ONCE: Once = Once::new();
    extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel's context; the stepper lives while its thread is in single steps.
        unsafe {
            let registers = Registers::of_signal_frame(&*context.cast());
            if let Some(stepper) = STEPPER.get().as_mut() {
                stepper.step(&registers);
            }
        }
    }
    ONCE.call_once(|| {
        // SAFETY: sigaction(2) with a handler of the signature that SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_trap as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()), 0);
        }
    });
}
