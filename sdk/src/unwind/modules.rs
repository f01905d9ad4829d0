//! Which executables and libraries are loaded where, and their unwind tables.
//!
//! In: modules as the loader lists them (`listing`). Out: [`Modules`] for the unwinder, for symbolizing and
//! for the mappings of a profile. Read by `start` and the `profiler` thread, never by the handler.
//!
//! Tables of the executable and of the vDSO are used where they are, for these are never unloaded; tables of libraries
//! are copied, for the handler may still use them when a library goes away.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Arc, OnceLock};

use super::tables::UnwindTables;

/// The link to the running program.
pub(super) const EXECUTABLE: &str = "/proc/thread-self/exe";

/// All modules that were loaded at one time; or at several ([`super::changes`]).
#[derive(Debug, Default)]
pub(crate) struct Modules {
    /// In the loader's order: what was loaded later stands behind.
    pub(super) modules: Vec<Arc<Module>>,
    /// Every segment of code, sorted by address, and its module's place in `modules`. One module may lie between the segments
    /// of another; segments do not overlap.
    code: Vec<(Range<u64>, usize)>,
    /// The loader's counters at that time: modules ever added, ever removed.
    pub(crate) changes: (u64, u64),
    /// Where these have no code, there may have been some of others.
    pub(crate) in_doubt: bool,
}

/// An executable, a library or the vDSO.
#[derive(Debug)]
pub(crate) struct Module {
    /// From its first to its last loaded byte.
    pub(crate) range: Range<u64>,
    /// Address in memory − address in the file's program headers.
    pub(crate) bias: u64,
    /// Where it can be opened; the vDSO cannot.
    pub(crate) path: Option<PathBuf>,
    /// What to call it: the file's path, or `[vdso]`.
    pub(crate) name: String,
    /// The code segment that the mapping of a profile shows: its address range and its offset in the file.
    pub(crate) code: Range<u64>,
    pub(crate) code_offset: u64,
    /// All segments of code.
    pub(crate) segments: Vec<Range<u64>>,
    /// GNU build id (`NT_GNU_BUILD_ID`), hexadecimal.
    pub(crate) build_id: Option<String>,
    /// What names the build where there is none, if anything does; empty until somebody needs it.
    pub(crate) file_id: OnceLock<Option<String>>,
    pub(crate) unwind: Option<UnwindTables>,
}

impl Module {
    /// Whether this is the program itself or the vDSO, which are never unloaded.
    pub(super) fn never_goes(&self) -> bool {
        self.is_executable() || self.path.is_none()
    }

    /// Whether this is the program itself.
    pub(crate) fn is_executable(&self) -> bool {
        self.path.as_deref().is_some_and(|path| path == Path::new(EXECUTABLE))
    }
}

impl Modules {
    /// These, whose code does not overlap.
    pub(crate) fn of(modules: Vec<Arc<Module>>, changes: (u64, u64), in_doubt: bool) -> Self {
        let segments = modules.iter().enumerate();
        let mut code: Vec<_> =
            segments.flat_map(|(n, module)| module.segments.iter().map(move |one| (one.clone(), n))).collect();
        code.sort_unstable_by_key(|(segment, _)| segment.start);
        Self { modules, code, changes, in_doubt }
    }

    /// The module whose code holds `address`. In what else it loads there is no code: the address is then of a module that
    /// was there at another time.
    pub(crate) fn find(&self, address: u64) -> Option<&Module> {
        let next = self.code.partition_point(|(segment, _)| segment.start <= address);
        let (_, module) = self.code.get(next.checked_sub(1)?).filter(|(segment, _)| segment.contains(&address))?;
        self.modules.get(*module).map(Arc::as_ref)
    }

    /// All of them, in the loader's order.
    pub(crate) fn iter(&self) -> slice::Iter<'_, Arc<Module>> {
        self.modules.iter()
    }

    /// The module here that is of the same file in the same place.
    pub(super) fn same(&self, module: &Module) -> Option<&Arc<Module>> {
        self.modules.iter().find(|one| one.is_same(module))
    }

    /// A state in which only this module is loaded.
    #[cfg(test)]
    pub(crate) fn only(module: Module) -> Self {
        Self::of(vec![Arc::new(module)], (1, 0), false)
    }
}

/// Where the dynamic linker begins; 0: there is none.
pub(super) fn linker() -> u64 {
    // SAFETY: getauxval(3) only reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_BASE) }
}

/// Where the vDSO begins; 0: nowhere.
pub(super) fn vdso() -> u64 {
    // SAFETY: getauxval(3) only reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) }
}

impl Module {
    /// A library of three pages at `start`, the one in the middle of which is code.
    #[cfg(test)]
    pub(crate) fn at(start: u64, build_id: &str) -> Self {
        let code = start + 0x1000..start + 0x2000;
        let (segments, build_id) = (vec![code.clone()], Some(build_id.to_owned()));
        let (range, name) = (start..start + 0x3000, "/lib/plugin.so".to_owned());
        Self {
            range,
            bias: start,
            path: Some(PathBuf::from(&name)),
            name,
            code,
            code_offset: 0,
            segments,
            build_id,
            file_id: OnceLock::new(),
            unwind: None,
        }
    }

    /// Whether the other one is of the same file in the same place. Where there is no build id, the tables themselves tell.
    fn is_same(&self, other: &Self) -> bool {
        self.range == other.range
            && (self.bias, &self.code) == (other.bias, &other.code)
            && (&self.name, &self.build_id) == (&other.name, &other.build_id)
            && (self.build_id.is_some() || self.unwind == other.unwind)
    }
}
