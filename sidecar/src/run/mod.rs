//! The command `run`: the agent.

use crate::config::Config;
use crate::error::Error;

/// Runs until it is told to stop.
///
/// # Errors
/// If what it needs cannot be had.
pub fn main(_config: Config) -> Result<(), Error> {
    Ok(())
}
