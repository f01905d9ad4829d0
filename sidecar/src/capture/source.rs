//! One Go process that is captured: its program, where that is loaded, where its runtime keeps what is read.
//!
//! In: a process, and its program where that is known already. Out: [`Source`], which captures as often as it is asked. Finding takes some
//! milliseconds once for a process; it never writes into the process, never stops it, sends it no signal. Reads can wait where the process
//! wants them to (see [`crate::target::Memory`]): on a thread that can be left behind.

use std::path::PathBuf;
use std::sync::Arc;

use crate::elf;
use crate::error::Error;
use crate::go::Program;
use crate::go::layouts::{self, Layout};
use crate::target::{Fault, Identity, Process};

use super::contention::{self, Contention};
use super::goroutines::{self, Goroutines};
use super::heap::{self, Heap};
use super::loaded::Loaded;
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
}

impl Source {
    /// Finds the runtime of the process `pid`.
    ///
    /// # Errors
    /// When there is no such process, it is not ours to look at, is no Go program, or one of a version that is not known.
    pub fn find(pid: u32) -> Result<Self, Error> {
        let process = Process::find(pid).map_err(|fault| refused(&fault))?;
        Self::of(process, Self::program_of(process, |_| None)?.1)
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
            Error::new(what.clone(), fault.to_string(), "only programs of ELF with 64 bits, built by Go, can be read")
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
    pub fn of(process: Process, program: Arc<Program>) -> Result<Self, Error> {
        let layout = layout(process.pid(), &program)?;
        let code = code(process, &program).map_err(|fault| refused(&fault))?;
        let at = program.elf().address_of(code.offset).unwrap_or(0);
        let loaded = Loaded::new(program, code.start.wrapping_sub(at));
        let found = Variables::find(&loaded, &process.memory(), &layout);
        let variables = found.map_err(|fault| refused(&fault))?;
        Ok(Self { process, loaded, layout, variables, code })
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

    /// The heap as of now.
    ///
    /// # Errors
    /// When the process is gone, does not let us, or its runtime has no such variables.
    pub fn heap(&self, bounds: Bounds) -> Result<Heap, Error> {
        let memory = self.process.memory();
        self.found("heap", heap::heap(&memory, &self.loaded, &self.variables, &self.layout, bounds.buckets))
    }

    /// The goroutines as of now.
    ///
    /// # Errors
    /// As [`Self::heap`].
    pub fn goroutines(&self, bounds: Bounds) -> Result<Goroutines, Error> {
        let memory = self.process.memory();
        let read = goroutines::goroutines(&memory, &self.loaded, &self.variables, &self.layout, bounds.goroutines);
        self.found("goroutine", read)
    }

    /// The block or mutex profile as of now.
    ///
    /// # Errors
    /// As [`Self::heap`].
    pub fn contention(&self, kind: contention::Kind, bounds: Bounds) -> Result<Contention, Error> {
        let memory = self.process.memory();
        let asked = (kind, bounds.buckets);
        self.found(kind.name(), contention::contention(&memory, &self.loaded, &self.variables, &self.layout, asked))
    }

    /// What was read, if it was and the process was the same all the time.
    fn found<T>(&self, what: &str, read: Result<Option<T>, Fault>) -> Result<T, Error> {
        let pid = self.process.pid();
        let read = read.map_err(|fault| refused(&fault))?;
        if !self.process.is_alive() {
            return Err(refused(&Fault::Gone { pid }));
        }
        read.ok_or_else(|| {
            let why = format!("its variables are not where {} keeps them", self.loaded.program().version());
            Error::new(
                format!("the {what} profile of process {pid}"),
                why,
                "please report it, with the output of `go version -m`",
            )
        })
    }
}

fn layout(pid: u32, program: &Program) -> Result<Layout, Error> {
    let version = program.version();
    let known = (version.major == 1).then(|| layouts::of(version.minor.into())).flatten();
    known.ok_or_else(|| {
        Error::new(
            format!("the program of process {pid}"),
            format!("built by Go {version:?}, whose runtime is not known", version = version.text),
            format!(
                "Go 1.{} to 1.{} can be read from outside; for others import net/http/pprof and pull",
                layouts::OLDEST,
                layouts::NEWEST
            ),
        )
    })
}

/// The mapping of the program's code: executable, and of the very file that the process runs.
fn code(process: Process, program: &Program) -> Result<Code, Fault> {
    let (_, identity) = process.files()?.exe()?;
    let text = program.text();
    let mappings = process.mappings()?;
    let of_file = mappings.list().iter().filter(|mapping| mapping.executable && mapping.inode == identity.inode);
    let covers = |start: u64, end: u64, offset: u64| {
        let first = program.elf().address_of(offset).unwrap_or(u64::MAX);
        first <= text.start && text.start - first < end - start
    };
    let found = of_file.into_iter().find(|mapping| covers(mapping.start, mapping.end, mapping.offset));
    let found = found.ok_or(Fault::Missing { pid: process.pid(), what: "mapping of its program's code".into() })?;
    let path = found.path().0.to_owned();
    Ok(Code { start: found.start, end: found.end, offset: found.offset, path })
}

fn refused(fault: &Fault) -> Error {
    let remedy = match fault {
        Fault::Gone { .. } => "start it again, or name another one",
        _ => "run as the same user, or with CAP_SYS_PTRACE",
    };
    Error::new("reading from outside", fault.to_string(), remedy)
}
