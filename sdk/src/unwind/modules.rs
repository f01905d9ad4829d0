//! Which executables and libraries are loaded where, and their unwind tables.
//!
//! In: the dynamic loader's list (`dl_iterate_phdr(3)`) and the vDSO. Out: [`Modules`] for the unwinder, for symbolizing and
//! for the mappings of a profile. Read by `start` and the `profiler` thread, never by the handler.
//!
//! Tables of the executable and of the vDSO are used where they are, for these are never unloaded; tables of libraries
//! are copied, for the handler may still use them when a library goes away.

use std::ffi::{CStr, OsStr};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Arc, OnceLock};

use super::cfi;
use super::tables::{Tables, UnwindTables};
use crate::fork;

/// The link to the running program.
const EXECUTABLE: &str = "/proc/thread-self/exe";

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
    /// What is loaded now. Modules that are in `known` are shared with it: a `dlopen` costs the tables of what it loads,
    /// not those of everything.
    pub(crate) fn read(known: &Self) -> Self {
        let mut reading = Reading { known, modules: Self::default() };
        // SAFETY: `add` is a callback of the required signature and receives the pointer to `reading`, which outlives
        //         the call (dl_iterate_phdr(3)).
        fork::apart(|| unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut reading).cast()) });
        reading.add_vdso();
        let Self { modules, changes, .. } = reading.modules;
        Self::of(modules, changes, false)
    }

    /// These, whose code does not overlap.
    pub(crate) fn of(modules: Vec<Arc<Module>>, changes: (u64, u64), in_doubt: bool) -> Self {
        let segments = modules.iter().enumerate();
        let mut code: Vec<_> =
            segments.flat_map(|(n, module)| module.segments.iter().map(move |one| (one.clone(), n))).collect();
        code.sort_unstable_by_key(|(segment, _)| segment.start);
        Self { modules, code, changes, in_doubt }
    }

    /// The loader's counters now; a difference to [`Modules::changes`] says that modules came or went.
    pub(crate) fn changes_now() -> (u64, u64) {
        unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: libc::size_t, data: *mut libc::c_void) -> i32 {
            // SAFETY: the loader passes a valid `info`, and `data` is the pair below (dl_iterate_phdr(3)).
            unsafe { *data.cast::<(u64, u64)>() = ((*info).dlpi_adds, (*info).dlpi_subs) };
            1
        }
        let mut changes = (0_u64, 0_u64);
        // SAFETY: as in `read`; the callback ends the iteration at once.
        fork::apart(|| unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut changes).cast()) });
        changes
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

/// A list of modules that is being made.
struct Reading<'a> {
    known: &'a Modules,
    modules: Modules,
}

impl Reading<'_> {
    /// Adds the vDSO, which the C library does not list in a static program with musl.
    fn add_vdso(&mut self) {
        let start = vdso();
        if start == 0 || self.modules.modules.iter().any(|module| module.range.start == start) {
            return;
        }
        // SAFETY: the kernel maps a whole ELF image there, for as long as the process lives (vdso(7)): its header, and the
        //         program headers where that says.
        let headers = unsafe {
            let header = &*(start as *const libc::Elf64_Ehdr);
            let place = (start + header.e_phoff) as *const libc::Elf64_Phdr;
            slice::from_raw_parts(place, usize::from(header.e_phnum))
        };
        let first = headers.iter().find(|header| header.p_type == libc::PT_LOAD);
        let image = Image { bias: start.wrapping_sub(first.map_or(0, |load| load.p_vaddr)), headers };
        self.modules.modules.extend(image.module(c"", false, self.known));
    }
}

/// Where the dynamic linker begins; 0: there is none.
pub(super) fn linker() -> u64 {
    // SAFETY: getauxval(3) only reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_BASE) }
}

/// Where the vDSO begins; 0: nowhere.
fn vdso() -> u64 {
    // SAFETY: getauxval(3) only reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) }
}

/// Adds one module: the callback of `dl_iterate_phdr`, which lists the executable first and the vDSO among the others.
///
/// # Safety
/// `info` must be the loader's description of a module that stays loaded for the call, `data` a `Reading`.
unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _size: libc::size_t, data: *mut libc::c_void) -> i32 {
    // SAFETY: contract of this function: `dl_iterate_phdr` passes its own structures and our pointer.
    let (info, reading) = unsafe { (&*info, &mut *data.cast::<Reading<'_>>()) };
    let Reading { known, modules } = reading;
    modules.changes = (info.dlpi_adds, info.dlpi_subs);
    let headers = if info.dlpi_phdr.is_null() {
        &[]
    } else {
        // SAFETY: `dlpi_phdr` points to `dlpi_phnum` program headers of a loaded module (dl_iterate_phdr(3)).
        unsafe { slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) }
    };
    let name = if info.dlpi_name.is_null() {
        c""
    } else {
        // SAFETY: a non-null `dlpi_name` is a C string that lives as long as the module (dl_iterate_phdr(3)).
        unsafe { CStr::from_ptr(info.dlpi_name) }
    };
    let is_executable = modules.modules.is_empty();
    let image = Image { bias: info.dlpi_addr, headers };
    modules.modules.extend(image.module(name, is_executable, known));
    0
}

/// A loaded ELF image: its program headers and where they were put.
struct Image<'a> {
    bias: u64,
    headers: &'a [libc::Elf64_Phdr],
}

impl Image<'_> {
    fn module(&self, name: &CStr, is_executable: bool, known: &Modules) -> Option<Arc<Module>> {
        let loads = || self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let range = loads().map(|load| self.span(load)).reduce(|all, load| {
            let (start, end) = (all.start.min(load.start), all.end.max(load.end));
            start..end
        })?;
        let executable = || loads().filter(|load| load.p_flags & libc::PF_X != 0);
        let code = executable().next()?;
        let (path, name) = self.path(name, is_executable, &range);
        let mut module = Module {
            bias: self.bias,
            code: self.span(code),
            code_offset: code.p_offset,
            segments: executable().map(|load| self.span(load)).collect(),
            build_id: self.build_id(),
            file_id: OnceLock::new(),
            unwind: self.unwind_tables(),
            range,
            path,
            name,
        };
        if let Some(same) = known.same(&module) {
            return Some(Arc::clone(same));
        }
        if !module.never_goes()
            && let Some(unwind) = &mut module.unwind
        {
            unwind.copy(cfi::end(unwind));
        }
        Some(Arc::new(module))
    }

    /// Where a segment is in memory.
    fn span(&self, header: &libc::Elf64_Phdr) -> Range<u64> {
        let start = self.bias.wrapping_add(header.p_vaddr);
        start..start.wrapping_add(header.p_memsz)
    }

    fn path(&self, name: &CStr, is_executable: bool, range: &Range<u64>) -> (Option<PathBuf>, String) {
        // Not `contains`: on aarch64 the kernel puts it into the gap between the segments of another module.
        if range.start == vdso() {
            return (None, "[vdso]".to_owned());
        }
        if is_executable {
            // The link leads to the running image even when its file was replaced or deleted.
            let name = std::fs::read_link(EXECUTABLE).map(|path| path.to_string_lossy().into_owned());
            return (Some(PathBuf::from(EXECUTABLE)), name.unwrap_or_else(|_| "[exe]".to_owned()));
        }
        // From the folder that the program is in: it may go to another one.
        let path = Path::new(OsStr::from_bytes(name.to_bytes()));
        (Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned())), name.to_string_lossy().into_owned())
    }

    /// The GNU build id, from the notes.
    ///
    /// Source: elf(5), "Notes (Nhdr)": name size, description size, type, then both padded to 4 bytes.
    fn build_id(&self) -> Option<String> {
        const NT_GNU_BUILD_ID: u32 = 3;
        let notes = self.headers.iter().filter(|header| header.p_type == libc::PT_NOTE);
        notes.map(|header| self.bytes(&self.span(header))).find_map(|mut notes| {
            while let Some((head, rest)) = notes.split_first_chunk::<12>() {
                let field = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
                let (name_size, description_size) = (field(0) as usize, field(4) as usize);
                let name = rest.get(..name_size)?;
                let description = rest.get(name_size.next_multiple_of(4)..)?.get(..description_size)?;
                if field(8) == NT_GNU_BUILD_ID && name == b"GNU\0" {
                    return Some(description.iter().map(|byte| format!("{byte:02x}")).collect());
                }
                notes = rest.get(name_size.next_multiple_of(4) + description_size.next_multiple_of(4)..)?;
            }
            None
        })
    }

    /// The unwind tables where they are.
    fn unwind_tables(&self) -> Option<UnwindTables> {
        let header = self.headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
        let header_range = self.span(header);
        let start = frames_start(self.bytes(&header_range), header_range.start)?;
        // The size of `.eh_frame` is not recorded; it ends in its segment at the latest, and entries are found by offset.
        let frames_range = start..self.segment(start)?.end;
        let table = |range: &Range<u64>| Tables::InPlace(self.bytes(range));
        Some(UnwindTables { header: table(&header_range), frames: table(&frames_range), header_range, frames_range })
    }

    /// The readable segment that holds `address`.
    fn segment(&self, address: u64) -> Option<Range<u64>> {
        let loads = self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let readable = loads.filter(|header| header.p_flags & libc::PF_R != 0);
        readable.map(|load| self.span(load)).find(|span| span.contains(&address))
    }

    /// Bytes of this image in memory; none, where the program headers say that they were not loaded. The lifetime is a lie
    /// for modules that can be unloaded; they are copied at once, while the loader's lock is held.
    fn bytes(&self, range: &Range<u64>) -> &'static [u8] {
        if !self.segment(range.start).is_some_and(|segment| (range.start..=segment.end).contains(&range.end)) {
            return &[];
        }
        // SAFETY: the range lies in a PT_LOAD segment of a loaded module, readable and, inside the callback of
        //         dl_iterate_phdr, not unloaded: the loader holds its lock. Segments with notes and unwind tables are
        //         read-only after relocation.
        unsafe { slice::from_raw_parts(range.start as *const u8, (range.end - range.start) as usize) }
    }
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

/// Address of `.eh_frame`, from the bytes and the address of `.eh_frame_hdr`.
///
/// Source: Linux Standard Base Core, ".eh_frame_hdr": version, encoding of the pointer, of the count, of the table;
/// then the pointer. Every linker writes it relative to itself in 32 signed bits (`DW_EH_PE_pcrel | DW_EH_PE_sdata4`), the
/// count in 32 bits (`udata4`), and the table in 32 signed bits relative to the header (`DW_EH_PE_datarel | …_sdata4`).
fn frames_start(header: &[u8], address: u64) -> Option<u64> {
    let (head, _) = header.split_first_chunk::<8>()?;
    let [1, 0x1b, 0x03, 0x3b, a, b, c, d] = *head else { return None };
    (address + 4).checked_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what stays loaded is shared between readings, and that another library at the place of one that is gone is
    /// not taken for it.
    #[test]
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    fn what_stays_loaded_is_read_once() {
        use crate::unwind::truth::folder::Folder;
        use crate::unwind::truth::libraries::compile;
        let before = Modules::read(&Modules::default());
        let folder = Folder::new("read_once");
        let open = |known: &Modules, source: &str| {
            let library = compile(&folder, "read_once", source, &["-Wl,--build-id=none"]);
            let path = std::ffi::CString::new(library.as_os_str().as_bytes()).unwrap();
            // SAFETY: dlopen(3) and dlclose(3) with a library that does nothing when it is opened or closed.
            let (modules, again) = unsafe {
                let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
                assert!(!handle.is_null());
                let modules = Modules::read(known);
                let again = Modules::read(&modules);
                libc::dlclose(handle);
                (modules, again)
            };
            let find = |modules: &Modules| modules.iter().find(|one| one.name.contains("read_once")).cloned().unwrap();
            assert!(Arc::ptr_eq(&find(&modules), &find(&again)));
            (find(&modules), modules)
        };
        // The same functions in another order: libraries of the same size, but with other tables.
        let (short, long) = ("{ return n + 1; }", "{ volatile char bytes[n]; return bytes[0]; }");
        let source = |one, two| format!("int one(int n) {one} int two(int n) {two}");
        let is_another = || {
            let (first, with_first) = open(&before, &source(short, long));
            // Other tests may open and close libraries meanwhile; the executable, the C library and the vDSO stay.
            let shared = before.iter().filter(|old| with_first.iter().any(|new| Arc::ptr_eq(old, new))).count();
            assert!(shared >= 3, "{shared}");
            let (second, _) = open(&with_first, &source(long, short));
            assert!(!Arc::ptr_eq(&first, &second));
            (first.range == second.range && first.code == second.code).then(|| assert_ne!(first.unwind, second.unwind))
        };
        assert!((0..50).any(|_| is_another().is_some()), "never at the same place");
    }

    /// Check that the executable, the C library and the vDSO are found, each with unwind tables, and by address.
    #[test]
    fn loaded_modules_are_found() {
        let modules = Modules::read(&Modules::default());
        let code = loaded_modules_are_found as *const () as u64;
        let own = modules.find(code).unwrap();
        assert_eq!(own.path.as_deref(), Some(std::path::Path::new("/proc/thread-self/exe")));
        assert!(own.code.contains(&code) && own.unwind.is_some());
        let libc = modules.find(libc::getpid as *const () as u64).unwrap();
        // A static program holds it itself.
        if !cfg!(target_feature = "crt-static") {
            assert!(libc.name.contains("libc") && matches!(libc.unwind.as_ref().unwrap().frames, Tables::Copied(_)));
            assert!(libc.build_id.as_ref().is_some_and(|id| id.len() == 40));
        }
        // The one for aarch64 has no table to search in.
        let has_tables = |module: &Module| module.unwind.is_some() || cfg!(target_arch = "aarch64");
        assert!(modules.iter().any(|module| module.name == "[vdso]" && has_tables(module)));
        // Other tests open and close libraries meanwhile.
        let read = || (Modules::changes_now(), Modules::read(&modules).changes, Modules::changes_now());
        let (now, changes, _) = std::iter::repeat_with(read).find(|(before, _, after)| before == after).unwrap();
        assert_eq!(changes, now);
        assert!(modules.find(0).is_none());
    }
}
