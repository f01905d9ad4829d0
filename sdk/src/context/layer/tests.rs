//! Spans of `tracing` through our layer: what a signal handler would read, at each point of their lives.

use std::sync::{Arc, Barrier};

use tracing::{Instrument, info_span};
use tracing_opentelemetry_0_33::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;

use super::super::counts::left_out_here;
use super::super::signal::{TAG_WORDS, current_of_signal};
use super::super::tags::texts;
use super::*;
use crate::Tags;

const TRACE: &str = "0102030405060708090A0b0c0d0e0f10";
const SPAN: &str = "00000000000000fF";

/// The tags of the record, sorted, and the id of the span.
fn record() -> (String, u64) {
    let mut words = [0; TAG_WORDS];
    let current = current_of_signal(&mut words);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let tags = texts(&bytes[..usize::from(current.tag_bytes)]);
    let mut tags: Vec<_> = tags.map(|(key, value)| format!("{key}={value}")).collect();
    tags.sort();
    (tags.join(" "), current.span_id)
}

fn seen(tags: &str, span_id: u64) -> (String, u64) {
    (tags.to_owned(), span_id)
}

fn with_layer(work: impl FnOnce()) {
    let subscriber = tracing_subscriber::registry().with(tracing_layer().with_field("route"));
    tracing::subscriber::with_default(subscriber, work);
}

/// Check that the innermost span is the one in the record, and that the outer one is back when it is left, under tags in force.
#[test]
fn the_innermost_span_is_in_the_record() {
    with_layer(|| {
        let outer = info_span!("outer", route = "/orders").entered();
        assert_eq!(record(), seen("route=/orders span=outer", 0));
        {
            let _tag = crate::tag!("a" => 1);
            let _inner = info_span!("inner").entered();
            assert_eq!(record(), seen("a=1 route=/orders span=inner", 0));
            assert_eq!(format!("{:?}", Tags::current()), r#"{"a": "1"}"#);
        }
        assert_eq!(record(), seen("route=/orders span=outer", 0));
        drop(outer);
        assert_eq!(record(), seen("", 0));
    });
}

/// Check that a span's ids are the link of its samples and of its children's, also where they are recorded later.
#[test]
fn ids_become_the_link() {
    with_layer(|| {
        let late = info_span!("late", trace_id = tracing::field::Empty, span_id = tracing::field::Empty);
        let _late = late.clone().entered();
        let _child = info_span!("child").entered();
        assert_eq!(record(), seen("span=child", 0));
        late.record("trace_id", TRACE).record("span_id", tracing::field::display(SPAN));
        assert_eq!(record(), seen("span=child", 255));
        let _own = info_span!("own", trace_id = TRACE, span_id = "00000000000000aa").entered();
        assert_eq!(record(), seen("span=own", 170));
        // Sixteen digits, but no hexadecimal ones.
        let _integer =
            info_span!(parent: None, "integer", trace_id = TRACE, span_id = 1_234_567_890_123_456_u64).entered();
        assert_eq!(record(), seen("span=integer", 0));
        let _none = info_span!(parent: None, "none").entered();
        assert_eq!(record(), seen("span=none", 0));
    });
}

/// Shows itself as this text, with a span of its own on the way.
struct Spanning(&'static str);

impl Debug for Spanning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _span = info_span!("inside").entered();
        formatter.write_str(self.0)
    }
}

/// Check that values may enter spans while they are recorded into one, and that what was recorded before stays.
#[test]
fn values_that_enter_spans_are_recorded() {
    let (done, outcome) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        with_layer(|| {
            let route = tracing::field::Empty;
            let late = info_span!("late", route, trace_id = TRACE, span_id = tracing::field::Empty);
            let entered = late.clone().entered();
            late.record("route", tracing::field::debug(Spanning("/orders")));
            late.record("span_id", tracing::field::debug(Spanning(SPAN)));
            done.send(record()).unwrap();
            drop(entered);
        });
    });
    let recorded = outcome.recv_timeout(std::time::Duration::from_secs(60));
    assert_eq!(recorded, Ok(seen("route=/orders span=late", 255)));
}

/// Check that tags of spans that find no room are counted: in one span, beside those of its parents, and below scopes.
#[test]
fn what_has_no_room_is_counted() {
    let layer = tracing_layer().with_field("w1").with_field("w2").with_field("w3");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let counts = |work: &dyn Fn()| {
            let before = left_out_here();
            work();
            left_out_here() - before
        };
        let wide = "x".repeat(255);
        let wide = wide.as_str();
        assert_eq!(counts(&|| drop(info_span!("full", w1 = wide, w2 = wide, w3 = wide))), 1, "in one span");
        let parent = info_span!("parent", w1 = wide, w2 = wide);
        let child = info_span!(parent: &parent, "child", w3 = wide);
        assert!(counts(&|| drop(child.enter())) > 0, "beside those of its parents");
        let _scope = crate::tag!("s1" => wide, "s2" => wide);
        let span = info_span!("span", w3 = wide);
        assert!(counts(&|| drop(span.enter())) > 0, "below scopes");
    });
}

/// Check that a value that had no room in a span is not replaced by its parent's.
#[test]
fn no_value_of_a_parent_stands_for_one_without_room() {
    let layer = tracing_layer().with_field("w1").with_field("w2").with_field("w3");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let wide = "x".repeat(255);
        let wide = wide.as_str();
        let _parent = info_span!("parent", w3 = 7).entered();
        let child = info_span!("child", w1 = wide, w2 = wide, w3 = wide).entered();
        assert_eq!(record(), seen(&format!("span=child w1={wide} w2={wide} w3="), 0));
        // What is recorded later goes before what is there.
        child.record("w3", "late");
        assert_eq!(record(), seen(&format!("span=child w1={wide} w2={wide} w3=late"), 0));
        child.record("w3", wide);
        assert_eq!(record(), seen(&format!("span=child w1={wide} w2= w3={wide}"), 0));
    });
}

/// Does `work` below a layer of an older `tracing-opentelemetry` and ours.
fn with_older(sampler: opentelemetry_sdk_0_32::trace::Sampler, work: impl FnOnce()) {
    use opentelemetry_0_32::trace::{TraceContextExt, TracerProvider};
    let provider = opentelemetry_sdk_0_32::trace::SdkTracerProvider::builder().with_sampler(sampler).build();
    let traced = tracing_opentelemetry_0_33::layer().with_tracer(provider.tracer("older"));
    let profiled = tracing_layer().with_ids(|| {
        let context = tracing::Span::current().context();
        let span = context.span().span_context().clone();
        span.is_sampled().then(|| (span.trace_id().to_bytes(), span.span_id().to_bytes()))
    });
    tracing::subscriber::with_default(tracing_subscriber::registry().with(traced).with(profiled), work);
}

/// The id that an older OpenTelemetry has given a span.
fn older_id(span: &tracing::Span) -> u64 {
    use opentelemetry_0_32::trace::TraceContextExt;
    u64::from_be_bytes(span.context().span().span_context().span_id().to_bytes())
}

/// Check that samples link to the span of an older OpenTelemetry that is entered, also on a thread without a subscriber, for its id was
/// found before.
#[test]
fn spans_of_an_older_opentelemetry_are_linked() {
    with_older(opentelemetry_sdk_0_32::trace::Sampler::AlwaysOn, || {
        let outer = info_span!("outer").entered();
        let (outer_id, inner) = (older_id(&outer), info_span!("inner").entered());
        let inner_id = older_id(&inner);
        assert!(outer_id != 0 && inner_id != 0 && inner_id != outer_id);
        assert_eq!(record(), seen("span=inner", inner_id));
        drop(inner);
        assert_eq!(record(), seen("span=outer", outer_id));
        let outer = outer.exit();
        assert_eq!(record(), seen("", 0));
        std::thread::scope(|scope| {
            let there = scope.spawn(|| outer.in_scope(record));
            assert_eq!(there.join().unwrap(), seen("span=outer", outer_id));
        });
    });
}

/// Check that those that are not sampled are none, where the program says so.
#[test]
fn spans_of_an_older_opentelemetry_that_are_not_sampled_are_no_links() {
    with_older(opentelemetry_sdk_0_32::trace::Sampler::AlwaysOff, || {
        let span = info_span!("unsampled").entered();
        assert_ne!(older_id(&span), 0);
        assert_eq!(record(), seen("span=unsampled", 0));
    });
}

/// Check that ids that are those of another subscriber's span are not taken for this one's.
#[test]
fn ids_of_another_subscriber_are_not_taken() {
    let layer = || tracing_layer().with_ids(|| Some(([1; 16], [2; 8])));
    let dispatches = [(); 2].map(|()| tracing::Dispatch::new(tracing_subscriber::registry().with(layer())));
    let span = tracing::dispatcher::with_default(&dispatches[0], || info_span!("first"));
    tracing::dispatcher::with_default(&dispatches[1], || assert_eq!(span.in_scope(record), seen("span=first", 0)));
    tracing::dispatcher::with_default(&dispatches[0], || {
        assert_eq!(span.in_scope(record), seen("span=first", 0x0202_0202_0202_0202));
    });
}

/// Check that what is no id is none.
#[test]
fn what_is_no_id_is_none() {
    let read = |text: &str| id::<8>(&text);
    assert_eq!(read(SPAN), Some([0, 0, 0, 0, 0, 0, 0, 255]));
    for text in
        ["", "ff", "0000000000000000", "00000000000000fg", "00000000000000ff0", "0x000000000000ff", "+0000000000000ff"]
    {
        assert_eq!(read(text), None, "{text}");
    }
}

/// Check that spans left out of order leave the ones that are still entered.
#[test]
fn spans_are_left_in_any_order() {
    with_layer(|| {
        let first = info_span!("first").entered();
        let second = info_span!("second").entered();
        drop(first);
        assert_eq!(record(), seen("span=second", 0));
        let third = info_span!("third").entered();
        drop(second);
        assert_eq!(record(), seen("span=third", 0));
        drop(third);
        assert_eq!(record(), seen("", 0));
    });
}

/// Check that a span that was made on one thread is that of another one while it is entered there, and of none afterwards, also
/// when it closes there.
#[test]
fn a_span_is_where_it_is_entered() {
    let subscriber = tracing_subscriber::registry().with(tracing_layer());
    let dispatch = tracing::Dispatch::new(subscriber);
    let span = tracing::dispatcher::with_default(&dispatch, || info_span!("moved"));
    let step = Arc::new(Barrier::new(2));
    let there = {
        let step = Arc::clone(&step);
        std::thread::spawn(move || {
            tracing::dispatcher::with_default(&dispatch, || {
                let entered = span.entered();
                let inside = record();
                step.wait();
                step.wait();
                drop(entered);
                (inside, record())
            })
        })
    };
    step.wait();
    assert_eq!(record(), seen("", 0));
    step.wait();
    assert_eq!(there.join().unwrap(), (seen("span=moved", 0), seen("", 0)));
}

/// Check that an instrumented future is in its span at each poll and at its end, and that nothing stays with the thread.
#[test]
fn an_instrumented_future_is_in_its_span() {
    with_layer(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let task = |name: &'static str| {
            let work = async move {
                for _ in 0..10 {
                    assert_eq!(record().0, format!("route={name} span=task"));
                    tokio::task::yield_now().await;
                }
            };
            work.instrument(info_span!("task", route = name))
        };
        runtime.block_on(async { tokio::join!(task("a"), task("b"), task("c")) });
        assert_eq!(record(), seen("", 0));
    });
}

/// Check that a thousand fields and a long name are bounded, and that nobody panics.
#[test]
fn what_is_too_long_is_cut() {
    with_layer(|| {
        let long = "x".repeat(1_000_000);
        let _span = info_span!("long", route = %long, trace_id = %long, span_id = ?long).entered();
        assert_eq!(record(), (format!("route={} span=long", "x".repeat(255)), 0));
    });
}

/// A value that relies on being written without an error.
struct Strict(&'static str);

impl std::fmt::Display for Strict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().for_each(|digit| f.write_str(digit.encode_utf8(&mut [0; 4])).unwrap());
        Ok(())
    }
}

/// Check that a field with the name of an id that holds something else gets no error while it is written.
#[test]
fn what_is_no_id_is_written_without_an_error() {
    with_layer(|| {
        let (other, long) = (Strict("an order's"), Strict("0123456789abcdef0"));
        let _span = info_span!("strict", trace_id = %other, span_id = %long).entered();
        assert_eq!(record(), seen("span=strict", 0));
        let (trace, id) = (Strict(TRACE), Strict(SPAN));
        let _span = info_span!("ids", trace_id = %trace, span_id = %id).entered();
        assert_ne!(record().1, 0);
    });
}

/// A layer of `tracing` that can be taken away, in force for `work`.
fn with_handle(
    work: impl FnOnce(&tracing_subscriber::reload::Handle<Option<TracingLayer>, tracing_subscriber::Registry>),
) {
    let (layer, handle) = tracing_subscriber::reload::Layer::new(Some(tracing_layer()));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || work(&handle));
}

/// Check that a layer in the place of another one knows its spans, and takes back what that one showed.
#[test]
fn a_layer_goes_on_where_another_one_was() {
    with_handle(|handle| {
        let outer = info_span!("outer", trace_id = TRACE, span_id = SPAN).entered();
        let inner = info_span!("inner").entered();
        assert_eq!(record(), seen("span=inner", 255));
        handle.reload(Some(tracing_layer())).unwrap();
        drop(inner);
        assert_eq!(record(), seen("span=outer", 255));
        drop(outer);
        assert_eq!(record(), seen("", 0));
    });
}

/// Check that what a layer showed goes with it: at the thread's next change of tags, and at the end of the span at the latest.
#[test]
fn what_a_layer_showed_goes_with_it() {
    let ids = || info_span!("request", trace_id = TRACE, span_id = SPAN).entered();
    with_handle(|handle| {
        let scope = crate::tag!("outer" => 1);
        let span = ids();
        assert_eq!(record(), seen("outer=1 span=request", 255));
        handle.reload(None).unwrap();
        {
            let _inner = crate::tag!("inner" => 1);
            assert_eq!(record(), seen("inner=1 outer=1", 0));
        }
        assert_eq!(record(), seen("outer=1", 0));
        drop((span, scope));
        assert_eq!(record(), seen("", 0));
    });
    with_handle(|handle| {
        let (scope, span) = (crate::tag!("outer" => 1), ids());
        handle.reload(None).unwrap();
        drop(scope);
        assert_eq!(record(), seen("", 0));
        drop(span);
    });
    with_handle(|handle| {
        let span = ids();
        handle.reload(None).unwrap();
        drop(span);
        assert_eq!(record(), seen("", 0));
    });
}

/// Check that the end of a layer takes nothing from what another one shows.
#[test]
fn a_layer_that_ends_takes_nothing_from_another_one() {
    with_layer(|| {
        let span = info_span!("outer", trace_id = TRACE, span_id = SPAN).entered();
        with_handle(|handle| handle.reload(None).unwrap());
        let _tag = crate::tag!("a" => 1);
        assert_eq!(record(), seen("a=1 span=outer", 255));
        drop(span);
        assert_eq!(record(), seen("a=1", 0));
    });
}

/// Check that a span of OpenTelemetry is the link also where spans have ids of their own, and is so again where they are left.
#[test]
#[cfg(feature = "opentelemetry")]
fn a_span_of_opentelemetry_goes_before_ids_of_fields() {
    use opentelemetry::Context;
    use opentelemetry::trace::{SpanContext, TraceContextExt, TraceFlags, TraceState};

    super::super::otel::observe();
    let span = SpanContext::new(7_u128.into(), 9_u64.into(), TraceFlags::SAMPLED, false, TraceState::default());
    with_layer(|| {
        let with_ids = info_span!("with_ids", trace_id = TRACE, span_id = SPAN).entered();
        assert_eq!(record(), seen("span=with_ids", 255));
        let current = Context::new().with_remote_span_context(span).attach();
        assert_eq!(record(), seen("span=with_ids", 9));
        drop(with_ids);
        assert_eq!(record(), seen("", 9));
        let without = info_span!("without").entered();
        assert_eq!(record(), seen("span=without", 9));
        drop(current);
        assert_eq!(record(), seen("span=without", 0));
        drop(without);
    });
}

/// Check that a program that enters spans where it is asked for ids is not asked for theirs.
#[test]
fn spans_that_are_entered_for_ids_have_none() {
    let layer = tracing_layer().with_ids(|| {
        let _asked = info_span!("asked").entered();
        assert_eq!(record(), seen("span=asked", 0));
        Some(([1; 16], [0, 0, 0, 0, 0, 0, 0, 5]))
    });
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let span = info_span!("outer").entered();
        assert_eq!(record(), seen("span=outer", 5));
        drop(span);
        assert_eq!(record(), seen("", 0));
    });
}
