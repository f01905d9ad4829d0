//! Threads that change tags and spans, each change announced, for a reader outside to check.
//!
//! In: how many threads, whether they go on until they are told to end (`how=race`) or do every kind of change once, from
//! their birth to their end (`how=script`), those of local roots (`how=roots`), those by which what a layer showed goes with it (`how=gone`),
//! or those from within as many scopes as a thread keeps (`how=beyond`). Out: their ids and where each of them says what it does. In a program
//! (the scenario `watched`), and in a library that a program loads (`plugin`).

use std::fmt::Display;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::task::{Context as Task, Poll, Waker};

use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, Tracer, TracerProvider,
};
use opentelemetry_sdk::trace::{IdGenerator, SdkTracerProvider};
use profiler::{Config, FutureExt, ProfiledSpans, Scope, SpanLink, Tags, TracingLayer, with_tags};
use serde_json::{Value, json};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Registry, reload};

use super::watched::{State, Watch};
use crate::Result;
use crate::child::{say, wait_for_word};
use crate::subject::Options;
use crate::tally::hex;
use crate::workload::Random;

/// How many scopes and spans of each kind there are.
const KINDS: u16 = 16;
/// How many scopes a thread keeps.
const MAX_SCOPES: usize = 256;

/// Runs the threads; the first word lets them begin, the second one ends those that race. `symbol` tells where the calling thread's
/// `otel_thread_ctx_v1` is, if it knows.
///
/// # Errors
/// When the profiler does not start, or an option is missing.
pub fn watched(options: &Options, symbol: fn() -> Option<u64>) -> Result<Value> {
    let how = options.value::<String>("how")?;
    let link = if how == "roots" { SpanLink::LocalRoot } else { SpanLink::Current };
    let profiler = profiler::start(Config::new("watched").rate_hz(options.value("rate")?).span_link(link))?;
    let (is_race, is_beyond) = (how == "race", how == "beyond");
    if !is_race {
        // In single steps a sample takes longer than the period that it stands for.
        profiler.pause();
    }
    let (begin, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (layer, handle) = reload::Layer::new(Some(profiler::tracing_layer()));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
    let sets = Sets::new();
    let (sender, births) = mpsc::channel();
    std::thread::scope(|scope| {
        for seed in 0..options.value("threads")? {
            let (sender, begin, over, sets, how, handle) = (sender.clone(), &begin, &over, &sets, &how, &handle);
            scope.spawn(move || {
                let watch = Arc::new(Watch::default());
                let mut worker = Worker { watch: &watch, state: State::default(), sets, random: Random::new(seed) };
                let held: Vec<_> = (1..if is_beyond { MAX_SCOPES } else { 1 }).map(|_| worker.outer(1)).collect();
                // Kept for ever: a reader may look until the thread is gone.
                let address = Arc::into_raw(Arc::clone(&watch)).addr();
                let tid = rustix::thread::gettid().as_raw_nonzero().get();
                let born = json!({ "tid": tid, "watch": address, "symbol": symbol() });
                // Whoever waits for all of them waits until the last sender is gone.
                let _sent = sender.send(born);
                drop(sender);
                while !begin.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                if is_race {
                    while !over.load(Ordering::Relaxed) {
                        worker.change();
                    }
                }
                match how.as_str() {
                    "race" => {}
                    "beyond" => worker.beyond(held),
                    "roots" => worker.roots(),
                    "gone" => worker.gone(handle),
                    _ => worker.script(),
                }
            });
        }
        drop(sender);
        say(&json!({ "threads": births.iter().collect::<Vec<_>>() }));
        wait_for_word()?;
        begin.store(true, Ordering::Relaxed);
        wait_for_word()?;
        over.store(true, Ordering::Relaxed);
        Ok(json!({ "ended": true }))
    })
}

/// What can be put in force; number `n` stands at `n - 1`.
struct Sets {
    outer: Vec<Tags>,
    inner: Vec<Tags>,
    /// The same, to stand in the place of all others.
    alone: Vec<Tags>,
    spans: Vec<Context>,
    /// Those that bring a tag.
    named: Vec<tracing::Span>,
    /// Those that are local roots, each with a child.
    roots: Vec<[Context; 2]>,
}

impl Sets {
    fn new() -> Self {
        let tags = |pairs: [(&'static str, String); 2]| {
            Tags::new(pairs.iter().map(|(key, value)| (*key, value as &dyn Display)))
        };
        let taken = |number| with_tags(tags(State::inner_tags(number)), Tags::current);
        Self {
            outer: (1..=KINDS).map(|number| tags(State::outer_tags(number))).collect(),
            inner: (1..=KINDS).map(|number| tags(State::inner_tags(number))).collect(),
            alone: (1..=KINDS).map(taken).collect(),
            spans: (1..=u32::from(KINDS)).map(span).collect(),
            named: (1..=u32::from(KINDS)).map(named).collect(),
            roots: roots(),
        }
    }
}

/// A span of `tracing`, with ids of its own.
fn named(number: u32) -> tracing::Span {
    let (trace_id, span_id) = State::ids(State::NAMED + number);
    tracing::info_span!("named", trace_id = hex(&trace_id), span_id = hex(&span_id))
}

/// A context with a span, of this process, as a tracer would make it.
fn span(number: u32) -> Context {
    let (trace_id, span_id) = State::ids(number);
    let (trace_id, span_id) = (TraceId::from_bytes(trace_id), SpanId::from_bytes(span_id));
    let flags = TraceFlags::new(State::flags(number));
    let span = SpanContext::new(trace_id, span_id, flags, false, TraceState::default());
    Context::new().with_remote_span_context(span)
}

/// Spans of a tracer whose ids are those of their numbers: what links to roots is told by their provider.
fn roots() -> Vec<[Context; 2]> {
    #[derive(Debug)]
    struct Ids;
    static NUMBER: AtomicU32 = AtomicU32::new(State::ROOT);
    impl IdGenerator for Ids {
        fn new_trace_id(&self) -> TraceId {
            TraceId::from_bytes(State::ids(NUMBER.load(Ordering::Relaxed)).0)
        }
        fn new_span_id(&self) -> SpanId {
            SpanId::from_bytes(State::ids(NUMBER.load(Ordering::Relaxed)).1)
        }
    }
    let spans = SdkTracerProvider::builder().with_id_generator(Ids).with_span_processor(ProfiledSpans::new()).build();
    let tracer = spans.tracer("watched");
    let begin = |parent: &Context, name, number| {
        NUMBER.store(number, Ordering::Relaxed);
        parent.with_span(tracer.start_with_context(name, parent))
    };
    let of = |number: u16| {
        let number = State::ROOT + u32::from(number);
        let root = begin(&Context::new(), "root", number);
        let child = begin(&root, "child", 2 * State::ROOT + number);
        [root, child]
    };
    (1..=KINDS).map(of).collect()
}

/// A thread at its work.
struct Worker<'a> {
    watch: &'a Watch,
    state: State,
    sets: &'a Sets,
    random: Random,
}

impl Worker<'_> {
    fn enter<R>(&mut self, state: State, change: impl FnOnce() -> R) -> R {
        self.state = state;
        self.watch.enter(state, change)
    }

    fn outer(&mut self, number: u16) -> Scope {
        let tags = &self.sets.outer[usize::from(number - 1)];
        self.enter(State { outer: number, ..self.state }, || Scope::enter(tags))
    }

    fn inner(&mut self, number: u16) -> Scope {
        let tags = &self.sets.inner[usize::from(number - 1)];
        self.enter(State { inner: number, ..self.state }, || Scope::enter(tags))
    }

    fn leave_outer(&mut self, scope: Scope) {
        self.enter(State { outer: 0, ..self.state }, || drop(scope));
    }

    fn leave_inner(&mut self, scope: Scope) {
        self.enter(State { inner: 0, ..self.state }, || drop(scope));
    }

    /// Does `work` in a span.
    fn in_span(&mut self, number: u32, work: impl FnOnce(&mut Self)) {
        let context = self.sets.spans[number as usize - 1].clone();
        let guard = self.enter(State { span: number, ..self.state }, || context.attach());
        work(self);
        self.enter(State { span: 0, ..self.state }, || drop(guard));
    }

    /// Does `work` in a span that brings a tag, which stands below all scopes.
    fn in_named(&mut self, number: u32, work: impl FnOnce(&mut Self)) {
        let span = &self.sets.named[number as usize - 1];
        let guard = self.enter(State { span: State::NAMED + number, ..self.state }, || span.enter());
        work(self);
        self.enter(State { span: 0, ..self.state }, || drop(guard));
    }

    /// Does `work` in a local root and a child of it, which have one link and one tag.
    fn in_root(&mut self, number: u16, work: impl FnOnce(&mut Self)) {
        let [root, child] = self.sets.roots[usize::from(number - 1)].clone();
        let span = State::ROOT + u32::from(number);
        let root = self.enter(State { span, ..self.state }, || root.attach());
        let child = child.attach();
        work(self);
        drop(child);
        self.enter(State { span: 0, ..self.state }, || drop(root));
    }

    /// Enters the tags of an inner scope in the place of those of the outer one, and leaves them again.
    fn alone(&mut self, number: u16) {
        let (outside, tags) = (self.state, &self.sets.alone[usize::from(number - 1)]);
        let scope = self.enter(State { outer: 0, inner: number, ..outside }, || Scope::enter(tags));
        self.enter(outside, || drop(scope));
    }

    /// Polls a future with tags twice, and drops it.
    fn poll(&mut self, number: u16) {
        let (outside, inside) = (self.state, State { inner: number, ..self.state });
        let tags = self.sets.inner[usize::from(number - 1)].clone();
        let mut context = Task::from_waker(Waker::noop());
        {
            let mut future = pin!(Inside { watch: self.watch, inside, outside }.with_tags(tags));
            for _ in 0..2 {
                self.watch.announce(inside);
                let _pending = future.as_mut().poll(&mut context);
                self.watch.arrive(outside);
            }
            self.watch.announce(inside);
        }
        self.watch.arrive(outside);
    }

    /// One of every kind of change, in an order of chance.
    fn change(&mut self) {
        let [outer, inner, span] = [0; 3].map(|_: u16| 1 + self.random.below(KINDS.into()) as u16);
        match self.random.below(6) {
            5 => self.below_scopes(outer, inner, span),
            4 => self.span_over_scopes(outer, inner, span),
            0 => self.in_order(outer, inner, span),
            1 => self.in_span(span.into(), |this| this.out_of_order(outer, inner)),
            2 => self.out_of_order(outer, inner),
            _ => {
                let scope = self.outer(outer);
                self.poll(inner);
                self.in_span(span.into(), |this| this.poll(inner));
                self.leave_outer(scope);
            }
        }
    }

    fn in_order(&mut self, outer: u16, inner: u16, span: u16) {
        let scope = self.outer(outer);
        self.in_span(span.into(), |this| {
            let scope = this.inner(inner);
            this.leave_inner(scope);
        });
        self.leave_outer(scope);
    }

    fn out_of_order(&mut self, outer: u16, inner: u16) {
        let (first, second) = (self.outer(outer), self.inner(inner));
        self.leave_outer(first);
        self.leave_inner(second);
    }

    /// Scopes that are left while a span goes on that began in them, and their place taken by others.
    fn span_over_scopes(&mut self, outer: u16, inner: u16, span: u16) {
        let (first, second) = (self.outer(outer), self.inner(inner));
        self.in_span(span.into(), |this| {
            this.leave_inner(second);
            this.leave_outer(first);
            let again = this.inner(outer);
            this.leave_inner(again);
        });
    }

    /// Spans that bring a tag, entered and left below scopes, and scopes within them.
    fn below_scopes(&mut self, outer: u16, inner: u16, span: u16) {
        let scope = self.outer(outer);
        self.in_named(span.into(), |this| {
            this.alone(inner);
            let scope = this.inner(inner);
            this.leave_inner(scope);
        });
        self.alone(inner);
        self.leave_outer(scope);
    }

    /// The last scope that a thread keeps and further ones, a span there, and the way back out of order; then the end of the thread, with `held`, which
    /// are all others that it keeps.
    fn beyond(&mut self, held: Vec<Scope>) {
        let (known, unknown) = (self.state, State { outer: State::BEYOND, ..self.state });
        let last = self.inner(2);
        let tags = [&self.sets.outer[2], &self.sets.inner[3]];
        let [first, second] = tags.map(|tags| self.enter(unknown, || Scope::enter(tags)));
        self.in_span(4, |_| ());
        // What they stand above is less by one then; what is known there is not in force.
        self.enter(unknown, || drop(last));
        self.enter(unknown, || drop(first));
        self.in_span(5, |_| ());
        self.enter(known, || drop(second));
        self.poll(6);
        let last = self.inner(7);
        self.leave_inner(last);
        std::mem::forget(held);
        self.watch.announce(State::default());
    }

    /// Every kind of change once, beginning with the thread's first, and a scope that is never left at its end.
    fn script(&mut self) {
        self.in_order(1, 2, 3);
        self.out_of_order(4, 5);
        self.in_span(6, |this| this.out_of_order(7, 8));
        self.poll(9);
        self.span_over_scopes(12, 13, 14);
        self.below_scopes(15, 16, 1);
        let scope = self.outer(10);
        self.poll(11);
        std::mem::forget(scope);
        self.watch.announce(State::default());
    }
}

impl Worker<'_> {
    /// Local roots in and out of scopes, in the place of each other, and of spans that are none.
    fn roots(&mut self) {
        self.in_root(1, |_| ());
        let scope = self.outer(2);
        self.in_root(3, |this| {
            let scope = this.inner(4);
            this.poll(5);
            this.leave_inner(scope);
            this.alone(6);
        });
        self.leave_outer(scope);
        self.in_root(7, |this| {
            let (outside, other) = (this.state, State { span: 8, ..this.state });
            let context = this.sets.spans[7].clone();
            let guard = this.enter(other, || context.attach());
            this.enter(outside, || drop(guard));
            this.out_of_order(9, 10);
        });
        self.in_span(11, |this| {
            let (outside, other) = (this.state, State { span: State::ROOT + 12, ..this.state });
            let [root, _] = this.sets.roots[11].clone();
            let guard = this.enter(other, || root.attach());
            this.enter(outside, || drop(guard));
        });
        self.watch.announce(State::default());
    }

    /// What a layer showed goes when the layer is gone: with the next scope that is entered or left, here without tags, for whose own there is a
    /// change behind it; with the next span of OpenTelemetry; and with the span itself.
    fn gone(&mut self, handle: &reload::Handle<Option<TracingLayer>, Registry>) {
        for way in 1..=4 {
            let scope = self.outer(way);
            let (without, shown) = (self.state, State { span: State::NAMED + u32::from(way), ..self.state });
            let empty = Scope::enter(Tags::default());
            let span = named(shown.span - State::NAMED);
            let span = self.enter(shown, || span.entered());
            // Whoever notices first takes it back.
            self.watch.announce(without);
            let _outcome = handle.reload(None);
            match way {
                1 => drop(Scope::enter(Tags::default())),
                2 => drop(empty),
                3 => drop(Context::new().attach()),
                _ => drop(span),
            }
            self.watch.arrive(without);
            self.state = without;
            self.leave_outer(scope);
            let _outcome = handle.reload(Some(profiler::tracing_layer()));
        }
        self.watch.announce(State::default());
    }
}

/// A future that never ends, and says when it is inside.
struct Inside<'a> {
    watch: &'a Watch,
    inside: State,
    outside: State,
}

impl Inside<'_> {
    fn is_here(&self) {
        self.watch.arrive(self.inside);
        self.watch.announce(self.outside);
    }
}

impl Future for Inside<'_> {
    type Output = ();
    fn poll(self: Pin<&mut Self>, _: &mut Task<'_>) -> Poll<()> {
        self.is_here();
        Poll::Pending
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.is_here();
    }
}
