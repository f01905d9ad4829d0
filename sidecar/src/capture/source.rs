//! One Go process that is captured: its program, where that is loaded, where its runtime keeps what is read.
//!
//! In: a process, and its program where that is known already. Out: [`Source`], which captures as often as it is asked. Finding takes some
//! milliseconds once for a process; it never writes into the process, never stops it, sends it no signal. Reads can wait where the process
//! wants them to (see [`crate::target::Memory`]): on a thread that can be left behind.

use std::cell::RefCell;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::elf;
use crate::error::Error;
use crate::go::layouts::{self, Layout};
use crate::go::{Program, Version};
use crate::target::{Device, Fault, Files, Identity, Process, State};

use super::awaited::{Awaited, Remote};
use super::contention::{self, Contention};
use super::figures::{self, RuntimeFigures};
use super::goroutines::{self, Goroutines};
use super::heap::{self, Heap};
use super::loaded::Loaded;
use super::modules::Modules;
use super::ticks::Speed;
use super::variables::Variables;

/// How much of a process is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Most buckets of each list: `--max-buckets`.
    pub buckets: usize,
    /// Most goroutines: `--max-goroutines`.
    pub goroutines: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { buckets: 100_000, goroutines: 100_000 }
    }
}

/// Where the program's code lies in the process and comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// Its first address in the process.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// The file.
    pub path: PathBuf,
}

/// A process that can be captured.
#[derive(Debug)]
pub struct Source {
    process: Process,
    loaded: Loaded,
    layout: Layout,
    variables: Variables,
    code: Code,
    image: Image,
    speed: Speed,
    modules: RefCell<Modules>,
    awaited: Awaited,
}

/// Which program a process runs, and which run of it: exec keeps the number and the time of the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Image {
    /// Not when its content changed: to touch a file that runs is no exec, and to write into it is not possible (`ETXTBSY`).
    exe: (Device, u64),
    /// Where code and stack begin, which each exec draws anew. Source: proc_pid_stat(5), fields 26 and 28.
    layout: (u64, u64),
}

impl Image {
    fn of(process: Process) -> Result<Self, Fault> {
        let (now, folder, stat) = Process::find_with(process.pid())?;
        if now != process || stat.state != State::Alive {
            return Err(Fault::Gone { pid: process.pid() });
        }
        Ok(Self { exe: Self::file(&Files::new(folder).exe()?.1), layout: stat.layout })
    }

    fn file(identity: &Identity) -> (Device, u64) {
        (identity.device, identity.inode)
    }
}

impl Source {
    /// Finds the runtime of the process `pid`.
    ///
    /// # Errors
    /// When there is no such process, it is not ours to look at, is no Go program, or one of a version that is not known.
    pub fn find(pid: u32) -> Result<Self, Error> {
        let (process, _) = Process::named(pid).map_err(|fault| refused(&fault))?;
        Self::of(process, Self::program_of(process, |_| None)?)
    }

    /// The program that a process runs now: the one that `known` has by that identity, else opened.
    ///
    /// # Errors
    /// When the process is gone, is not ours to look at, or is no Go program.
    pub fn program_of(
        process: Process,
        known: impl FnOnce(&Identity) -> Option<Arc<Program>>,
    ) -> Result<(Identity, Arc<Program>), Error> {
        let pid = process.pid();
        let (file, identity) = process.files().and_then(|files| files.exe()).map_err(|fault| refused(&fault))?;
        if let Some(program) = known(&identity) {
            return Ok((identity, program));
        }
        let what = format!("the program of process {pid}");
        let unread = |fault: elf::Fault| {
            Error::new(
                what.clone(),
                fault.to_string(),
                "only programs of ELF with 64 bits, built by Go, can be read; one that serves net/http/pprof can be pulled (`run --pull`)",
            )
        };
        let elf = Arc::new(elf::File::open(file).map_err(unread)?);
        let program = Program::open(elf).map_err(unread)?.ok_or_else(|| {
            Error::new(
                what.clone(),
                "not built by Go",
                "for other programs there are CPU profiles only: `profiler-sidecar record`",
            )
        })?;
        Ok((identity, Arc::new(program)))
    }

    /// Finds the runtime of a process whose program is known.
    ///
    /// # Errors
    /// When it is gone, not ours to look at, its version is not known, or the program is not mapped as its file says.
    pub fn of(process: Process, (exe, program): (Identity, Arc<Program>)) -> Result<Self, Error> {
        let refused = |fault| refused(&fault);
        let layout = layout(process.pid(), &program)?;
        let image = Image::of(process).map_err(refused)?;
        let (code, bias) = code(process, &program).map_err(refused)?;
        let loaded = Loaded::new(program, bias);
        let variables = Variables::find(&loaded, &process.memory(), &layout).map_err(refused)?;
        let source = Self {
            process,
            loaded,
            layout,
            variables,
            code,
            image,
            speed: Speed::default(),
            modules: RefCell::default(),
            awaited: Awaited::default(),
        };
        if image.exe != Image::file(&exe) || !source.is_same() {
            return Err(source.changed());
        }
        Ok(source)
    }

    /// Whether the process runs still what it ran when it was found.
    #[must_use]
    pub fn is_same(&self) -> bool {
        Image::of(self.process).is_ok_and(|image| image == self.image)
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> Process {
        self.process
    }

    /// The program in it.
    #[must_use]
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Where its code lies.
    #[must_use]
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Where its variables are.
    #[must_use]
    pub fn variables(&self) -> &Variables {
        &self.variables
    }

    /// The same, with variables that were found otherwise, or were not.
    #[must_use]
    pub fn with_variables(self, variables: Variables) -> Self {
        Self { variables, ..self }
    }

    /// From now on reads as long as it is waited for.
    pub fn read_while(&mut self, awaited: Awaited) {
        self.awaited = awaited;
    }

    /// Whether it is waited for.
    pub(crate) fn awaited(&self) -> &Awaited {
        &self.awaited
    }

    fn memory(&self) -> Remote<'_> {
        Remote { memory: self.process.memory(), pid: self.process.pid(), awaited: &self.awaited }
    }

    /// The heap as of now.
    ///
    /// # Errors
    /// When the process is gone, does not let us, or its runtime has no such variables.
    pub fn heap(&self, bounds: Bounds) -> Result<Heap, Error> {
        self.grow();
        let memory = self.memory();
        self.found("the heap profile", heap::heap(&memory, &self.loaded, &self.variables, &self.layout, bounds.buckets))
    }

    /// The goroutines as of now.
    ///
    /// # Errors
    /// As [`Self::heap`].
    pub fn goroutines(&self, bounds: Bounds) -> Result<Goroutines, Error> {
        self.grow();
        let memory = self.memory();
        let read = goroutines::goroutines(&memory, &self.loaded, &self.variables, &self.layout, bounds.goroutines);
        self.found("the goroutine profile", read)
    }

    /// The block or mutex profile as of now.
    ///
    /// # Errors
    /// As [`Self::heap`].
    pub fn contention(&self, kind: contention::Kind, bounds: Bounds) -> Result<Contention, Error> {
        self.grow();
        let memory = self.memory();
        let asked = (kind, bounds.buckets, &self.speed);
        self.found(
            &format!("the {} profile", kind.name()),
            contention::contention(&memory, &self.loaded, &self.variables, &self.layout, asked),
        )
    }

    /// Takes notice of plugins that it has loaded since. Without, what is read of it lacks what is in them, and says so.
    fn grow(&self) {
        if self.loaded.may_grow() {
            match self.modules.borrow_mut().come(self.process, &self.code) {
                Ok(new) => self.loaded.add(new),
                Err(why) => tracing::debug!(pid = self.process.pid(), "its plugins are not known: {why}"),
            }
        }
    }

    /// The runtime's figures as of now, without the number of goroutines.
    ///
    /// # Errors
    /// As [`Self::heap`].
    pub fn figures(&self) -> Result<RuntimeFigures, Error> {
        let figures = self.found("the figures", figures::figures(&self.process.memory(), &self.variables))?;
        let (_, _, stat) = Process::find_with(self.process.pid()).map_err(|fault| refused(&fault))?;
        Ok(RuntimeFigures { threads: stat.threads, ..figures })
    }

    /// What is said of a process that is not what it was.
    pub(super) fn changed(&self) -> Error {
        let pid = self.process.pid();
        match self.process.is_alive() {
            true => Error::new(
                format!("process {pid}"),
                "it runs another program by now (exec)",
                "ask again: it is looked at anew then",
            ),
            false => refused(&Fault::Gone { pid }),
        }
    }

    /// What is said of a list of which not one element could be read, though it is not empty.
    pub(super) fn nothing(&self, what: &str) -> Error {
        let pid = self.process.pid();
        let why = "nothing in the runtime's list can be read, or it is none";
        Error::new(
            format!("{what} of process {pid}"),
            why,
            "if it says so again and again, please report it, with the output of `go version -m`",
        )
    }

    /// What was read, if it was and the process was the same all the time.
    fn found<T>(&self, what: &str, read: Result<Option<T>, Fault>) -> Result<T, Error> {
        let pid = self.process.pid();
        let read = read.map_err(|fault| refused(&fault))?;
        if !self.is_same() {
            return Err(self.changed());
        }
        read.ok_or_else(|| {
            let why = format!("its variables are not where {} keeps them", self.loaded.program().version());
            Error::new(format!("{what} of process {pid}"), why, "please report it, with the output of `go version -m`")
        })
    }
}

/// What the file has `at` an offset and counts as `address` lies in the process, if it is in a mapping of the file, so much higher.
///
/// Mappings begin and end with pages, of which two segments may share one (lld's always do): so where a mapping begins says nothing of segments.
pub(super) fn bias(mapped: &Range<u64>, from: u64, at: u64, address: u64) -> Option<u64> {
    let inside = at.checked_sub(from).filter(|inside| *inside < mapped.end.saturating_sub(mapped.start))?;
    Some(mapped.start.wrapping_add(inside).wrapping_sub(address))
}

fn layout(pid: u32, program: &Program) -> Result<Layout, Error> {
    known(program.version()).map_err(|why| {
        Error::new(
            format!("the program of process {pid}"),
            why,
            format!(
                "releases of Go 1.{} to 1.{} can be read from outside; for others import net/http/pprof and pull",
                layouts::OLDEST,
                layouts::NEWEST
            ),
        )
    })
}

/// Why what a runtime of this version keeps cannot be read, as what is said of a program: "built by …"; `None`: it can.
#[must_use]
pub fn unreadable(version: &Version) -> Option<String> {
    known(version).err()
}

/// How the runtime of this version lays out what is read; why not, where nobody has looked.
fn known(version: &Version) -> Result<Layout, String> {
    let text = &version.text;
    if let Some(what) = version.before_release() {
        return Err(format!(
            "built by {text:?}, which is {what}: where its runtime keeps things was looked up for releases alone"
        ));
    }
    if let Some(experiment) = version.other_layout() {
        return Err(format!("built by {text:?}: with GOEXPERIMENT={experiment} its runtime keeps things elsewhere"));
    }
    let layout = (version.major == 1).then(|| layouts::of(version.minor.into())).flatten();
    layout.ok_or_else(|| format!("built by {text:?}, whose runtime is not known"))
}

/// The mapping of the program's code, executable and of the very file that the process runs; and by how much its addresses are above the file's.
fn code(process: Process, program: &Program) -> Result<(Code, u64), Fault> {
    let missing = || Fault::Missing { pid: process.pid(), what: "mapping of its program's code".into() };
    let text = program.text().start;
    let at = program.elf().offset_of(text).ok_or_else(missing)?;
    let mappings = process.mappings()?;
    let with_code = mappings.list().iter().filter(|mapping| mapping.executable);
    let found = process.files()?.of_program(with_code)?.into_iter().find_map(|mapping| {
        let code =
            Code { start: mapping.start, end: mapping.end, offset: mapping.offset, path: mapping.path().0.to_owned() };
        bias(&(mapping.start..mapping.end), mapping.offset, at, text).map(|bias| (code, bias))
    });
    found.ok_or_else(missing)
}

fn refused(fault: &Fault) -> Error {
    Error::new("reading from outside", fault.to_string(), fault.remedy())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a version of which nobody knows what its runtime keeps is refused, rather than taken for its neighbour.
    #[test]
    fn only_releases_are_known() {
        let known = |text| known(&Version::parse(text));
        for text in ["go1.21", "go1.27.0", "go1.24.13 X:boringcrypto", "go1.27.0-X:nodwarf5"] {
            assert!(known(text).is_ok(), "{text}");
        }
        for text in ["go1.20.14", "go1.28.0", "unknown", "go2.24"] {
            assert_eq!(known(text).unwrap_err(), format!("built by {text:?}, whose runtime is not known"));
        }
        let refused = known("go1.26.8-X:staticlockranking").unwrap_err();
        assert!(refused.contains("GOEXPERIMENT=staticlockranking"), "{refused}");
        for (text, what) in [
            ("devel go1.24-1a2b3c Mon Nov 23", "a development version"),
            ("go1.27-devel_1a2b", "a development version"),
            ("go1.27rc1", "a release candidate"),
            ("go1.26beta1", "a beta version"),
        ] {
            assert!(known(text).unwrap_err().contains(&format!("which is {what}: ")), "{text}");
        }
    }

    /// Check numbers of a position-independent program that lld linked: its code begins within a page, with which the segment before ends.
    #[test]
    fn where_segments_share_a_page_code_is_found_by_its_own_bytes() {
        // LOAD 0x000000 at 0x000000, 0x1240 long; LOAD 0x001240 at 0x002240, executable; loaded at 0x5555_5555_4000.
        let mapped = 0x5555_5555_6000..0x5555_5560_0000;
        assert_eq!(bias(&mapped, 0x1000, 0x1240, 0x2240), Some(0x5555_5555_4000));
        // Go's own linker has whole pages.
        assert_eq!(bias(&(0x40_1000..0x60_0000), 0x1000, 0x1000, 0x40_1000), Some(0));
        // Text that lies in another mapping, before and behind.
        assert_eq!([0x0fff, 0x1000 + (mapped.end - mapped.start)].map(|at| bias(&mapped, 0x1000, at, 0)), [None, None]);
    }
}
