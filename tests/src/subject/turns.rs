//! A service that is profiled and not, in turn, within one process: what differs between two processes, where their code and their memory lie,
//! differs by no turn.
//!
//! In: how to switch, and how to count what was done. Out: for each turn with and the one beside it without, CPU time of the process and what it did. A
//! thread of its own does it until it is told to end; each pair begins with the one that the pair before ended with.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use serde_json::{Value, json};

use crate::Result;
use crate::clock::process_cpu;

/// Goes by after each change, until threads have their alarms, or no signal is under way any more.
const SETTLING: Duration = Duration::from_millis(50);

/// Turns under way.
#[derive(Debug)]
pub struct Turns {
    end: Sender<()>,
    thread: JoinHandle<Vec<Value>>,
}

impl Turns {
    /// Takes turns of so much time, once what is done only once is over; `switch` is told whether the next is one with.
    #[must_use]
    pub fn start(warm: Duration, turn: Duration, switch: fn(bool), done: fn() -> u64) -> Self {
        let (end, ended) = channel();
        let wait = move |time| ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        let thread = spawn(move || if wait(warm) { taken(&wait, turn, switch, done) } else { Vec::new() });
        Self { end, thread }
    }

    /// Ends them; the pairs that were whole by then, each as CPU seconds and count with, CPU seconds and count without.
    ///
    /// # Errors
    /// When the thread panicked.
    pub fn end(self) -> Result<Value> {
        // It may have ended.
        let _told = self.end.send(());
        Ok(json!({ "turns": self.thread.join().map_err(|_| "the thread that takes turns panicked")? }))
    }
}

fn taken(wait: &impl Fn(Duration) -> bool, turn: Duration, switch: fn(bool), done: fn() -> u64) -> Vec<Value> {
    let mut pairs = Vec::new();
    let mut first = true;
    loop {
        let mut pair = [(0.0, 0); 2];
        for with in [first, !first] {
            switch(with);
            if !wait(SETTLING) {
                break;
            }
            let before = (process_cpu(), done());
            if !wait(turn) {
                break;
            }
            pair[usize::from(!with)] = ((process_cpu() - before.0).as_secs_f64(), done() - before.1);
        }
        let [with, without] = pair;
        if with.1 == 0 || without.1 == 0 {
            switch(true);
            return pairs;
        }
        pairs.push(json!([with.0, with.1, without.0, without.1]));
        first = !first;
    }
}
