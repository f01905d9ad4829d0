//! Local roots: which span and which name a signal handler would read, for spans of one process and of two, on several threads.
//!
//! What is asked for belongs to the process, so one test goes through all of it; the other tests' spans have no roots.

use opentelemetry::trace::{TraceFlags, TraceId, TraceState, Tracer, TracerProvider};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use super::super::signal::{TAG_WORDS, current_of_signal};
use super::super::spans::{SpanSettings, ask};
use super::super::tags::texts;
use super::*;

/// Keeps what ended.
#[derive(Debug, Clone, Default)]
struct Ended(Arc<Mutex<Vec<SpanData>>>);

impl SpanProcessor for Ended {
    fn on_start(&self, _: &mut SdkSpan, _: &Context) {}
    fn on_end(&self, span: SpanData) {
        self.0.lock().unwrap().push(span);
    }
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Ended {
    /// `pyroscope.profile.id` of each span that ended, by the span's name.
    fn profile_ids(&self) -> Vec<(String, Option<String>)> {
        let id_of = |span: &SpanData| {
            let id = span.attributes.iter().find(|attribute| attribute.key.as_str() == PROFILE_ID);
            (span.name.to_string(), id.map(|attribute| attribute.value.to_string()))
        };
        self.0.lock().unwrap().drain(..).map(|span| id_of(&span)).collect()
    }
}

/// The span's id as it is written, and `span_name`, of the record.
fn record() -> (String, Option<String>) {
    let mut words = [0; TAG_WORDS];
    let current = current_of_signal(&mut words);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut tags = texts(&bytes[..usize::from(current.tag_bytes)]);
    (format!("{:016x}", current.span_id), tags.find(|(key, _)| *key == SPAN_NAME).map(|(_, name)| name))
}

fn begin(tracer: &SdkTracer, name: &'static str, parent: &Context) -> Context {
    parent.with_span(tracer.start_with_context(name, parent))
}

fn written(context: &Context) -> String {
    context.span().span_context().span_id().to_string()
}

/// Spans that are kept by now.
fn kept() -> usize {
    ROOTS.iter().map(|shard| shard.roots.lock().unwrap().as_ref().map_or(0, HashMap::len)).sum()
}

/// Check that samples link to the first span of the process, by whatever span and on whatever thread they are taken, with its name;
/// that it alone is marked; that nothing is kept of spans that ended, and of those whose provider was shut down; and that by default every span is marked and is its own.
#[test]
fn samples_link_to_the_first_span_of_the_process() {
    super::super::otel::observe();
    let ended = Ended::default();
    let provider =
        SdkTracerProvider::builder().with_span_processor(ProfiledSpans::new()).with_span_processor(ended.clone());
    let tracer = provider.build().tracer("test");

    // By default nothing is kept, and nothing is looked for when a span ends.
    ask(Some(SpanSettings::default()));
    let lone = begin(&tracer, "lone", &Context::new());
    let id = lone.span().span_context().clone();
    let root = Arc::new(Root::new(&id, "lone"));
    shard(&id).unwrap().get_or_insert_default().insert(key(&id), (0, root));
    drop(lone);
    assert_eq!(kept(), 1);
    shard(&id).unwrap().take();
    ended.profile_ids();

    ask(Some(SpanSettings { link: SpanLink::LocalRoot, ..SpanSettings::default() }));
    let remote = SpanId::from(9_u64);
    let remote = SpanContext::new(TraceId::from(7_u128), remote, TraceFlags::SAMPLED, true, TraceState::default());
    let root = begin(&tracer, "GET /orders", &Context::new().with_remote_span_context(remote));
    let child = begin(&tracer, "price", &root);
    let of_root = (written(&root), Some("GET /orders".to_owned()));
    {
        let _child = child.clone().attach();
        assert_eq!(record(), of_root);
        let _value = Context::current_with_value(1_u8).attach();
        assert_eq!(record(), of_root);
        let _tag = crate::tag!("stage" => "price");
        assert_eq!(record(), of_root);
        let _other = begin(&tracer, "other", &Context::new()).attach();
        assert_eq!(record().1.as_deref(), Some("other"));
    }
    assert_eq!(record(), ("0".repeat(16), None));

    // A child that begins on another thread when the root has ended.
    root.span().end();
    let there = std::thread::spawn({
        let (tracer, root) = (tracer.clone(), root.clone());
        move || {
            let late = begin(&tracer, "late", &root);
            let guard = late.attach();
            let inside = record();
            drop(guard);
            (inside, record().1)
        }
    });
    assert_eq!(there.join().unwrap(), (of_root, None));
    child.span().end();
    let marks = ended.profile_ids();
    let mark = |name: &str| marks.iter().find(|(known, _)| known == name).unwrap().1.clone();
    assert_eq!((mark("GET /orders"), mark("price"), mark("late")), (Some(written(&root)), None, None));
    assert!(mark("other").is_some());
    drop((root, child));
    assert_eq!(kept(), 0);

    // Where there is no room, a child stands for itself, and says so.
    let root = begin(&tracer, "root", &Context::new());
    let kept_root = of_span(root.span().span_context()).unwrap();
    let of_trace = |trace: u128, id: u64| {
        SpanContext::new(TraceId::from(trace), SpanId::from(id), TraceFlags::SAMPLED, false, TraceState::default())
    };
    let spans = ProfiledSpans::new();
    // A span of another trace may have the same id.
    assert!(spans.insert(&of_trace(1, 1), Arc::clone(&kept_root)));
    assert!(of_span(&of_trace(1, 1)).is_some() && of_span(&of_trace(2, 1)).is_none());
    (1..=(SHARDS * MAX_SPANS) as u64).for_each(|id| {
        spans.insert(&of_trace(1, id), Arc::clone(&kept_root));
    });
    assert_eq!(kept(), SHARDS * MAX_SPANS);
    let child = begin(&tracer, "crowded", &root);
    {
        let _child = child.clone().attach();
        assert_eq!(record().0, written(&child));
    }
    child.span().end();
    let marks = ended.profile_ids();
    assert!(marks.contains(&("crowded".to_owned(), Some(written(&child)))), "{marks:?}");
    root.span().end();
    spans.shutdown().unwrap();
    assert_eq!(kept(), 0);
    ended.profile_ids();
    drop((root, child, kept_root));

    // Who has to wait for a map takes the root out all the same.
    let patient = begin(&tracer, "patient", &Context::new());
    let held = shard(patient.span().span_context()).unwrap();
    let ending = std::thread::spawn(move || patient.span().end());
    // As long as no number of tries takes.
    std::thread::sleep(Duration::from_millis(100));
    drop(held);
    ending.join().unwrap();
    assert_eq!(kept(), 0);
    ended.profile_ids();

    // In a child of the process that had the maps first, one that stays shut is given up, noted, and had again when it opens.
    let keeper = KEEPER.swap(u32::MAX, Ordering::Relaxed);
    let stuck = begin(&tracer, "stuck", &Context::new());
    let span = stuck.span().span_context().clone();
    let held = shard(&span).unwrap();
    let there = std::thread::spawn(move || {
        let found = of_span(&span).is_some();
        (found, ROOTS.iter().filter(|shard| shard.shut_in.load(Ordering::Relaxed) == std::process::id()).count(), span)
    });
    let (found, shut, span) = there.join().unwrap();
    assert_eq!((found, shut), (false, 1));
    drop(held);
    assert!(of_span(&span).is_some() && ROOTS.iter().all(|shard| shard.shut_in.load(Ordering::Relaxed) == 0));
    KEEPER.store(keeper, Ordering::Relaxed);
    drop(stuck);
    assert_eq!(kept(), 0);
    ended.profile_ids();

    // Of a provider that was shut down nobody hears any more that its spans have ended; those of others stay.
    let brief = SdkTracerProvider::builder().with_span_processor(ProfiledSpans::new()).build();
    let spans = [brief.tracer("brief"), tracer.clone()].map(|tracer| begin(&tracer, "request", &Context::new()));
    assert_eq!(kept(), 2);
    brief.shutdown().unwrap();
    assert_eq!(kept(), 1);
    assert!(of_span(spans[0].span().span_context()).is_none() && of_span(spans[1].span().span_context()).is_some());
    drop(spans);
    assert_eq!(kept(), 0);
    ended.profile_ids();

    ask(Some(SpanSettings::default()));
    let parent = begin(&tracer, "parent", &Context::new());
    let child = begin(&tracer, "child", &parent);
    {
        let _child = child.clone().attach();
        assert_eq!(record(), (written(&child), None));
    }
    child.span().end();
    parent.span().end();
    let expected = [("child", &child), ("parent", &parent)].map(|(name, span)| (name.to_owned(), Some(written(span))));
    assert_eq!(ended.profile_ids(), expected);
    assert_eq!(kept(), 0);
}
