//! The command line as `clap` reads it, with its help.
//!
//! In: arguments. Out: what was asked for, unchecked but for its form; `config` and the commands check the rest.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::bpf::MAX_RATE_HZ;
use crate::config::{CommandLine, parse_duration};
use crate::error::Error;
use crate::inspect::{ContentionArguments, GoroutinesArguments, HeapArguments, TopArguments, pid};
use crate::record::{HOLD, Options, Output, Subject};

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 it could not be done, standard error says why; 2 the command line or the settings are not valid.
PROFILER_LOG (or RUST_LOG) sets what is logged to standard error: error, warn, info (the default), debug.";

const VARIABLES: &str = "\
Settings, highest first: these flags, variables, the file.

Variables: PROFILER_CONFIG, PROFILER_RATE_HZ, PROFILER_INTERVAL, PROFILER_PID, PROFILER_INCLUDE, PROFILER_EXCLUDE (between \
commas), PROFILER_SERVE, PROFILER_RECEIVE, PROFILER_PROFILE_SDK, PROFILER_KERNEL (kernel frames: 1), \
PROFILER_CPU_PERCENT (of one processor, for itself: 5), PROFILER_MEMORY (for itself: 160MiB), PROFILER_QUEUE_BYTES, \
PROFILER_RUNTIME_INTERVAL, PROFILER_MAX_BUCKETS, PROFILER_MAX_GOROUTINES, PROFILER_METRICS (figures of Go: 1), \
PROFILER_PULL (between commas), PROFILER_PULL_TOKEN (sent as Bearer to all that are named), \
PROFILER_SPOOL_DIR (a folder for what waits to be sent), PROFILER_SPOOL_BYTES (268435456).

Page: PROFILER_SERVE_TOKEN (who asks must know it), PROFILER_SERVE_CERTIFICATE and PROFILER_SERVE_KEY (PEM files: TLS).

Destinations: OTEL_EXPORTER_OTLP_[PROFILES_]ENDPOINT, PROTOCOL, HEADERS, TIMEOUT, COMPRESSION, CERTIFICATE, …; \
PYROSCOPE_SERVER_ADDRESS; PROFILER_FILES_DIR; else [[export]] of the file. None: profiles are kept for the page.

Resource: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES of each profiled process.

Exit codes: 0 ended by SIGTERM, SIGINT, SIGQUIT, SIGHUP or the end of standard input (--until-eof); 1 it could not run; \
2 the settings are not valid.";

const RECORD_EXAMPLES: &str = "\
Examples:
  profiler-sidecar record -p 4711 -d 30s -o server.pb.gz && go tool pprof -http=: server.pb.gz
  profiler-sidecar record -o build.svg -c go build ./...
Ctrl-C ends it early; what was recorded until then is kept. A table of the hottest functions goes to standard error.

Exit codes: 0 the file is written; 1 it is not, standard error says why; 2 the command line is not valid.";

/// Profiles the processes of a pod from outside, with eBPF: Go with inlined functions and labels, and other native ones.
#[derive(Debug, Parser)]
#[command(name = "profiler-sidecar", version, about, after_help = EXIT_CODES, max_term_width = 110)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the agent: profile all processes in sight, all the time; export, keep and serve their profiles
    Run(Box<RunArguments>),
    /// Record one process, or a command with all that it starts, into a file
    Record(RecordArguments),
    /// Show where a process spends its time on processors, again and again; of a Go program with its heap, collections and threads
    Top(TopArguments),
    /// Show the heap of a Go program by function, or write it as pprof; of programs that link Go's heap profiling in, as those with net/http/pprof do
    Heap(HeapArguments),
    /// Show what the goroutines of a Go program do and wait for, or write them as pprof
    Goroutines(GoroutinesArguments),
    /// Show where goroutines of a Go program waited for each other: its block profile, or its mutex profile
    Contention(ContentionArguments),
    /// Say what works here, what is missing and what to do, and which processes are profiled or why not; exit code 1: CPU is not sampled
    Doctor {
        /// JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// What `record -c` starts: waits to be sampled, then becomes the command
    #[command(name = HOLD, hide = true)]
    Hold {
        /// Program and arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = RECORD_EXAMPLES, group = clap::ArgGroup::new("subject").required(true))]
pub(super) struct RecordArguments {
    /// The process to record
    #[arg(short, long, group = "subject", value_parser = pid)]
    pid: Option<u32>,
    /// The command to record, from its first instruction on; stands last, for all that follows belongs to it
    #[arg(short, long, group = "subject", num_args = 1.., allow_hyphen_values = true)]
    command: Vec<OsString>,
    /// How long at most, as 10s or 1m [default: 10s of a process, all of a command, which is ended by SIGTERM where it takes longer]
    #[arg(short, long, value_name = "DURATION")]
    duration: Option<String>,
    /// Where to: *.pb.gz or *.pprof (pprof), *.pb (without gzip), *.folded, *.svg (flame graph); - is standard output, as pprof
    #[arg(short, long, value_name = "FILE", default_value = "profile.pb.gz", value_parser = Output::parser())]
    output: Output,
    /// Samples per second and processor
    #[arg(long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RATE_HZ)))]
    rate_hz: u32,
    /// Leave out the kernel's frames
    #[arg(long)]
    no_kernel: bool,
    /// Say of each sample which processor it was taken on, as the label cpu.logical_number
    #[arg(long)]
    processors: bool,
}

impl RecordArguments {
    /// What to record.
    pub(super) fn options(self) -> Result<Options, Error> {
        let subject = match self.pid {
            Some(pid) => Subject::Process(pid),
            None => Subject::Command(self.command.into_iter().skip_while(|word| word == "--").collect()),
        };
        if matches!(&subject, Subject::Command(command) if command.is_empty()) {
            return Err(Error::new("--command=--", "no command stands behind it", "give a program and its arguments"));
        }
        let refused = |text: &str, why: &str| {
            let remedy = "give seconds, or a number with ms, s, m or h, as 10s";
            Err(Error::new(format!("--duration={text}"), why, remedy))
        };
        let duration = match (&self.duration, &subject) {
            (None, Subject::Process(_)) => Some(Duration::from_secs(10)),
            (None, Subject::Command(_)) => None,
            (Some(text), _) => match parse_duration(text) {
                Some(Duration::ZERO) => return refused(text, "it must be longer than 0s"),
                None => return refused(text, "it is not a duration"),
                duration => duration,
            },
        };
        if self.output.is_standard() && matches!(subject, Subject::Command(_)) {
            let why = "what the command writes there would stand in the profile";
            return Err(Error::new("--output=-", why, "give -o a file"));
        }
        let Self { output, rate_hz, no_kernel, processors, .. } = self;
        Ok(Options { subject, duration, output, rate_hz, kernel: !no_kernel, processors })
    }
}

#[derive(Debug, Args)]
#[command(after_help = VARIABLES)]
pub(super) struct RunArguments {
    /// A file of settings, in TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check all settings, show them, and end
    #[arg(long)]
    pub(super) check_config: bool,
    /// Samples per second and processor [default: 99]
    #[arg(long, value_name = "HZ")]
    rate_hz: Option<u32>,
    /// Length of a profile, as 10s, 500ms, 1m [default: 10s]
    #[arg(long, value_name = "DURATION")]
    interval: Option<String>,
    /// Profile this process only; may stand several times
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Profile only what matches: GLOB or exe=GLOB (path of the executable, or its last part), service=GLOB, container=GLOB, pid=NUMBER
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Leave out what matches
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Serve the page, /debug/pprof/ and /stats here; "off": nowhere [default: 127.0.0.1:6070]
    #[arg(long, value_name = "ADDRESS")]
    serve: Option<String>,
    /// Take OTLP profiles here, over gRPC and HTTP, keep and forward them [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    receive: Option<String>,
    /// Sample also processes that profile themselves by the SDK
    #[arg(long)]
    profile_sdk: bool,
    /// Stop, too, when standard input ends: an agent that is started through a pipe never outlives who started it
    #[arg(long)]
    pub(super) until_eof: bool,
    /// How often to capture heap, goroutines, block and mutex of each Go program; "off": when asked for [default: 60s]
    #[arg(long, value_name = "DURATION")]
    runtime_interval: Option<String>,
    /// Most stacks that are read of a heap, or of contention, then [default: 100000]
    #[arg(long, value_name = "N")]
    max_buckets: Option<usize>,
    /// Most goroutines that are read of a process then [default: 100000]
    #[arg(long, value_name = "N")]
    max_goroutines: Option<usize>,
    /// Pull the profiles that a program serves there (net/http/pprof), as far as they are not read from outside; "discover": wherever a Go
    /// program in sight listens; may stand several times
    #[arg(long, value_name = "URL")]
    pull: Vec<String>,
}

impl From<RunArguments> for CommandLine {
    fn from(said: RunArguments) -> Self {
        Self {
            config: said.config,
            rate_hz: said.rate_hz,
            interval: said.interval,
            pids: said.pid,
            include: said.include,
            exclude: said.exclude,
            serve: said.serve,
            receive: said.receive,
            profile_sdk: said.profile_sdk,
            runtime_interval: said.runtime_interval,
            max_buckets: said.max_buckets,
            max_goroutines: said.max_goroutines,
            pulls: said.pull,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Check that `clap` finds no contradiction in what is declared here.
    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    /// Check that each variable that the help names is known as a setting.
    #[test]
    fn variables_of_the_help_are_settings() {
        let is_of_name = |c: char| c.is_ascii_uppercase() || c == '_';
        let help = [VARIABLES, EXIT_CODES].concat();
        let named: Vec<&str> = help.split(|c| !is_of_name(c)).filter(|word| word.starts_with("PROFILER_")).collect();
        assert!(named.len() > 20, "{named:?}");
        let unknown = profiler::export::unknown_variables(named.into_iter().map(OsString::from));
        assert!(unknown.is_empty(), "the SDK's list has not {unknown:?}");
    }

    /// Check that flags that may stand several times do.
    #[test]
    fn flags_are_read_each_time() {
        let line = ["profiler-sidecar", "run", "--pid", "7", "--pid=8", "--include", "a", "--rate-hz", "19"];
        let Command::Run(run) = Arguments::try_parse_from(line).unwrap().command else { panic!("it is `run`") };
        let said = CommandLine::from(*run);
        assert_eq!((said.pids, said.include, said.rate_hz), (vec![7, 8], vec!["a".to_owned()], Some(19)));
    }

    /// Check that a process is named by itself or as `record` has it, once.
    #[test]
    fn a_process_is_named_in_either_way() {
        let asked = |line: &[&str]| {
            let said = Arguments::try_parse_from(["profiler-sidecar"].iter().chain(line)).ok()?;
            Some(match said.command {
                Command::Heap(asked) => asked.which.pid(),
                Command::Goroutines(asked) => asked.which.pid(),
                Command::Contention(asked) => asked.which.pid(),
                Command::Top(asked) => asked.which.pid(),
                _ => panic!("{line:?}"),
            })
        };
        for command in ["heap", "goroutines", "contention", "top"] {
            let named = [&["7"][..], &["-p", "7"], &["--pid=7"]].map(|which| asked(&[&[command], which].concat()));
            assert_eq!(named, [Some(7); 3], "{command}");
            let refused = [&[][..], &["7", "-p", "7"], &["-p", "0"]].map(|which| asked(&[&[command], which].concat()));
            assert_eq!(refused, [None; 3], "{command}");
        }
    }

    /// Check that all that follows `-c` is the command's, and that exactly one subject is asked for.
    #[test]
    fn a_command_takes_all_that_follows() {
        let given = |line: &[&str]| {
            let line = ["profiler-sidecar", "record"].iter().chain(line);
            let Command::Record(record) = Arguments::try_parse_from(line).ok()?.command else { return None };
            Some(record.options())
        };
        let refusal = |line: &[&str]| given(line).and_then(Result::err).map(|error| error.to_string());
        let options = |line: &[&str]| given(line).and_then(Result::ok);
        let command = options(&["-o", "a.folded", "-c", "ls", "-l", "--pid"]).unwrap();
        assert_eq!(command.subject, Subject::Command(vec!["ls".into(), "-l".into(), "--pid".into()]));
        assert_eq!(command.duration, None);
        let process = options(&["-p", "7"]).unwrap();
        assert_eq!((process.subject, process.duration), (Subject::Process(7), Some(Duration::from_secs(10))));
        for bad in [&[][..], &["-p", "7", "-c", "ls"], &["-p", "7", "-d", "soon"], &["-p", "7", "--rate-hz", "0"]] {
            assert!(options(bad).is_none(), "{bad:?}");
        }
        for (text, told) in [("0s", "--duration=0s: it must be longer than 0s"), ("soon", "it is not a duration")] {
            assert!(refusal(&["-p", "7", "-d", text]).unwrap().contains(told), "{text}");
        }
    }
}
