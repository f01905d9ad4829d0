//! Programs to sample, built here.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}: run `make setup`"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// `deep.c`, with so many calls, busy for so long.
pub(crate) fn deep(depth: u32, milliseconds: u32) -> Command {
    let program = folder().join(format!("deep-{depth}-{milliseconds}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel/deep.c");
    let flags =
        ["-O1", "-fno-omit-frame-pointer", "-fno-stack-protector", "-fcf-protection=none", "-static", "-nostdlib"];
    let defined = [format!("-DDEPTH={depth}"), format!("-DMILLISECONDS={milliseconds}")];
    run(Command::new("cc").args(flags).args(defined).arg("-o").arg(&program).arg(source));
    Command::new(program)
}

/// How a Go program is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Normal,
    Pie,
    Cgo,
    CgoPie,
}

/// `tests/go/labelled`, built by `version`.
pub(crate) fn labelled(version: &str, form: Form) -> PathBuf {
    let program = folder().join(format!("labelled-{version}-{form:?}"));
    let cgo = matches!(form, Form::Cgo | Form::CgoPie);
    let mut go = Command::new("go");
    go.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/labelled"));
    go.env("GOTOOLCHAIN", version)
        .env("GOFLAGS", "-mod=mod -buildvcs=false")
        .env("CGO_ENABLED", if cgo { "1" } else { "0" });
    go.arg("build").arg("-o").arg(&program);
    if cgo {
        go.args(["-tags", "withc"]);
    }
    if matches!(form, Form::Pie | Form::CgoPie) {
        go.arg("-buildmode=pie");
    }
    run(go.arg("."));
    program
}

/// A program that is talked to by lines.
pub(crate) struct Talk {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Talk {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line, without its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// A line to it.
    pub(crate) fn go(&mut self) {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _gone = (self.child.kill(), self.child.wait());
    }
}
