//! What the commands are asked, as `clap` reads it.

use std::path::PathBuf;

use clap::Args;

/// `heap`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct HeapArguments {
    /// The process: a Go program
    pub pid: u32,
    /// Write it here instead: *.pb.gz (pprof, all four types), *.folded (bytes in use)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
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
    /// The process: a Go program
    pub pid: u32,
    /// Each goroutine by itself, as a panic shows them, instead of those with equal stacks and states together
    #[arg(long)]
    pub each: bool,
    /// Write them here instead: *.pb.gz (pprof), *.folded
    #[arg(short, long, value_name = "FILE", conflicts_with = "each")]
    pub output: Option<PathBuf>,
    /// Most goroutines that are read; how many there are beyond is said
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub max_goroutines: usize,
}

/// `contention`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ContentionArguments {
    /// The process: a Go program that has its block or mutex profile on
    pub pid: u32,
    /// Who held locks for which others waited (Go's mutex profile), instead of who waited (its block profile)
    #[arg(long)]
    pub mutex: bool,
    /// Write it here instead: *.pb.gz (pprof, events and time), *.folded (time)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Rows of the table
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub rows: usize,
    /// Most stacks that are read; how many there are beyond is said
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub max_buckets: usize,
}

const EXAMPLES: &str = "\
Examples:
  profiler-sidecar heap 4711
  profiler-sidecar heap 4711 -o heap.pb.gz && go tool pprof -http=: heap.pb.gz
  profiler-sidecar goroutines 4711 --each | less
The program needs no change and no net/http/pprof, is not stopped and gets no signal. It takes its user, or CAP_SYS_PTRACE.

Exit codes: 0 done; 1 it could not be done, standard error says why; 2 the command line cannot be.";
