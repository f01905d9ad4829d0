//! Where the symbols of a loaded module are: in its own file, or in one that was split off.
//!
//! In: a loaded module. Out: its [`Files`]. A file counts only if it is the one that is loaded, or belongs to it: the build
//! id says so, else the first bytes, else the checksum in the debug link. Only local folders are read, never the network.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use gimli::Reader;

use super::bytes::Cursor;
use super::dwarf::Debug;
use super::elf::Elf;
use super::pace::{Pace, Unreadable};
use super::symtab::{self, Linked};
use crate::unwind::modules::Module;

/// How many of the first bytes of two files tell whether they are the same where neither has a build id: the linker writes
/// sizes and positions of everything there.
const HEAD: u64 = 4096;

/// Why a file that is there has no names for the one that was loaded.
const REPLACED: &str = "another file is there now than was loaded";
/// The same, where neither has a build id.
const UNLIKE: &str = "it has no build id, and either another file is there now than was loaded or the memory of this process cannot be read to compare them";

/// Why a file has no names for functions of its own.
const STRIPPED: &str = "it was stripped (strip = true in the Cargo profile?), and no file with its symbols was found";

/// Largest file of which a checksum is made.
const MAX_CHECKSUM: u64 = 4 << 30;

/// Where debug information is kept apart from programs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Folders {
    /// `/usr/lib/debug`: by build id, and by the path of the program.
    pub(super) system: PathBuf,
    /// What debuginfod clients fetched before, by build id.
    caches: Vec<PathBuf>,
}

impl Folders {
    /// The folders of this machine.
    ///
    /// Source: debuginfod(7), `$DEBUGINFOD_CACHE_PATH`, `$XDG_CACHE_HOME`, `$HOME`.
    pub(crate) fn new(lookup: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let folder = |name: &str| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let caches = [
            folder("DEBUGINFOD_CACHE_PATH"),
            folder("XDG_CACHE_HOME").map(|cache| cache.join("debuginfod_client")),
            folder("HOME").map(|home| home.join(".cache/debuginfod_client")),
            folder("HOME").map(|home| home.join(".debuginfod_client_cache")),
        ];
        let caches = caches.into_iter().flatten().filter(|path| path.is_absolute()).collect();
        Self { system: PathBuf::from("/usr/lib/debug"), caches }
    }

    /// The files that may hold the debug information of the build with this id.
    fn by_build_id(&self, id: &str) -> Vec<PathBuf> {
        let Some((first, rest)) = id.split_at_checked(2).filter(|(_, rest)| !rest.is_empty()) else {
            return Vec::new();
        };
        let system = self.system.join(".build-id").join(first).join(format!("{rest}.debug"));
        let cached = self.caches.iter().map(|cache| cache.join(id).join("debuginfo"));
        [system].into_iter().chain(cached).collect()
    }

    /// The files that a debug link in `program` may name.
    fn by_link(&self, program: &Path, name: &str) -> Vec<PathBuf> {
        let Some(folder) = program.parent().filter(|folder| folder.is_absolute()) else { return Vec::new() };
        let below_root = folder.strip_prefix("/").unwrap_or(folder);
        vec![folder.join(name), folder.join(".debug").join(name), self.system.join(below_root).join(name)]
    }
}

/// The open files of a module.
pub(super) struct Files {
    /// The module's own file, if it is still there.
    own: Option<Elf>,
    /// The file that was split off.
    split: Option<Elf>,
    /// Why there are no names, if anybody can do something about it: there is neither; or, of the executable alone, neither has any. Libraries are often stripped, and
    /// name what they export.
    pub(super) missing: Option<String>,
    /// What is known of the debug information; found out when it is first asked for.
    debug: Option<Result<Debug, Unreadable>>,
}

impl Files {
    /// Finds and opens the files of a module.
    ///
    /// # Errors
    /// When the process has no descriptor or memory left for it: then it is worth another try.
    pub(super) async fn open(module: &Module, folders: &Folders, pace: &mut Pace) -> io::Result<Self> {
        let mut opened = match &module.path {
            Some(path) => Elf::open(path),
            None => Elf::vdso(&module.range),
        };
        let mut why = opened.as_ref().err().map(ToString::to_string);
        // Where /proc is not mounted, the program has a path still.
        if opened.as_ref().is_err_and(|error| !is_shortage(error)) && module.is_executable() {
            opened = Elf::open(Path::new(&module.name));
        }
        let mut own = usable(opened)?;
        if let Some(file) = own.take_if(|file| !is_loaded(file, module)) {
            why = Some(if file.build_id.is_some() || module.build_id.is_some() { REPLACED } else { UNLIKE }.to_owned());
        }
        let mut split = None;
        if module.path.is_some() && !own.as_ref().is_some_and(|own| own.has(".debug_info")) {
            split = find_split(module, own.as_ref(), folders, pace).await?;
        }
        let is_missing = module.path.is_some() && own.is_none() && split.is_none();
        let has_names = |file: &Elf| file.has(".symtab") || file.has(".debug_info");
        let is_stripped = module.is_executable() && ![&own, &split].into_iter().flatten().any(has_names);
        let missing = why.filter(|_| is_missing).or_else(|| is_stripped.then(|| STRIPPED.to_owned()));
        Ok(Self { own, split, missing, debug: None })
    }

    /// Whether there are line tables.
    pub(super) fn have_lines(&self) -> bool {
        [&self.own, &self.split].into_iter().flatten().any(|file| file.has(".debug_line"))
    }

    /// What the debug information says, `None` where there is none that can be read.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) async fn debug(&mut self, pace: &mut Pace) -> Option<Result<&Debug, &Unreadable>> {
        if self.debug.is_none() {
            let file = [&self.own, &self.split].into_iter().flatten().find(|file| file.has(".debug_info"))?;
            self.debug = Some(Debug::open(file, pace).await);
        }
        self.debug.as_ref().map(Result::as_ref)
    }

    /// Whether the debug information is of the kind that is not worth another try.
    pub(super) fn lead_in_circles(&self) -> bool {
        matches!(self.debug, Some(Err(Unreadable::TooLong)))
    }

    /// The linker's names of the functions at these addresses.
    ///
    /// # Errors
    /// What is wrong with the symbol table.
    pub(super) async fn functions(&self, wanted: &[u64], pace: &mut Pace) -> Result<Linked, Unreadable> {
        let files = || [&self.own, &self.split].into_iter().flatten();
        match files().find(|file| file.has(".symtab")).or_else(|| files().next()) {
            Some(file) => symtab::functions(file, wanted, pace).await,
            None => Ok(Linked::default()),
        }
    }
}

/// A file that is missing or malformed is one that says nothing; that the process is short of something is an error.
fn usable(opened: io::Result<Elf>) -> io::Result<Option<Elf>> {
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if is_shortage(&error) => Err(error),
        Err(error) => {
            if error.kind() != ErrorKind::NotFound {
                tracing::debug!(%error, "a file with symbols cannot be read");
            }
            Ok(None)
        }
    }
}

/// Whether another try may do better.
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// Whether the file is the one that is loaded: it may have been replaced since.
fn is_loaded(file: &Elf, module: &Module) -> bool {
    // The vDSO was read from memory.
    if module.path.is_none() {
        return true;
    }
    match (&file.build_id, &module.build_id) {
        (None, None) => begins_alike(file.head(HEAD), module),
        (file, module) => file == module,
    }
}

/// Whether a module begins in memory as its file does, of which this is the head.
pub(super) fn begins_alike(head: Option<Cursor>, module: &Module) -> bool {
    let in_file = head.map(|mut head| bytes(&mut head));
    let loaded = Elf::loaded_head(&module.range, HEAD).map(|mut head| bytes(&mut head));
    in_file.zip(loaded).is_some_and(|(file, loaded)| !file.is_empty() && loaded.starts_with(&file))
}

fn bytes(source: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What cannot be read is missing, and makes the two differ.
    source.read_to_end(&mut bytes).map_or_else(|_| Vec::new(), |_| bytes)
}

/// The file that was split off from a module, by build id, then by the debug link in the module's own file.
async fn find_split(module: &Module, own: Option<&Elf>, folders: &Folders, pace: &mut Pace) -> io::Result<Option<Elf>> {
    let holds_symbols = |file: &Elf| file.has(".debug_info") || file.has(".symtab");
    if let Some(id) = &module.build_id {
        for path in folders.by_build_id(id) {
            let file = usable(Elf::open(&path))?;
            if let Some(file) = file.filter(|file| file.build_id.as_ref() == Some(id) && holds_symbols(file)) {
                return Ok(Some(file));
            }
        }
    }
    let Some((name, checksum)) = own.and_then(Elf::debug_link) else { return Ok(None) };
    for path in folders.by_link(Path::new(&module.name), &name) {
        let Some(file) = usable(Elf::open(&path))?.filter(holds_symbols) else { continue };
        let belongs = match (&file.build_id, &module.build_id) {
            (Some(file), Some(module)) => file == module,
            _ => checksum_of(&file, pace).await.is_ok_and(|found| found == checksum),
        };
        if belongs {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// The CRC-32 of a whole file.
async fn checksum_of(file: &Elf, pace: &mut Pace) -> Result<u32, Unreadable> {
    let mut source = file.whole().filter(|file| file.len() as u64 <= MAX_CHECKSUM).ok_or(gimli::Error::Io)?;
    let mut checksum = flate2::Crc::new();
    let mut chunk = [0; 16 << 10];
    loop {
        let read = source.read(&mut chunk).map_err(|_| gimli::Error::Io)?;
        if read == 0 {
            return Ok(checksum.sum());
        }
        checksum.update(&chunk[..read]);
        if pace.step(16)? {
            pace.rest().await;
        }
    }
}
