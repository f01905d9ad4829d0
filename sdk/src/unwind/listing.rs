//! The loader's list of modules, read under its lock.
//!
//! In: `dl_iterate_phdr(3)`, the vDSO, the modules that are known. Out: modules, with copies of the tables of those that can be unloaded. For threads.
//!
//! While it calls back, the loader holds a lock that other threads need to load a library, and that unwinders of others take. So nothing is allocated there: a thread
//! in the allocator may hold its lock and wait for the loader's. What is there is copied into room that was made before; where that is too small, the list
//! is read anew with more.

use std::ffi::{CStr, OsStr};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Arc, OnceLock};

use super::cfi;
use super::image::Image;
use super::modules::{EXECUTABLE, Module, Modules, vdso};
use super::tables::{Tables, UnwindTables};
use crate::fork;

/// How often the list is read where it grows each time; then what has no room is left out, and found at the next change.
const TRIES: u32 = 8;

/// Room for a list.
#[derive(Default)]
struct Room {
    entries: Vec<Entry>,
    headers: Vec<libc::Elf64_Phdr>,
    /// Names, build ids, tables.
    bytes: Vec<u8>,
    /// How much of each there is to list, whether there is room or not.
    needed: [usize; 3],
    /// The loader's counters: modules ever added, ever removed.
    changes: (u64, u64),
}

/// A module of the list.
enum Entry {
    /// By its place among those.
    Known(usize),
    New(New),
}

/// What was copied of a module that was not known.
struct New {
    is_executable: bool,
    bias: u64,
    headers: Range<usize>,
    name: Range<usize>,
    build_id: Option<Range<usize>>,
    unwind: Option<Unwind>,
}

/// Unwind tables of a module that was not known.
enum Unwind {
    /// Of one that is never unloaded.
    InPlace(UnwindTables),
    Copied {
        header: Range<usize>,
        header_range: Range<u64>,
        frames: Range<usize>,
        frames_range: Range<u64>,
    },
}

impl Modules {
    /// What is loaded now. Modules that are in `known` are shared with it: a `dlopen` costs the tables of what it loads,
    /// not those of everything.
    pub(crate) fn read(known: &Self) -> Self {
        let (modules, changes) = list(known);
        Self::of(modules, changes, false)
    }

    /// The loader's counters now; a difference to [`Modules::changes`] says that modules came or went.
    pub(crate) fn changes_now() -> (u64, u64) {
        unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: libc::size_t, data: *mut libc::c_void) -> i32 {
            // SAFETY: the loader passes a valid `info`, and `data` is the pair below (dl_iterate_phdr(3)).
            unsafe { *data.cast::<(u64, u64)>() = ((*info).dlpi_adds, (*info).dlpi_subs) };
            1
        }
        let mut changes = (0_u64, 0_u64);
        // SAFETY: as in `list`; the callback ends the iteration at once.
        fork::apart(|| unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut changes).cast()) });
        changes
    }
}

/// The modules that are loaded now, those in `known` shared with it, and the loader's counters.
fn list(known: &Modules) -> (Vec<Arc<Module>>, (u64, u64)) {
    let mut room = Room::default();
    room.make([2 * known.iter().len(), 0, 0]);
    for _ in 0..TRIES {
        room.clear();
        let mut call = (known, &mut room);
        // SAFETY: `add` is a callback of the required signature and receives the pointer to `call`, which outlives the call (dl_iterate_phdr(3)).
        fork::apart(|| unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut call).cast()) });
        if room.is_enough() {
            break;
        }
        room.make(room.needed);
    }
    let changes = room.changes;
    let mut modules = room.modules(known);
    // The C library does not list it in a static program with musl.
    if vdso() != 0 && !modules.iter().any(|module| module.range.start == vdso()) {
        modules.extend(vdso_module(known));
    }
    (modules, changes)
}

/// Adds one module: the callback of `dl_iterate_phdr`, which lists the executable first and the vDSO among the others.
///
/// # Safety
/// `info` must be the loader's description of a module that stays loaded for the call, `data` a pair of the known modules and the room.
unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _size: libc::size_t, data: *mut libc::c_void) -> i32 {
    // SAFETY: contract of this function: `dl_iterate_phdr` passes its own structures and our pointer.
    let (info, (known, room)) = unsafe { (&*info, &mut *data.cast::<(&Modules, &mut Room)>()) };
    room.changes = (info.dlpi_adds, info.dlpi_subs);
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
    room.add(&Image { bias: info.dlpi_addr, headers }, name, known);
    0
}

/// The vDSO, from the image that the kernel maps.
fn vdso_module(known: &Modules) -> Option<Arc<Module>> {
    let start = vdso();
    // SAFETY: the kernel maps a whole ELF image there, for as long as the process lives (vdso(7)): its header, and the
    //         program headers where that says.
    let headers = unsafe {
        let header = &*(start as *const libc::Elf64_Ehdr);
        let place = (start + header.e_phoff) as *const libc::Elf64_Phdr;
        slice::from_raw_parts(place, usize::from(header.e_phnum))
    };
    let first = headers.iter().find(|header| header.p_type == libc::PT_LOAD);
    let image = Image { bias: start.wrapping_sub(first.map_or(0, |load| load.p_vaddr)), headers };
    let mut room = Room::default();
    room.make([2, headers.len(), SMALL]);
    // It stands behind the executable.
    room.needed = [1, 0, 0];
    room.add(&image, c"", known);
    room.modules(known).pop()
}

/// Enough for a build id.
const SMALL: usize = 256;

impl Room {
    fn clear(&mut self) {
        self.entries.clear();
        self.headers.clear();
        self.bytes.clear();
        self.needed = [0; 3];
    }

    /// Makes room for as much, and a quarter more: the list may grow.
    fn make(&mut self, [entries, headers, bytes]: [usize; 3]) {
        self.entries.reserve(entries + entries / 4);
        self.headers.reserve(headers + headers / 4);
        self.bytes.reserve(bytes + bytes / 4);
    }

    fn is_enough(&self) -> bool {
        let [entries, headers, bytes] = self.needed;
        entries <= self.entries.capacity() && headers <= self.headers.capacity() && bytes <= self.bytes.capacity()
    }

    /// Adds a module, as far as there is room. Does not allocate.
    fn add(&mut self, image: &Image<'_>, name: &CStr, known: &Modules) {
        let is_executable = self.needed[0] == 0;
        self.needed[0] += 1;
        if let Some(entry) = self.entry(image, name, is_executable, known)
            && self.is_enough()
        {
            self.entries.push(entry);
        }
    }

    fn entry(&mut self, image: &Image<'_>, name: &CStr, is_executable: bool, known: &Modules) -> Option<Entry> {
        let place = Place::of(image, is_executable)?;
        let removed = known.changes.1 != self.changes.1;
        if let Some(place) = known.iter().position(|one| is_known(one, image, name, &place, removed)) {
            return Some(Entry::Known(place));
        }
        Some(Entry::New(New {
            is_executable,
            bias: image.bias,
            headers: copied(&mut self.headers, &mut self.needed[1], image.headers),
            name: self.bytes(name.to_bytes()),
            build_id: image.build_id().map(|id| self.bytes(id)),
            unwind: image.unwind_tables().map(|tables| match place.never_goes {
                true => Unwind::InPlace(tables),
                false => self.tables(&tables),
            }),
        }))
    }

    fn bytes(&mut self, bytes: &[u8]) -> Range<usize> {
        copied(&mut self.bytes, &mut self.needed[2], bytes)
    }

    /// Copies the tables up to where their last entry ends, if that is known. What comes behind it in the segment is nobody's business here.
    fn tables(&mut self, tables: &UnwindTables) -> Unwind {
        let UnwindTables { header_range, frames_range, .. } = tables;
        let end = cfi::end(tables).unwrap_or(frames_range.end);
        let length = end.saturating_sub(frames_range.start) as usize;
        let frames = self.bytes(tables.frames.get(..length).unwrap_or(&tables.frames));
        let (header_range, frames_range) = (header_range.clone(), frames_range.clone());
        Unwind::Copied { header: self.bytes(&tables.header), header_range, frames, frames_range }
    }

    /// The modules that were listed.
    fn modules(mut self, known: &Modules) -> Vec<Arc<Module>> {
        let entries = std::mem::take(&mut self.entries);
        let module = |entry| match entry {
            Entry::Known(place) => known.iter().nth(place).map(Arc::clone),
            Entry::New(new) => self.module(new).map(Arc::new),
        };
        entries.into_iter().filter_map(module).collect()
    }

    /// The module of what was copied.
    fn module(&self, new: New) -> Option<Module> {
        let image = Image { bias: new.bias, headers: self.headers.get(new.headers)? };
        let Place { range, code, .. } = Place::of(&image, new.is_executable)?;
        let bytes = |range: Range<usize>| self.bytes.get(range).unwrap_or_default();
        let (path, name) = path(bytes(new.name), new.is_executable, &range);
        Some(Module {
            bias: new.bias,
            code: image.span(code),
            code_offset: code.p_offset,
            segments: image.executable().map(|load| image.span(load)).collect(),
            build_id: new.build_id.map(|id| bytes(id).iter().map(|byte| format!("{byte:02x}")).collect()),
            file_id: OnceLock::new(),
            unwind: new.unwind.map(|unwind| match unwind {
                Unwind::InPlace(tables) => tables,
                Unwind::Copied { header, header_range, frames, frames_range } => {
                    let copy = |range| Tables::Copied(bytes(range).into());
                    UnwindTables { header: copy(header), header_range, frames: copy(frames), frames_range }
                }
            }),
            range,
            path,
            name,
        })
    }
}

/// Copies `new` behind what is there, if there is room; counts it in any case.
fn copied<T: Copy>(room: &mut Vec<T>, needed: &mut usize, new: &[T]) -> Range<usize> {
    *needed += new.len();
    let start = room.len();
    if room.capacity() - start >= new.len() {
        room.extend_from_slice(new);
    }
    start..room.len()
}

/// Where an image is; `None` for one without code.
struct Place<'a> {
    range: Range<u64>,
    code: &'a libc::Elf64_Phdr,
    /// The program itself and the vDSO are never unloaded.
    never_goes: bool,
}

impl<'a> Place<'a> {
    fn of(image: &Image<'a>, is_executable: bool) -> Option<Self> {
        let range = image.range()?;
        let never_goes = is_executable || range.start == vdso();
        Some(Self { range, code: image.executable().next()?, never_goes })
    }
}

/// Whether a module is the one at this place: of the same file. Where there is no build id, nothing may have been `removed` since. Does not allocate.
fn is_known(module: &Module, image: &Image<'_>, name: &CStr, place: &Place<'_>, removed: bool) -> bool {
    let Place { range, code, never_goes } = place;
    if (&module.range, module.bias, &module.code) != (range, image.bias, &image.span(code)) {
        return false;
    }
    // The name of the program is of its file, which may have been moved; the vDSO has none.
    let has_name = if *never_goes { module.never_goes() } else { module.name.as_bytes() == name.to_bytes() };
    has_name
        && match (&module.build_id, image.build_id()) {
            (Some(text), Some(id)) => is_in_hexadecimal(text, id),
            (None, None) => *never_goes || (!removed && module.unwind == image.unwind_tables()),
            _ => false,
        }
}

/// Whether `text` says `bytes`, two small digits for each.
fn is_in_hexadecimal(text: &str, bytes: &[u8]) -> bool {
    let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
    text.len() == 2 * bytes.len() && text.bytes().eq(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]))
}

/// Where a module can be opened, and what to call it.
fn path(name: &[u8], is_executable: bool, range: &Range<u64>) -> (Option<PathBuf>, String) {
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
    let path = Path::new(OsStr::from_bytes(name));
    (Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned())), String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what is listed under the lock is listed as far as there is room, and counted whole, without an allocation; and that enough room then holds
    /// the same modules as were known.
    #[test]
    fn a_list_needs_no_allocation_under_the_lock() {
        let nothing = Modules::default();
        let list = |room: &mut Room, known: &Modules| {
            room.clear();
            let before = [room.entries.capacity(), room.headers.capacity(), room.bytes.capacity()];
            let mut call = (known, &mut *room);
            // SAFETY: as in `list`.
            unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut call).cast()) };
            assert_eq!([room.entries.capacity(), room.headers.capacity(), room.bytes.capacity()], before);
        };
        let mut room = Room::default();
        list(&mut room, &nothing);
        assert!(room.needed.iter().all(|needed| *needed > 0) && room.entries.is_empty(), "{:?}", room.needed);
        let [entries, ..] = room.needed;
        room.make([entries, 0, 0]);
        list(&mut room, &nothing);
        assert!(room.entries.is_empty() && !room.is_enough());
        let mut needed = room.needed;
        needed[2] /= 2;
        room.make(needed);
        room.bytes.shrink_to(needed[2]);
        list(&mut room, &nothing);
        assert!(!room.is_enough() && room.entries.len() < entries);
        let known = Modules::read(&nothing);
        let mut room = Room::default();
        // Other tests open libraries meanwhile.
        room.make([2 * entries, 0, 0]);
        list(&mut room, &known);
        // A static program is one module; others have the C library and the vDSO, too.
        let least = if cfg!(target_feature = "crt-static") { 1 } else { 3 };
        assert!(room.entries.iter().filter(|entry| matches!(entry, Entry::Known(_))).count() >= least);
    }

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
            // Without a build id, it is read anew where some library went meanwhile: other tests close theirs.
            let nothing_went = modules.changes.1 == again.changes.1;
            assert!(!nothing_went || Arc::ptr_eq(&find(&modules), &find(&again)));
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
