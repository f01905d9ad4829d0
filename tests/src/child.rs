//! The child's side of a test in two processes: lines of JSON out, words in. The other side is `process`.
//!
//! In: lines on standard input. Out: lines on standard output. On the caller's thread.

use std::io::{self, BufRead, Write};

use serde_json::Value;

use crate::Result;

/// Says something to whoever started this process.
pub fn say(value: &Value) {
    let mut stdout = io::stdout().lock();
    // Nobody is left to be told when standard output is gone.
    let _written = writeln!(stdout, "{value}").and_then(|()| stdout.flush());
}

/// Waits for a line on standard input, or its end.
///
/// # Errors
/// When it cannot be read.
pub fn wait_for_word() -> Result<String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
