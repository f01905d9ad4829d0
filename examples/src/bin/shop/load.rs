//! The load, as the shop sees it: a child process that sends requests over real connections.
//!
//! A process of its own, so that its CPU time is neither in the shop's profile nor in its account. It lives as long as
//! the pipe to its standard input is open: whatever ends the shop, even SIGKILL, ends the load.

use std::io;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, ChildStdin, Command};

use crate::client::Counts;

/// How long the last answers and the counts may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The running child.
#[derive(Debug)]
pub(crate) struct Load {
    child: Child,
    /// Open while the load is to last.
    lifeline: Option<ChildStdin>,
}

impl Load {
    /// Starts the child, which begins at once.
    pub(crate) fn start(address: SocketAddr, connections: u32) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["client", &address.to_string(), &connections.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let lifeline = child.stdin.take(); // not left to the child's handle, whose `wait` would close it
        Ok(Self { child, lifeline })
    }

    /// Waits until the child ends although nobody told it to; the reason.
    pub(crate) async fn ended_early(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => format!("the load ended by itself: {status}"),
            Err(error) => format!("the load cannot be waited for: {error}"),
        }
    }

    /// Tells the child to end; requests answered or failed, and those of them that failed.
    pub(crate) async fn stop(self) -> Result<(u64, u64), Box<dyn std::error::Error>> {
        drop(self.lifeline);
        let output = tokio::time::timeout(PATIENCE, self.child.wait_with_output())
            .await
            .map_err(|_| format!("the load did not end within {PATIENCE:?}"))??;
        let Counts { requests, errors } = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("the load ended with {} and no counts: {error}", output.status))?;
        Ok((requests, errors))
    }
}
