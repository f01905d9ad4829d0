//! Code in no module: machine code in a fresh mapping, as just-in-time compilers make it.
//!
//! In: instructions. Out: whole stacks where the code keeps frame pointers; else stacks that end, and say so, at the code.

use std::hint::black_box;
use std::ptr;

use super::stepper::Run;

/// Machine code in memory of its own, with nothing before and behind it that can be read.
pub(super) struct Code {
    page: *mut libc::c_void,
    offset: usize,
}

const SIZE: usize = 4096;

// SAFETY: nothing is changed after the code was made.
unsafe impl Sync for Code {}

impl Code {
    /// At the start of a page.
    pub(super) fn new(instructions: &[u8]) -> Self {
        Self::at(0, instructions)
    }

    /// That many bytes behind the start of a page.
    fn at(offset: usize, instructions: &[u8]) -> Self {
        let (flags, protection) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a fresh anonymous mapping, large enough for what is written to it; then made executable (mmap(2)).
        let start = unsafe {
            let guarded = libc::mmap(ptr::null_mut(), 3 * SIZE, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(guarded, libc::MAP_FAILED);
            let start = guarded.byte_add(SIZE);
            assert_eq!(libc::mprotect(start, SIZE, protection), 0);
            start.byte_add(offset).cast::<u8>().copy_from_nonoverlapping(instructions.as_ptr(), instructions.len());
            assert_eq!(libc::mprotect(start, SIZE, libc::PROT_READ | libc::PROT_EXEC), 0);
            start
        };
        Self { page: start, offset }
    }

    pub(super) fn address(&self) -> u64 {
        self.page as u64 + self.offset as u64
    }

    fn call(&self, back: extern "C" fn()) {
        // SAFETY: the instructions are those of a function that calls its argument and returns.
        let code: extern "C" fn(extern "C" fn()) = unsafe { std::mem::transmute(self.page.byte_add(self.offset)) };
        code(back);
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped.
        unsafe { libc::munmap(self.page.byte_sub(SIZE), 3 * SIZE) };
    }
}

/// `push rbp; mov rbp, rsp; push rbx; sub rsp, 24; call rdi; add rsp, 24; pop rbx; pop rbp; ret`
pub(super) const FRAMED: [u8; 18] =
    [0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x83, 0xec, 24, 0xff, 0xd7, 0x48, 0x83, 0xc4, 24, 0x5b, 0x5d, 0xc3];

/// `sub rsp, 24; call rdi; add rsp, 24; ret`
const UNFRAMED: [u8; 11] = [0x48, 0x83, 0xec, 24, 0xff, 0xd7, 0x48, 0x83, 0xc4, 24, 0xc3];

extern "C" fn back() {
    black_box(format!("{:?}", black_box([1.5, 2.5])));
}

/// Check that code with frame pointers is known at every instruction, and what it calls is known through it, at the start and
/// at the end of what can be read, too.
#[test]
fn framed_code_in_no_module_is_known() {
    for offset in [0, 100, SIZE - FRAMED.len()] {
        let code = Code::at(offset, &FRAMED);
        let steps = Run::new().check(|| code.call(back));
        assert!(steps > 500, "{steps}");
    }
}

/// Check that stacks through code without frame pointers are right as far as they go, and say that they are not whole.
#[test]
fn unframed_code_in_no_module_ends_the_walk() {
    let code = Code::new(&UNFRAMED);
    let steps = Run::new().may_stop_in(code.address()..code.address() + SIZE as u64).check(|| code.call(back));
    assert!(steps > 500, "{steps}");
}
