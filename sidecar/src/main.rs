//! The command line of the sidecar.

fn main() -> std::process::ExitCode {
    profiler_sidecar::cli::main()
}
