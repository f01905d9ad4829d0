//! What `start` makes of settings and of a machine that refuses: an error that says so, or a profiler that works.
//!
//! In: settings on the command line and in the environment. Out: the error's words and kind, or the account after some
//! work, and what was logged. Either way the program goes on and ends well: that is the point.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use profiler::export::Otlp;
use profiler::{Config, Error};
use profiler_tests::Result;
use profiler_tests::subject::Options;
use profiler_tests::workload::spin;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::{Value, json};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use profiler_tests::stats;

use crate::FLUSH;

/// Starts with the settings given, works, and says what came of it.
pub(crate) fn start(options: &Options) -> Result<Value> {
    let mut config = match options.value_or("service", String::from("-"))?.as_str() {
        "-" => Config::from_env(),
        service => Config::new(service.replace("empty", "")),
    };
    if let Ok(rate) = options.value("rate") {
        config = config.rate_hz(rate);
    }
    if let Ok(address) = options.value::<String>("serve") {
        config = config.serve(address);
    }
    if let Ok(endpoint) = options.value::<String>("grpc") {
        let otlp = Otlp::grpc(endpoint);
        config = config.export(match options.value::<String>("token") {
            Ok(token) => otlp.bearer_token(token),
            Err(_) => otlp,
        });
    }
    logged(|| outcome(config))
}

/// The same with what was logged meanwhile.
fn logged(work: impl FnOnce() -> Result<Value>) -> Result<Value> {
    let log = Log::default();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(log.clone()))?;
    let mut outcome = work()?;
    outcome["log"] = log.0.lock().unwrap_or_else(PoisonError::into_inner).as_slice().into();
    Ok(outcome)
}

/// What is logged at the level `INFO` and above: each message with its fields.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() > tracing::Level::INFO {
            return;
        }
        let (mut message, mut fields) = (String::new(), String::new());
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| match field.name() {
            "message" => message = format!("{value:?}"),
            name => fields += &format!(" {name}={value:?}"),
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(message + &fields);
    }
}

/// Starts twice.
pub(crate) fn second() -> Result<Value> {
    let first = profiler::start("first")?;
    let second = outcome(Config::new("second"))?;
    drop(first);
    let third = outcome(Config::new("third"))?;
    Ok(json!({ "second": second, "third": third }))
}

/// Starts where the kernel gives no timer away: each takes one of the signals that may be pending (timer_create(2)).
pub(crate) fn without_timers() -> Result<Value> {
    setrlimit(Resource::Sigpending, Rlimit { current: Some(0), maximum: Some(0) })?;
    logged(|| outcome(Config::new("limits").rate_hz(100)))
}

/// The error of a start, or what a profiler that started has after a second of work.
fn outcome(config: Config) -> Result<Value> {
    let profiler = match profiler::start(config) {
        Ok(profiler) => profiler,
        Err(error) => {
            spin(Duration::from_millis(20));
            return Ok(refused(&error));
        }
    };
    spin(Duration::from_secs(1));
    let running = stats::to_json(&profiler.stats());
    profiler.pause();
    let flushed = profiler.flush(FLUSH);
    let stats = stats::to_json(&profiler.stats());
    Ok(json!({ "started": true, "flushed": flushed, "running": running, "stats": stats }))
}

fn refused(error: &Error) -> Value {
    json!({ "started": false, "message": error.to_string(), "kind": format!("{:?}", error.kind()) })
}
