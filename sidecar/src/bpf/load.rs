//! From the object to programs in the kernel.

use std::os::fd::{AsFd as _, BorrowedFd};

use aya::maps::{HashMap, Map, MapData, PerCpuArray, RingBuf};
use aya::programs::{PerfEvent, ProgramError, RawTracePoint};
use aya::{Ebpf, EbpfError, EbpfLoader, VerifierLogLevel};
use profiler_sidecar_ebpf::{SETTINGS, Setting};

use super::namespace::Namespace;
use super::unhurried::Unhurried;
use super::{Options, Programs, btf, counters, executables, processors, ring, targets};
use crate::error::Error;

/// The programs, built for this architecture: `make ebpf`.
#[cfg(target_arch = "x86_64")]
const OBJECT: &[u8] = include_bytes!("object/x86_64.o");
#[cfg(target_arch = "aarch64")]
const OBJECT: &[u8] = include_bytes!("object/aarch64.o");
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OBJECT: &[u8] = &[];

/// So often the kernel may give up on a program.
const MOST_TRIES: u32 = 50;

/// Raw tracepoints and the programs for them.
const EVENTS: &[(&str, &str)] = &[
    ("exec", "sched_process_exec"),
    ("exit", "sched_process_exit"),
    ("fork", "sched_process_fork"),
    ("rename", "task_rename"),
];
/// Those by which it is known when a process becomes another program.
const OF_EXEC: [&str; 2] = ["exec", "rename"];
/// Processes that the kernel side knows something of: 4,096 each that are known and that are left out by their numbers, and those that it knows by their programs.
const MOST_TARGETS: u32 = 10240;
/// Processes of which it is known which program they run, at least, and for each processor that there can be: where the map makes room for one, kernels before 6.16 set 128 places
/// aside for each processor that asks, so that one of fewer places serves the first processors alone. Source: kernel/bpf/bpf_lru_list.c, `LOCAL_FREE_TARGET`; Linux commit d4adf1c9ee77.
const LEAST_PROGRAMS: u32 = 8192;
const PROGRAMS_PER_PROCESSOR: u32 = 256;
/// Bytes of the ring for each processor: two seconds of usual samples.
const RING_PER_PROCESSOR: u32 = 128 << 10;
const LEAST_RING: u32 = 512 << 10;
/// Half a second of 512 processors. Its pages are mapped twice, and count twice in what this process holds.
const LARGEST_RING: u32 = 16 << 20;

/// What is in the kernel.
pub(super) struct Loaded {
    object: Ebpf,
    lacks: Vec<String>,
    /// Whether every exec is seen.
    sees_execs: bool,
}

impl Loaded {
    /// Loads all programs; none runs yet.
    pub(super) fn new(options: &Options) -> Result<Self, Error> {
        let mut lacks = Vec::new();
        let ring = ring_bytes(options)?;
        let programs = PROGRAMS_PER_PROCESSOR.saturating_mul(processors::possible()?).max(LEAST_PROGRAMS);
        let settings = settings(options, ring, &mut lacks)?;
        let object = another_object();
        let bytes = object.as_deref().unwrap_or(OBJECT);
        let _unhurried = Unhurried::begin();
        let loaded = |log| {
            let mut object = EbpfLoader::new()
                .btf(None)
                .verifier_log_level(log)
                .override_global("SETTINGS_OF_LOAD", &settings, true)
                .map_max_entries("RECORDS", ring)
                .map_max_entries("TARGETS", MOST_TARGETS)
                .map_max_entries("PROGRAMS", programs)
                .load(bytes)
                .map_err(|error| refused(&error))?;
            let program = program::<&mut PerfEvent>(&mut object, "cpu")?;
            until_verified(|| program.load()).map_err(|error| refused(&error.into()))?;
            Ok(object)
        };
        // What the verifier did is only written where it is told: that takes twenty times as long.
        let object = loaded(VerifierLogLevel::STATS).or_else(|_: Error| loaded(VerifierLogLevel::default()))?;
        Ok(Self { object, lacks, sees_execs: true })
    }

    pub(super) fn lacks(&self) -> &[String] {
        &self.lacks
    }

    pub(super) fn program(&self) -> Result<BorrowedFd<'_>, Error> {
        let program: Option<&PerfEvent> = self.object.program("cpu").and_then(|program| program.try_into().ok());
        let fd = program.and_then(|program| program.fd().ok()).ok_or_else(|| ours("program `cpu`"))?;
        Ok(fd.as_fd())
    }

    /// Loads the programs of events and attaches them. Samples come without them.
    pub(super) fn attach_events(&mut self) -> Result<(), Error> {
        let _unhurried = Unhurried::begin();
        for (name, tracepoint) in EVENTS {
            let program = program::<&mut RawTracePoint>(&mut self.object, name)?;
            if let Err(error) = until_verified(|| program.load()).and_then(|()| program.attach(tracepoint)) {
                let why = first_line(&error_text(&error));
                self.lacks.push(format!(
                    "no word of {name}: the tracepoint {tracepoint}: {why}; processes are found by looking"
                ));
                self.sees_execs &= !OF_EXEC.contains(name);
            }
        }
        Ok(())
    }

    pub(super) fn records(&mut self) -> Result<ring::Records, Error> {
        let map = self.object.take_map("RECORDS").and_then(|map| RingBuf::try_from(map).ok());
        let ring = map.ok_or_else(|| ours("map `RECORDS`"))?;
        ring::Records::of(ring)
            .map_err(|error| Error::new("epoll", error.to_string(), "raise the limit of open files (`ulimit -n`)"))
    }

    pub(super) fn targets(&mut self) -> Result<targets::Targets, Error> {
        let map = self.object.take_map("TARGETS").and_then(|map| HashMap::<MapData, _, _>::try_from(map).ok());
        map.map(targets::Targets::new).ok_or_else(|| ours("map `TARGETS`"))
    }

    /// Before [`Loaded::programs`], which takes what this one looks into as well. `None` where the kernel side does not hear of the beginning and the end of each program.
    pub(super) fn executables(&mut self) -> Result<Option<executables::Executables>, Error> {
        if !self.lacks.is_empty() {
            return Ok(None);
        }
        let missing = || ours("maps `EXECUTABLES` and `PROGRAMS`");
        let map =
            self.object.take_map("EXECUTABLES").and_then(|map| HashMap::try_from(map).ok()).ok_or_else(missing)?;
        let Some(Map::LruHashMap(programs)) = self.object.map("PROGRAMS") else { return Err(missing()) };
        let descriptor = programs.fd().as_fd().try_clone_to_owned().map_err(|error| {
            Error::new("a second descriptor of a map", error.to_string(), "raise the limit of open files (`ulimit -n`)")
        })?;
        let programs =
            MapData::from_fd(descriptor).map(Map::LruHashMap).ok().and_then(|map| HashMap::try_from(map).ok());
        Ok(Some(executables::Executables::new(map, programs.ok_or_else(missing)?)))
    }

    /// `None` where they would not change with every exec.
    pub(super) fn programs(&mut self) -> Result<Option<Programs>, Error> {
        let map = self.object.take_map("PROGRAMS").and_then(|map| HashMap::<MapData, _, _>::try_from(map).ok());
        let programs = map.map(Programs::new).ok_or_else(|| ours("map `PROGRAMS`"))?;
        Ok(self.sees_execs.then_some(programs))
    }

    pub(super) fn counters(&mut self) -> Result<counters::Source, Error> {
        let map = self.object.take_map("COUNTERS").and_then(|map| PerCpuArray::<MapData, _>::try_from(map).ok());
        map.map(counters::Source).ok_or_else(|| ours("map `COUNTERS`"))
    }
}

/// An object built by other tools, for the tests to try in place of the one that is committed; in debug builds alone.
fn another_object() -> Option<Vec<u8>> {
    let path = cfg!(debug_assertions).then(|| std::env::var_os("PROFILER_SIDECAR_EBPF_OBJECT"))??;
    std::fs::read(path).ok()
}

fn ring_bytes(options: &Options) -> Result<u32, Error> {
    let processors = u32::try_from(processors::online()?.len()).unwrap_or(u32::MAX);
    let usual = RING_PER_PROCESSOR.saturating_mul(processors).max(LEAST_RING);
    Ok(options.ring_bytes.unwrap_or(usual).clamp(4096, LARGEST_RING).next_power_of_two())
}

fn settings(options: &Options, ring: u32, lacks: &mut Vec<String>) -> Result<[u64; SETTINGS], Error> {
    let mut settings = [0; SETTINGS];
    let namespace = Namespace::ours()?;
    let known = std::fs::read(btf::PATH).map_err(|error| error.to_string());
    if let Err(why) = known.and_then(|bytes| btf::fill(&mut settings, &bytes)) {
        lacks.push(format!(
            "no offsets of the running kernel ({}: {why}): no goroutines, labels and spans, no stacks of user space below system calls, no descendants of what `record -c` starts",
            btf::PATH
        ));
    }
    let mut set = |which: Setting, value: u64| {
        if let Some(slot) = settings.get_mut(which as usize) {
            *slot = value;
        }
    };
    set(Setting::InitialNamespace, namespace.is_initial().into());
    set(Setting::NamespaceDevice, namespace.device);
    set(Setting::NamespaceInode, namespace.inode);
    set(Setting::KernelStacks, options.kernel_stacks.into());
    set(Setting::WakeAt, u64::from(ring / 4));
    Ok(settings)
}

/// A program of the object, not loaded yet.
fn program<'a, P: TryFrom<&'a mut aya::programs::Program>>(object: &'a mut Ebpf, name: &str) -> Result<P, Error> {
    let program = object.program_mut(name).and_then(|program| program.try_into().ok());
    program.ok_or_else(|| ours(&format!("program `{name}`")))
}

fn ours(what: &str) -> Error {
    Error::new(
        format!("the eBPF object's {what}"),
        "it is missing, or of another kind",
        "report this: the object is ours",
    )
}

/// Loads a program; again, some times, where the kernel gave up because a debugger, or one who freezes processes, wanted this one ([`Unhurried`]).
fn until_verified(mut load: impl FnMut() -> Result<(), ProgramError>) -> Result<(), ProgramError> {
    let gave_up = |error: &ProgramError| match error {
        ProgramError::LoadError { io_error, .. } => io_error.raw_os_error() == Some(libc::EAGAIN),
        _ => false,
    };
    let mut loaded = load();
    for _ in 0..MOST_TRIES {
        match &loaded {
            Err(error) if gave_up(error) => loaded = load(),
            _ => break,
        }
    }
    loaded
}

fn refused(error: &EbpfError) -> Error {
    let text = error_text(error);
    let (why, remedy) = if is_too_old(&text) {
        ("it does not know a helper that they call".to_owned(), NEWER)
    } else {
        let remedy = remedy(&text);
        (text, remedy)
    };
    Error::new("loading the eBPF programs into the kernel (bpf(2))", why, remedy)
}

const NEWER: &str = "the kernel must be 5.15 or newer, with CONFIG_BPF_SYSCALL";

/// Whether the verifier knows no helper of a number, which it then has no name for. Source: `check_helper_call`, kernel/bpf/verifier.c.
fn is_too_old(text: &str) -> bool {
    text.contains("invalid func unknown#")
}

/// What to do about an error with this text.
fn remedy(text: &str) -> &'static str {
    let is_one_of = |numbers: &[i32]| numbers.iter().any(|number| text.contains(&format!("os error {number})")));
    if text.contains("EPERM") || is_one_of(&[libc::EPERM, libc::EACCES]) {
        "give the sidecar CAP_BPF and CAP_PERFMON, a seccomp profile that allows bpf, and a kernel that is not locked down"
    } else if is_one_of(&[libc::EMFILE, libc::ENFILE]) {
        "raise the limit of open files (RLIMIT_NOFILE)"
    } else if is_one_of(&[libc::EAGAIN]) {
        "start it again: the process was stopped again and again while the kernel verified the program"
    } else if text.contains("Verifier output") {
        "report this with the name of the kernel: its verifier refused the program"
    } else {
        NEWER
    }
}

/// An error with those behind it.
fn error_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = inner.source();
    }
    text
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what the system does not allow, or has no room for, is not blamed on the kernel's age.
    #[test]
    fn remedies_are_of_the_cause() {
        let told = |number| remedy(&format!("creating a map failed: {}", std::io::Error::from_raw_os_error(number)));
        assert!(told(libc::EPERM).contains("CAP_BPF") && told(libc::EACCES).contains("CAP_BPF"));
        assert!(told(libc::EMFILE).contains("RLIMIT_NOFILE") && told(libc::ENFILE).contains("RLIMIT_NOFILE"));
        assert!(told(libc::EINVAL).contains("5.15"));
        // As Linux 5.10 says it.
        assert!(is_too_old(
            "Invalid argument (os error 22). Verifier output: 617: (85) call unknown#158\ninvalid func unknown#158\n"
        ));
        assert!(!is_too_old("Verifier output: 617: (85) call bpf_loop#181\nR1 type=scalar expected=ptr_\n"));
    }
}
