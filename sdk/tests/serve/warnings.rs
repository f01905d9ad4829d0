//! What the log says of who can read.

use std::fmt::{Debug, Write};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use profiler::serve::{Security, Server, Store};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{self, Layer, SubscriberExt};

use crate::source::Waiting;

/// Check that an address that others can reach is in the log as a warning as long as not both a token and TLS are set, with what to do, and that
/// loopback is not.
#[test]
fn an_address_that_others_reach_is_in_the_log() {
    let token = || Security::new().token("a-token-of-the-tests");
    for loopback in ["127.0.0.1:0", "localhost:0", "[::ffff:127.0.0.1]:0"] {
        assert_eq!(said(loopback, &Security::new()), [], "{loopback}");
    }
    let open = said("0.0.0.0:0", &Security::new());
    assert!(
        matches!(open.as_slice(), [(Level::WARN, text)] if text.contains("everybody") && text.contains("PROFILER_SERVE_TOKEN") && text.contains("0.0.0.0:")),
        "{open:?}"
    );
    let plain = said("0.0.0.0:0", &token());
    assert!(
        matches!(plain.as_slice(), [(Level::WARN, text)] if text.contains("unencrypted") && text.contains("certificate")),
        "{plain:?}"
    );
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = std::env::temp_dir().join(format!("profiler-serve-log-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let safe = said("0.0.0.0:0", &token().tls(&certificate, &key));
    std::fs::remove_dir_all(folder).unwrap();
    assert!(matches!(safe.as_slice(), [(Level::INFO, text)] if text.contains("TLS")), "{safe:?}");
}

/// What is said when a server begins to answer at `address`.
fn said(address: &str, security: &Security) -> Vec<(Level, String)> {
    let lines = Lines::default();
    let _subscribed = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let bound = Server::bind(address).unwrap().secured(security).unwrap();
    let mut run = pin!(bound.run(Arc::new(Waiting::default()), Arc::new(Store::default())));
    assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let lines = lines.0.lock().unwrap();
    lines.clone()
}

/// Keeps the profiler's lines of the levels that operators see.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(Level, String)>>>);

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: layer::Context<'_, S>) {
        if *event.metadata().level() <= Level::INFO && event.metadata().target().starts_with("profiler") {
            let mut line = Line::default();
            event.record(&mut line);
            self.0.lock().unwrap().push((*event.metadata().level(), line.0));
        }
    }
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}
