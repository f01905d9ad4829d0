//! `tests/go/matrix` in all forms in which Go programs come, built by all versions of Go.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::folder;
use crate::process::built_before;

/// All that can be fetched, the oldest first.
pub(super) const VERSIONS: [&str; 7] =
    ["go1.21.13", "go1.22.12", "go1.23.12", "go1.24.13", "go1.25.11", "go1.26.8", "go1.27.0"];

/// How a program is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Normal,
    /// `-ldflags="-s -w"`: no symbols, no debug information.
    Stripped,
    Pie,
    /// With C in it, so linked by the system's linker.
    Cgo,
    Trimmed,
    TrimmedPie,
}

impl Form {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Normal | Self::Stripped => &[],
            Self::Pie => &["-buildmode=pie"],
            Self::Cgo => &["-tags=withc"],
            Self::Trimmed => &["-trimpath"],
            Self::TrimmedPie => &["-trimpath", "-buildmode=pie"],
        }
    }

    fn is_stripped(self) -> bool {
        self == Self::Stripped
    }
}

/// A program.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) path: PathBuf,
}

impl Program {
    /// Builds it by `version` of Go in this form.
    pub(super) fn build(folder: &Path, version: &str, form: Form) -> Self {
        let path = folder.join(format!("{version}-{form:?}"));
        if built_before().is_some() && path.exists() {
            return Self { path };
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/matrix");
        let mut go = Command::new("go");
        go.current_dir(source).env("GOTOOLCHAIN", version).env("GOFLAGS", "-mod=mod -buildvcs=false");
        go.env("CGO_ENABLED", if form == Form::Cgo { "1" } else { "0" });
        if let Some(compiler) = std::env::var_os("PROFILER_TEST_CC") {
            go.env("CC", compiler);
        }
        let mut flags = Vec::new();
        // Since 1.23 the linker keeps programs from the runtime's own functions, which its package `oracle` asks.
        if !["go1.21", "go1.22"].iter().any(|old| version.starts_with(old)) {
            flags.push("-checklinkname=0");
        }
        if form.is_stripped() {
            flags.push("-s -w");
        }
        go.arg("build").args(form.arguments()).arg(format!("-ldflags={}", flags.join(" ")));
        let built = go.arg("-o").arg(&path).arg(".").output().expect("go: run `make setup`");
        assert!(built.status.success(), "{version} {form:?}: {}", String::from_utf8_lossy(&built.stderr));
        Self { path }
    }

    /// Builds it by garble, of the version of Go that this garble is for. It patches the linker, and Go replaces no file of its modules' cache, in which fetched
    /// versions lie: so it is told that the cache, of which the program needs nothing, is elsewhere.
    pub(super) fn build_garbled(folder: &Path) -> Self {
        const GO: &str = "go1.27.0";
        const GARBLE: &str = "mvdan.cc/garble@v0.18.0";
        let ran = |command: &mut Command| {
            let ran = command.env("GOFLAGS", "-buildvcs=false").env("CGO_ENABLED", "0").output().unwrap();
            assert!(ran.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ran.stderr));
            String::from_utf8(ran.stdout).unwrap()
        };
        let go =
            |arguments: &[&str]| ran(Command::new("go").args(arguments).env("GOTOOLCHAIN", GO).env("GOBIN", folder));
        go(&["install", GARBLE]);
        let root = go(&["env", "GOROOT"]);
        let root = root.trim();
        let path = folder.join(format!("{GO}-garbled"));
        let paths = format!("{root}/bin:{}", std::env::var("PATH").unwrap());
        let mut garble = Command::new(folder.join("garble"));
        garble.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/matrix"));
        garble.env("PATH", paths).env("GOROOT", root).env("GOTOOLCHAIN", "local");
        garble.env("GOMODCACHE", folder.join("modules"));
        ran(garble.args(["build", "-ldflags=-checklinkname=0", "-o"]).arg(&path).arg("."));
        Self { path }
    }

    /// What messages call it.
    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap().to_string_lossy().into_owned()
    }

    /// A file of it, beside it.
    pub(super) fn file(&self, extension: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(extension);
        path.into()
    }
}

/// Builds many, two at a time: linkers use one processor. Those of one version one after the other, for they share what was compiled.
pub(super) fn all(name: &str, versions: &[&'static str], forms: fn(&str) -> Vec<Form>) -> Vec<Program> {
    let folder = built_before().unwrap_or_else(|| folder(name));
    let next = Mutex::new(versions.iter());
    let built = Mutex::new(Vec::new());
    let builds = || {
        loop {
            let Some(version) = next.lock().unwrap().next() else { break };
            for form in forms(version) {
                let program = Program::build(&folder, version, form);
                built.lock().unwrap().push(program);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(builds);
        scope.spawn(builds);
    });
    let mut built = built.into_inner().unwrap();
    built.sort_by_key(Program::name);
    built
}
