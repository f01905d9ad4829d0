//! What the commands are asked, as `clap` reads it.

use std::time::Duration;

use clap::Args;

use crate::bpf::MAX_RATE_HZ;
use crate::config::parse_duration;
use crate::record::Output;

/// Which process a command is about.
#[derive(Debug, Clone, Copy, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// The process; `-p PID`, as of `record`, is the same
    #[arg(value_name = "PID", value_parser = pid)]
    pid: Option<u32>,
    #[arg(short = 'p', long = "pid", value_name = "PID", value_parser = pid, hide = true)]
    named: Option<u32>,
}

impl Which {
    pub(crate) fn pid(self) -> u32 {
        // One of them is there, by the group.
        self.pid.or(self.named).unwrap_or_default()
    }
}

/// `heap`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct HeapArguments {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Write it here instead: *.pb.gz or *.pprof (pprof, all four types), *.pb (without gzip), *.folded, *.svg (bytes in use); - is standard output, as pprof
    #[arg(short, long, value_name = "FILE", value_parser = Output::parser())]
    pub output: Option<Output>,
    /// Rows of the table
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub rows: usize,
    /// Most stacks that are read; how many there are beyond is said
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub max_buckets: usize,
}

/// `goroutines`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct GoroutinesArguments {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Each goroutine by itself, as a panic shows them, instead of those with equal stacks and states together
    #[arg(long)]
    pub each: bool,
    /// What became more within so long, by stack: where goroutines leak
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with_all = ["each", "output"])]
    pub growth: Option<Duration>,
    /// Write them here instead: *.pb.gz or *.pprof (pprof), *.pb (without gzip), *.folded, *.svg; - is standard output, as pprof
    #[arg(short, long, value_name = "FILE", value_parser = Output::parser(), conflicts_with = "each")]
    pub output: Option<Output>,
    /// Most goroutines that are read; how many there are beyond is said
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub max_goroutines: usize,
}

/// `contention`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ContentionArguments {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Who held locks for which others waited (Go's mutex profile), instead of who waited (its block profile)
    #[arg(long)]
    pub mutex: bool,
    /// Write it here instead: *.pb.gz or *.pprof (pprof, events and time), *.pb (without gzip), *.folded, *.svg (time); - is standard output, as pprof
    #[arg(short, long, value_name = "FILE", value_parser = Output::parser())]
    pub output: Option<Output>,
    /// Rows of the table
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub rows: usize,
    /// Most stacks that are read; how many there are beyond is said
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub max_buckets: usize,
}

/// `top`.
#[derive(Debug, Clone, Args)]
#[command(after_help = TOP_EXAMPLES)]
pub struct TopArguments {
    #[command(flatten)]
    pub(crate) which: Which,
    /// How long a table is of
    #[arg(short, long, value_name = "DURATION", value_parser = duration, default_value = "3s")]
    pub interval: Duration,
    /// Write one interval here instead: *.pb.gz or *.pprof (pprof), *.pb (without gzip), *.folded, *.svg; - is standard output, as pprof. `record` does it for longer, and for commands
    #[arg(short, long, value_name = "FILE", value_parser = Output::parser())]
    pub output: Option<Output>,
    /// Rows of the table
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,
    /// Samples per second and processor
    #[arg(long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RATE_HZ)))]
    pub rate_hz: u32,
    /// Leave out the kernel's frames
    #[arg(long)]
    pub no_kernel: bool,
}

/// The id of a process.
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    let pid = text.parse().ok().filter(|pid| *pid > 0);
    pid.ok_or_else(|| "give the id of a process, a number, as `pidof NAME` tells it".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    let most = Duration::from_secs(24 * 3600);
    let duration = parse_duration(text).filter(|duration| !duration.is_zero() && *duration <= most);
    duration.ok_or_else(|| "give seconds, or a number with ms, s, m or h, as 30s".to_owned())
}

const TOP_EXAMPLES: &str = "\
Examples:
  profiler-sidecar top 4711
  profiler-sidecar top 4711 --interval 10s --rows 40 | less
On a terminal it goes on until Ctrl-C. It takes CAP_BPF and CAP_PERFMON, and CAP_SYS_PTRACE for processes of other users; of a Go program, heap and \
goroutines are shown without the first two.

Exit codes: 0 done; 1 it could not be done, standard error says why; 2 the command line is not valid.";

const EXAMPLES: &str = "\
Examples:
  profiler-sidecar heap 4711
  profiler-sidecar heap 4711 -o heap.pb.gz && go tool pprof -http=: heap.pb.gz
  profiler-sidecar goroutines 4711 --each | less
  profiler-sidecar goroutines 4711 --growth 30s
  profiler-sidecar contention 4711 --mutex
The program serves nothing, is not stopped and gets no signal. It takes CAP_SYS_PTRACE; the same user is \
enough where kernel.yama.ptrace_scope is 0.

Exit codes: 0 done; 1 it could not be done, standard error says why; 2 the command line is not valid.";
