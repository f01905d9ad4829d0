//! What is said on the command line, and who does it.

use std::process::ExitCode;

/// Does what the command line says.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
