//! A profiler that ends while its thread which exports stands still: the host's log does not let it go on.
//!
//! In: a destination, in the environment. Out: what was logged meanwhile by other threads.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use profiler::Config;
use profiler_tests::Result;
use serde_json::{Value, json};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use super::{blocks, wait_for};

/// More profiles than may wait to be made.
pub(crate) const MANY: u32 = 10;

/// Stops there, with so many profiles asked for meanwhile.
pub(crate) fn late(profiles: u32) -> Result<Value> {
    let log = Log::default();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(log.clone()))?;
    let profiler = profiler::start(Config::new("host").heap(true).heap_interval(1))?;
    let kept = blocks(10);
    log.set(State::Stops);
    // What is sent is accepted, which is logged. Nobody waits until it is.
    let ask = || profiler.flush(Duration::from_millis(1));
    ask();
    wait_for(|| log.state() == State::Stands)?;
    for _ in 0..profiles {
        ask();
    }
    let ended = profiler.shutdown(Duration::from_millis(100));
    log.set(State::Goes);
    drop(kept);
    let lines = log.0.lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(json!({ "ended": ended, "log": lines }))
}

/// What is logged by other threads than the one that exports: each message with its fields.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    lines: Mutex<Vec<String>>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Whether the thread that exports is let go on when it logs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Goes,
    /// It is not, when it comes.
    Stops,
    /// It has come.
    Stands,
}

impl Log {
    fn set(&self, state: State) {
        *self.0.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.0.changed.notify_all();
    }

    fn state(&self) -> State {
        *self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stand(&self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *state == State::Stops {
            *state = State::Stands;
        }
        let goes = self.0.changed.wait_while(state, |state| *state == State::Stands);
        drop(goes.unwrap_or_else(PoisonError::into_inner));
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if std::thread::current().name() == Some("profiler-io") {
            return self.stand();
        }
        let mut line = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            line += &format!(" {}={value:?}", field.name());
        });
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}
