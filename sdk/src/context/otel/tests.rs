//! Which span a signal handler would read, at each point in the life of a context: plain, through `tracing`, in tasks that move.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use opentelemetry::trace::{FutureExt, SpanId, TraceFlags, TraceId, TraceState, Tracer, TracerProvider};
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use tracing::{Instrument, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;

use super::super::signal::{TAG_WORDS, current_of_signal};
use super::super::spans::stats;
use super::*;

/// The span in this thread's record; 0: none.
fn record() -> u64 {
    current_of_signal(&mut [0; TAG_WORDS]).span_id
}

/// The span of a context as a number.
fn id_of(context: &Context) -> u64 {
    u64::from_be_bytes(context.span().span_context().span_id().to_bytes())
}

fn tracer(sampler: Sampler) -> SdkTracer {
    observe();
    SdkTracerProvider::builder().with_sampler(sampler).build().tracer("test")
}

/// A context with a span of its own.
fn context(tracer: &SdkTracer) -> Context {
    Context::new().with_span(tracer.start_with_context("span", &Context::new()))
}

/// Check that our observer is the one in force, and that this is said.
#[test]
fn the_observer_is_in_force() {
    let tracer = tracer(Sampler::AlwaysOn);
    let _current = context(&tracer).attach();
    let stats = stats();
    assert!(stats.observed && stats.seen && !stats.notes.contains(&NOT_OBSERVED.to_owned()), "{stats:?}");
}

/// Check that contexts attached and left in and out of order leave the right span in the record.
#[test]
fn contexts_end_in_any_order() {
    let tracer = tracer(Sampler::AlwaysOn);
    let [first, second, third] = [(); 3].map(|()| context(&tracer));
    let ids = [&first, &second, &third].map(id_of);
    assert_eq!(record(), 0);
    let first = first.attach();
    assert_eq!(record(), ids[0]);
    let second = second.attach();
    assert_eq!(record(), ids[1]);
    drop(first);
    assert_eq!(record(), ids[1]);
    let third = third.attach();
    drop(second);
    assert_eq!(record(), ids[2]);
    drop(third);
    assert_eq!(record(), 0);
}

/// Check that a context without a span hides the one outside, and one with a value keeps it.
#[test]
fn a_context_without_a_span_has_none() {
    let tracer = tracer(Sampler::AlwaysOn);
    let outer = context(&tracer);
    let id = id_of(&outer);
    let _outer = outer.attach();
    let with_value = Context::current_with_value(7_u32).attach();
    assert_eq!(record(), id);
    drop(with_value);
    let empty = Context::new().attach();
    assert_eq!(record(), 0);
    drop(empty);
    assert_eq!(record(), id);
}

/// Check that a span of another process, which came with a request's head, is no link, and that its child here is one.
#[test]
fn a_span_of_another_process_is_no_link() {
    let tracer = tracer(Sampler::AlwaysOn);
    let (trace, span) = (TraceId::from(7_u128), SpanId::from(9_u64));
    let remote = SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::default());
    let parent = Context::new().with_remote_span_context(remote);
    let child = parent.with_span(tracer.start_with_context("child", &parent));
    let _parent = parent.attach();
    assert_eq!(record(), 0);
    let _child = child.clone().attach();
    assert_eq!(record(), id_of(&child));
    assert_eq!(current_of_signal(&mut [0; TAG_WORDS]).trace_id, [0, 7]);
}

/// Check that a span that is not sampled is no link.
#[test]
fn a_span_that_is_not_sampled_is_no_link() {
    let unsampled = context(&tracer(Sampler::AlwaysOff));
    assert_ne!(id_of(&unsampled), 0);
    let span = unsampled.span().span_context().clone();
    let _unsampled = unsampled.attach();
    assert_eq!(record(), 0);
    assert!(!is_linked(&span, SpanSettings::default()));
    assert!(is_linked(&span, SpanSettings { unsampled: true, ..SpanSettings::default() }));
}

/// Check that it has no link by the fields of a `tracing` span either, and that these are the link where no context is current.
#[test]
#[cfg(feature = "tracing-layer")]
fn ids_in_fields_are_no_link_of_a_span_that_is_not_sampled() {
    let tracer = tracer(Sampler::AlwaysOff);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(crate::tracing_layer()), || {
        let logged = info_span!("logged", trace_id = "0102030405060708090a0b0c0d0e0f10", span_id = "00000000000000ff");
        let _logged = logged.entered();
        assert_eq!(record(), 0xff);
        let unsampled = context(&tracer).attach();
        assert_eq!(record(), 0);
        let _inner =
            info_span!("inner", trace_id = "0102030405060708090a0b0c0d0e0f10", span_id = "00000000000000fe").entered();
        assert_eq!(record(), 0);
        drop(unsampled);
        assert_eq!(record(), 0xfe);
    });
}

/// Check that a span that ended is the link for as long as its context is current, and no longer.
#[test]
fn an_ended_span_goes_with_its_context() {
    let tracer = tracer(Sampler::AlwaysOn);
    let ended = context(&tracer);
    let id = id_of(&ended);
    let guard = ended.clone().attach();
    ended.span().end();
    assert_eq!(record(), id);
    drop(guard);
    assert_eq!(record(), 0);
}

/// Check that a context that was current before the start is seen when the start says so.
#[test]
fn a_context_from_before_the_start_is_seen() {
    let tracer = tracer(Sampler::AlwaysOn);
    let current = context(&tracer);
    let _current = current.clone().attach();
    // As if nobody had observed when it was attached.
    show(Source::OpenTelemetry, &[], Some(Linked::NONE));
    observe();
    assert_eq!(record(), id_of(&current));
}

/// Check that nothing is written where the span stays the same: the record in force stays the same one.
#[test]
fn the_same_span_is_not_written_again() {
    let in_force = || super::super::thread::Thread::with_here(|_, in_force| in_force.get().addr());
    let tracer = tracer(Sampler::AlwaysOn);
    let current = context(&tracer);
    let _current = current.clone().attach();
    let before = in_force();
    let _again = current.attach();
    assert_eq!(in_force(), before);
    std::thread::spawn(move || {
        let _empty = Context::new().attach();
        assert_eq!(in_force(), Some(0));
    })
    .join()
    .unwrap();
}

/// Check that a forked child has the span that was current, and follows the next ones.
#[test]
fn a_forked_child_follows_spans() {
    let tracer = tracer(Sampler::AlwaysOn);
    let (first, second) = (context(&tracer), context(&tracer));
    let ids = [&first, &second].map(id_of);
    let _first = first.attach();
    // SAFETY: the child calls what a child of one thread may, and ends by _exit(2): it does not return to the test runner.
    match unsafe { libc::fork() } {
        0 => {
            let inherited = record() == ids[0];
            let second = second.attach();
            let followed = record() == ids[1];
            drop(second);
            let restored = record() == ids[0];
            let status = i32::from(!inherited) | i32::from(!followed) << 1 | i32::from(!restored) << 2;
            // SAFETY: ends the child.
            unsafe { libc::_exit(status) }
        }
        child => {
            let mut status = -1;
            // SAFETY: the child that was forked above; waitpid(2) writes the status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
}

/// A task that looks at each of its polls; the threads that it ran on.
async fn look(id: u64, rounds: usize, threads: &Mutex<HashSet<std::thread::ThreadId>>) {
    for round in 0..rounds {
        assert_eq!(record(), id);
        threads.lock().unwrap().insert(std::thread::current().id());
        if round % 8 == 0 {
            tokio::time::sleep(Duration::from_micros(50)).await;
        } else {
            tokio::task::yield_now().await;
        }
        assert_eq!(record(), id);
    }
}

/// Runs tasks that `make` makes on four workers, and looks between them that nothing stays with a thread.
fn run_tasks<F: Future<Output = ()> + Send + 'static>(make: impl Fn() -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..200).map(|_| tokio::spawn(make())).collect();
        let bare = (0..200).map(|_| {
            tokio::spawn(async {
                for _ in 0..50 {
                    assert_eq!(record(), 0);
                    tokio::task::yield_now().await;
                }
            })
        });
        for task in tasks.into_iter().chain(bare.collect::<Vec<_>>()) {
            task.await.unwrap();
        }
    });
}

/// Check that a task has its span at every poll, on whichever thread, and the tasks without one have none there.
#[test]
fn a_task_keeps_its_span_over_threads() {
    let tracer = tracer(Sampler::AlwaysOn);
    let threads = Arc::new(Mutex::new(HashSet::new()));
    run_tasks(|| {
        let context = context(&tracer);
        let (id, threads) = (id_of(&context), Arc::clone(&threads));
        async move { look(id, 50, &threads).await }.with_context(context)
    });
    assert!(threads.lock().unwrap().len() > 1);
}

/// Check the same through `tracing` and `tracing-opentelemetry`, with spans in spans.
#[test]
fn a_traced_task_keeps_its_span_over_threads() {
    let layer = tracing_opentelemetry::layer().with_tracer(tracer(Sampler::AlwaysOn));
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    let threads = Arc::new(Mutex::new(HashSet::new()));
    run_tasks(|| {
        let threads = Arc::clone(&threads);
        let outer = tracing::dispatcher::with_default(&dispatch, || info_span!("outer"));
        let dispatch = dispatch.clone();
        let work = async move {
            let id = id_of(&tracing::Span::current().context());
            look(id, 20, &threads).await;
            let inner = info_span!("inner");
            let inner_id = id_of(&inner.context());
            assert_ne!(inner_id, id);
            look(inner_id, 20, &threads).instrument(inner).await;
            look(id, 20, &threads).await;
        };
        tracing::instrument::WithSubscriber::with_subscriber(work.instrument(outer), dispatch)
    });
    assert!(threads.lock().unwrap().len() > 1);
}

/// Check that spans of `tracing` left out of order leave those that are still entered.
#[test]
fn traced_spans_end_in_any_order() {
    let layer = tracing_opentelemetry::layer().with_tracer(tracer(Sampler::AlwaysOn));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let (first, second) = (info_span!("first"), info_span!("second"));
        let ids = [&first, &second].map(|span| id_of(&span.context()));
        let first = first.entered();
        assert_eq!(record(), ids[0]);
        let second = second.entered();
        drop(first);
        assert_eq!(record(), ids[1]);
        drop(second);
        assert_eq!(record(), 0);
    });
}
