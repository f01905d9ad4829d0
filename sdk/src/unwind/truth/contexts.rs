//! Changes of tags and spans in single steps: what a handler reads behind every instruction is the old context or the new one.
//!
//! In: the changes of a thread, once at full speed, which tells what is read after each, and once in single steps. Out: how
//! often the old and the new one were read. The handler of the trap reads what the handler of SIGPROF would.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context as Task, Poll, Waker};

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing_subscriber::layer::SubscriberExt;

use super::stepper::Run;
use crate::context::{Current, TAG_WORDS, address, current_of_signal, end_here, otel};
use crate::{FutureExt, Scope, Tags, with_tags};

/// What a handler reads.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Seen {
    current: Current,
    tags: [u64; TAG_WORDS],
}

const NOTHING: Seen = Seen { current: NO_CONTEXT, tags: [0; TAG_WORDS] };
const NO_CONTEXT: Current = Current { tag_bytes: 0, trace_id: [0; 2], span_id: 0 };

thread_local! {
    /// What is read after each change; first, before all of them.
    static EXPECTED: Cell<&'static [Seen]> = const { Cell::new(&[]) };
    /// How many changes are behind the thread.
    static CHANGES: Cell<usize> = const { Cell::new(0) };
    /// How often the context before a change was read, the one after it, neither.
    static COUNTS: Cell<[u64; 3]> = const { Cell::new([0; 3]) };
}

fn read() -> Seen {
    let mut seen = NOTHING;
    seen.current = current_of_signal(&mut seen.tags);
    seen
}

/// Behind every instruction.
fn look() {
    let (expected, seen, changes) = (EXPECTED.get(), read(), CHANGES.get());
    let which = [changes, changes + 1].iter().position(|place| expected.get(*place) == Some(&seen)).unwrap_or(2);
    let mut counts = COUNTS.get();
    counts[which] += 1;
    COUNTS.set(counts);
}

/// A future that is never ready, and says when it is inside its tags.
struct Inside<'a>(&'a dyn Fn());

impl Future for Inside<'_> {
    type Output = ();
    fn poll(self: Pin<&mut Self>, _: &mut Task<'_>) -> Poll<()> {
        (self.0)();
        Poll::Pending
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// What can be put in force.
struct Sets {
    tags: [Tags; 3],
    /// To stand in the place of all others.
    alone: Tags,
    span: Context,
}

impl Sets {
    fn new() -> Self {
        let long = "x".repeat(200);
        let tags = [
            crate::tags!("a" => 1, "b" => long, "d" => 4),
            crate::tags!("b" => 2),
            crate::tags!("a" => long, "c" => 3),
        ];
        let ids = (TraceId::from_bytes([7; 16]), SpanId::from_bytes([9; 8]));
        let span = SpanContext::new(ids.0, ids.1, TraceFlags::SAMPLED, false, TraceState::default());
        let alone = with_tags(tags[2].clone(), Tags::current);
        Self { tags, alone, span: Context::new().with_remote_span_context(span) }
    }
}

/// A thread at its work: `changed` is called after each change.
struct Worker<'a> {
    sets: &'a Sets,
    changed: &'a dyn Fn(),
}

impl Worker<'_> {
    fn enter(&self, number: usize) -> Scope {
        self.change(|| Scope::enter(&self.sets.tags[number]))
    }

    fn leave(&self, scope: Scope) {
        self.change(|| drop(scope));
    }

    fn change<T>(&self, change: impl FnOnce() -> T) -> T {
        let made = change();
        (self.changed)();
        made
    }

    fn in_order(&self) {
        let outer = self.enter(0);
        let guard = self.change(|| self.sets.span.clone().attach());
        self.leave(self.enter(1));
        self.change(|| drop(guard));
        self.leave(outer);
    }

    fn out_of_order(&self) {
        let (outer, inner, last) = (self.enter(0), self.enter(1), self.enter(2));
        self.leave(outer);
        self.leave(last);
        self.leave(inner);
    }

    /// Polls, and the end of the future.
    fn polls(&self) {
        {
            let mut future = pin!(Inside(self.changed).with_tags(self.sets.tags[2].clone()));
            for _ in 0..2 {
                let _pending = future.as_mut().poll(&mut Task::from_waker(Waker::noop()));
                (self.changed)();
            }
        }
        (self.changed)();
    }

    /// Spans that bring tags, which stand below those of scopes, and tags in the place of all others.
    fn below_scopes(&self) {
        let named =
            tracing::info_span!("named", trace_id = "0123456789abcdef0123456789abcdef", span_id = "0123456789abcdef");
        let outer = self.enter(0);
        let guard = self.change(|| named.enter());
        self.leave(self.change(|| Scope::enter(&self.sets.alone)));
        self.leave(self.enter(1));
        self.change(|| drop(guard));
        self.leave(self.change(|| Scope::enter(&self.sets.alone)));
        self.leave(outer);
    }

    /// The end of the thread, with a scope that is never left.
    fn ends(&self) {
        std::mem::forget(self.enter(1));
        self.change(end_here);
    }
}

/// Every kind of change, beginning with the thread's first and ending with its end.
fn all(worker: &Worker<'_>) {
    worker.in_order();
    worker.out_of_order();
    worker.polls();
    worker.below_scopes();
    worker.ends();
}

/// The last scope that a thread keeps and further ones, a span there, and the way back out of order; then the end of the thread.
fn beyond(worker: &Worker<'_>) {
    let last = worker.enter(1);
    let first = worker.enter(2);
    // What is in force says that no more is known: it is the same for all further ones.
    let second = Scope::enter(&worker.sets.tags[0]);
    let guard = worker.change(|| worker.sets.span.clone().attach());
    drop(last);
    drop(first);
    worker.change(|| drop(guard));
    worker.leave(second);
    worker.leave(worker.enter(2));
    worker.change(end_here);
}

/// Checks that at every instruction of `change`, on a thread that has entered `held` scopes, its handler reads the context before it or the
/// one after it.
#[track_caller]
fn assert_seen_whole(held: usize, change: fn(&Worker<'_>)) {
    address::prepare().unwrap();
    otel::observe();
    let sets = Sets::new();
    let subscriber = tracing::Dispatch::new(tracing_subscriber::registry().with(crate::tracing_layer()));
    let on_thread = |work: &(dyn Fn(&Sets) + Sync)| {
        let work = || {
            let held: Vec<_> = (0..held).map(|_| Scope::enter(&sets.tags[0])).collect();
            tracing::dispatcher::with_default(&subscriber, || work(&sets));
            // The thread has ended, as far as it knows.
            std::mem::forget(held);
        };
        std::thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|why| std::panic::resume_unwind(why)));
    };
    let expected = std::sync::Mutex::new(Vec::new());
    on_thread(&|sets| {
        expected.lock().unwrap().push(read());
        change(&Worker { sets, changed: &|| expected.lock().unwrap().push(read()) });
    });
    let expected = &*expected.into_inner().unwrap().leak();
    assert!(expected.windows(2).all(|pair| pair[0] != pair[1]), "a change that changes nothing");
    assert_eq!(expected.last(), Some(&NOTHING));
    on_thread(&|sets| {
        EXPECTED.set(expected);
        let steps = Run::new().look(look).check_here(|| {
            change(&Worker { sets, changed: &|| CHANGES.set(CHANGES.get() + 1) });
        });
        let ([old, new, neither], changes) = (COUNTS.get(), CHANGES.get());
        assert_eq!((changes + 1, neither), (expected.len(), 0), "of {steps} instructions");
        assert!(old > 1000 && new > 100, "{old} old, {new} new of {steps} instructions");
    });
}

/// Check that a change is seen whole at every instruction: the first of a thread, scopes left in and out of order, spans with and without tags,
/// tags in the place of others, polls, and the end of the thread with a scope that was never left.
#[test]
fn a_change_is_seen_whole_at_every_instruction() {
    assert_seen_whole(0, all);
}

/// Check the same for scopes beyond those that a thread keeps, on the way there and back, and a span within them.
#[test]
fn a_change_beyond_the_bound_is_seen_whole_at_every_instruction() {
    assert_seen_whole(255, beyond);
}
