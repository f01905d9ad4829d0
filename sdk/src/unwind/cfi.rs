//! Unwinding by call frame information: `framehop` with everything it needs made beforehand.
//!
//! In: registers, modules with their unwind tables, stack memory. Out: addresses in [`Frames`]. [`Unwinder`] is built by
//! the `profiler` thread and only read afterwards; [`Cache`] is scratch that one handler at a time owns. Where a module
//! has no rules for an address, the frame pointer is followed. The walk runs in the signal handler and does not allocate
//! (`MustNotAllocateDuringUnwind`).

use std::fmt;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, MustNotAllocateDuringUnwind, Unwinder as _};

use super::frames::{Frames, StackEnd};
use super::memory::StackMemory;
use super::modules::{Module, Modules, Tables};
use super::x86_64::Registers;

/// The rules of all loaded modules; never changed once made.
pub(crate) struct Unwinder {
    inner: UnwinderX86_64<Tables, MustNotAllocateDuringUnwind>,
}

/// Memory that a walk needs and keeps: rules of addresses seen before, room to evaluate a rule in.
pub(crate) struct Cache {
    inner: CacheX86_64<MustNotAllocateDuringUnwind>,
}

impl Cache {
    pub(crate) fn new() -> Self {
        Self { inner: CacheX86_64::new_in() }
    }
}

impl Unwinder {
    /// An unwinder that knows these modules.
    pub(crate) fn new(modules: &Modules) -> Self {
        let mut inner = UnwinderX86_64::new();
        for module in modules.iter() {
            if let Some(info) = section_info(module) {
                let name = String::new();
                inner.add_module(framehop::Module::new(name, module.range.clone(), module.bias, info));
            }
        }
        Self { inner }
    }

    /// Fills `frames` with the stack that `registers` stand on. Callable from a signal handler.
    pub(crate) fn walk(
        &self,
        registers: Registers,
        cache: &mut Cache,
        memory: &mut StackMemory<'_>,
        frames: &mut Frames,
    ) -> StackEnd {
        let mut read = |address| memory.read(address);
        let mut walk = self.inner.iter_frames(registers.pc, registers.for_unwinding(), &mut cache.inner, &mut read);
        loop {
            let address = match walk.next() {
                // A return address points behind its call; the byte before it belongs to the call for certain.
                Ok(Some(frame @ FrameAddress::ReturnAddress(_))) => frame.address_for_lookup(),
                Ok(Some(FrameAddress::InstructionPointer(pc))) => pc,
                Ok(None) => return StackEnd::Root,
                Err(_) => return StackEnd::Stopped,
            };
            if !frames.push(address) {
                return StackEnd::TooDeep;
            }
        }
    }
}

/// Addresses in an ELF file are relative to the load bias, so the bias serves as the base and 0 as the base's address in
/// the file.
fn section_info(module: &Module) -> Option<ExplicitModuleSectionInfo<Tables>> {
    let unwind = module.unwind.as_ref()?;
    let relative = |range: &std::ops::Range<u64>| range.start - module.bias..range.end - module.bias;
    Some(ExplicitModuleSectionInfo {
        base_svma: 0,
        eh_frame_hdr_svma: Some(relative(&unwind.header_range)),
        eh_frame_hdr: Some(unwind.header.clone()),
        eh_frame_svma: Some(relative(&unwind.frames_range)),
        eh_frame: Some(unwind.frames.clone()),
        ..Default::default()
    })
}

impl fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwinder").finish_non_exhaustive()
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

/// The unwinder and the modules it was made of, as they were at one time.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) unwinder: Unwinder,
    pub(crate) modules: Arc<Modules>,
}

impl Snapshot {
    /// Everything that is loaded now.
    pub(crate) fn take() -> Self {
        let modules = Arc::new(Modules::read());
        Self { unwinder: Unwinder::new(&modules), modules }
    }
}
