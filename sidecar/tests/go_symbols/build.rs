//! Go programs in every form in which programs come, built once and kept.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// A version, as `GOTOOLCHAIN` takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version(pub(crate) &'static str);

/// How a program is built, and what is then taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Normal,
    /// `-ldflags="-s -w"`: no symbols, no debug information.
    Stripped,
    Pie,
    /// With C in it, so linked by the system's linker.
    Cgo,
    CgoPie,
    /// Stripped, and its section headers gone.
    Headless,
    HeadlessCgoPie,
    /// As linkers leave it that write addresses into the relocations only (LLVM's): in the file these words are zero.
    Unrelocated,
    Trimmed,
    /// As garble's linker leaves it: see [`garbled`].
    Garbled,
}

/// A program, and what is read of it: the same file, or one of which something was taken away.
pub(crate) struct Built {
    pub(crate) whole: PathBuf,
    pub(crate) stripped: PathBuf,
}

/// Tests of one process build one after the other: the machine has few cores, and Go uses them all.
static BUILDING: Mutex<()> = Mutex::new(());

/// Builds `tests/go/symbols` by `version` in this form.
pub(crate) fn program(version: Version, form: Form) -> Built {
    for_processor(version, form, None)
}

/// The same, for another processor than this machine's.
pub(crate) fn for_processor(version: Version, form: Form, processor: Option<&str>) -> Built {
    let _one = BUILDING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go_symbols").join(version.0);
    std::fs::create_dir_all(&folder).unwrap();
    let whole = folder.join(format!("{form:?}{}", processor.unwrap_or_default()));
    let cgo = matches!(form, Form::Cgo | Form::CgoPie | Form::HeadlessCgoPie | Form::Unrelocated);
    let mut go = go(version);
    go.arg("build").arg("-o").arg(&whole).env("CGO_ENABLED", if cgo { "1" } else { "0" });
    if let Some(processor) = processor {
        go.env("GOARCH", processor);
    }
    if matches!(form, Form::Pie | Form::CgoPie | Form::HeadlessCgoPie | Form::Unrelocated) {
        go.arg("-buildmode=pie");
    }
    if form == Form::Trimmed {
        go.arg("-trimpath");
    }
    let mut flags = Vec::new();
    // Since 1.23 the linker keeps programs from the runtime's own functions, which the oracle asks.
    let free = ["go1.18", "go1.19", "go1.20", "go1.21", "go1.22"];
    if !free.iter().any(|old| version.0.starts_with(old)) {
        flags.push("-checklinkname=0");
    }
    if matches!(form, Form::Stripped | Form::Headless | Form::HeadlessCgoPie) {
        flags.push("-s -w");
    }
    run(go.arg(format!("-ldflags={}", flags.join(" "))).arg("."));
    let stripped = match form {
        Form::Headless | Form::HeadlessCgoPie => without_section_headers(&whole),
        Form::Unrelocated => without_section_headers(&unrelocated(&whole)),
        Form::Garbled => garbled(&whole),
        _ => whole.clone(),
    };
    Built { whole, stripped }
}

/// A program without section headers that has the file `inner` in its data.
pub(crate) fn holding(version: Version, inner: &Path) -> PathBuf {
    const SOURCE: &str = "package main\n\nimport _ \"embed\"\n\n//go:embed inner\nvar inner string\n\n// The program.\nfunc main() { println(inner) }\n";
    let _one = BUILDING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go_symbols").join("holding");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("main.go"), SOURCE).unwrap();
    std::fs::write(folder.join("go.mod"), "module example.com/holding\n\ngo 1.21\n").unwrap();
    std::fs::copy(inner, folder.join("inner")).unwrap();
    let program = folder.join("holding");
    run(go(version).current_dir(&folder).args(["build", "-ldflags=-s -w", "-o"]).arg(&program).arg("."));
    without_section_headers(&program)
}

/// The command `go` of `version`, in the program's folder.
pub(crate) fn go(version: Version) -> Command {
    let mut go = Command::new("go");
    go.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/symbols"));
    go.env("GOTOOLCHAIN", version.0).env("GOFLAGS", "-mod=mod -buildvcs=false");
    go
}

/// Runs a command to its end; gives what it wrote.
pub(crate) fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}: run `make setup`"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A copy whose header says that there are no section headers. Source: elf(5), `e_shoff`, `e_shnum`, `e_shstrndx`.
fn without_section_headers(program: &Path) -> PathBuf {
    let mut bytes = std::fs::read(program).unwrap();
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    let path = program.with_extension("headless");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A copy in which the words are zero that the loader writes.
fn unrelocated(program: &Path) -> PathBuf {
    let listed = String::from_utf8(run(Command::new("readelf").arg("-rW").arg(program))).unwrap();
    let elf = profiler_sidecar::elf::File::open(std::fs::File::open(program).unwrap()).unwrap();
    let mut bytes = std::fs::read(program).unwrap();
    let mut words = 0;
    for line in listed.lines().filter(|line| line.contains("_RELATIVE")) {
        let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        let at = elf.offset_of(address).unwrap() as usize;
        bytes[at..at + 8].fill(0);
        words += 1;
    }
    assert!(words > 1000, "{words} relocations");
    let path = program.with_extension("unrelocated");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A copy that does not say which Go built it, and whose table of functions has a magic of its own and hides where each function begins from whoever reads it in the
/// function's record. Source: mvdan.cc/garble v0.18.0, internal/linker/patches/go1.27.
fn garbled(program: &Path) -> PathBuf {
    const KEY: u32 = 0x9e37_79b9;
    let elf = profiler_sidecar::elf::File::open(std::fs::File::open(program).unwrap()).unwrap();
    let [build, table] = [".go.buildinfo", ".gopclntab"].map(|name| elf.section(name).unwrap().offset as usize);
    let mut bytes = std::fs::read(program).unwrap();
    bytes[build..build + 16].fill(0);
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    bytes[table..table + 4].copy_from_slice(&0x1337_c0de_u32.to_le_bytes());
    let (functions, lines) = (word(&bytes, table + 8) as usize, table + word(&bytes, table + 64) as usize);
    for number in 0..functions {
        let at = lines + word(&bytes, lines + 8 * number + 4) as usize;
        let entry = word(&bytes, at) ^ word(&bytes, at + 4).wrapping_mul(KEY);
        bytes[at..at + 4].copy_from_slice(&entry.to_le_bytes());
    }
    let path = program.with_extension("garbled");
    std::fs::write(&path, bytes).unwrap();
    path
}
