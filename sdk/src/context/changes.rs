//! Tests: every kind of change of what is in force on a thread, one after the other, for those who look behind every instruction.
//!
//! In: whom to tell of each change. Out: what a handler reads after each. Each run is on a thread of its own, from its first change to its
//! end; the second one does what the first one did, instruction by instruction but for what is done once in a process.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context as Task, Poll, Waker};

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Dispatch;
use tracing_subscriber::layer::SubscriberExt;

use super::thread::Thread;
use super::{Current, TAG_WORDS, address, current_of_signal, otel};
use crate::{FutureExt, Scope, Tags, with_tags};

mod stepped;

/// What a handler reads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Seen {
    pub(crate) current: Current,
    pub(crate) tags: [u64; TAG_WORDS],
}

impl Seen {
    pub(crate) const NOTHING: Self =
        Self { current: Current { tag_bytes: 0, trace_id: [0; 2], span_id: 0 }, tags: [0; TAG_WORDS] };

    /// On this thread.
    pub(crate) fn here() -> Self {
        let mut seen = Self::NOTHING;
        seen.current = current_of_signal(&mut seen.tags);
        seen
    }
}

/// Changes, and what they need.
pub(crate) struct Changes {
    sets: Sets,
    subscriber: Dispatch,
    /// Scopes that the thread has entered before.
    held: usize,
    all: fn(&Worker<'_>),
}

impl Changes {
    /// Every kind, beginning with the thread's first and ending with its end.
    pub(crate) fn of_every_kind() -> Self {
        Self::new(0, |worker| {
            worker.in_order();
            worker.out_of_order();
            worker.polls();
            worker.below_scopes();
            worker.ends();
        })
    }

    /// The last scope that a thread keeps and further ones, a span there, and the way back out of order; then the end of the thread.
    pub(crate) fn beyond_the_bound() -> Self {
        Self::new(255, |worker: &Worker<'_>| worker.beyond())
    }

    fn new(held: usize, all: fn(&Worker<'_>)) -> Self {
        address::prepare().unwrap();
        otel::observe();
        let subscriber = Dispatch::new(tracing_subscriber::registry().with(crate::tracing_layer()));
        Self { sets: Sets::new(), subscriber, held, all }
    }

    /// Does `work` on a thread that has entered what is held.
    pub(crate) fn on_thread(&self, work: impl FnOnce() + Send) {
        let work = || {
            let held: Vec<_> = (0..self.held).map(|_| Scope::enter(&self.sets.tags[0])).collect();
            // What the registry keeps for each thread is made.
            let work = || {
                drop(named());
                work();
            };
            tracing::dispatcher::with_default(&self.subscriber, work);
            // The thread has ended, as far as it knows.
            std::mem::forget(held);
        };
        std::thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|why| std::panic::resume_unwind(why)));
    }

    /// All changes, on the thread that is called `on_thread`.
    pub(crate) fn run(&self, changed: &dyn Fn()) {
        (self.all)(&Worker { sets: &self.sets, changed });
    }

    /// What is read after each change; first, before all of them.
    pub(crate) fn expected(&self) -> Vec<Seen> {
        let expected = std::sync::Mutex::new(Vec::new());
        self.on_thread(|| {
            expected.lock().unwrap().push(Seen::here());
            self.run(&|| expected.lock().unwrap().push(Seen::here()));
        });
        let expected = expected.into_inner().unwrap();
        assert!(expected.windows(2).all(|pair| pair[0] != pair[1]), "a change that changes nothing");
        assert_eq!(expected.last(), Some(&Seen::NOTHING));
        expected
    }
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
    tags: [Tags; 4],
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
            // As short as the most are, which is written another way where nothing is in force.
            crate::tags!("a" => "/orders", "c" => "acme-9"),
        ];
        let ids = (TraceId::from_bytes([7; 16]), SpanId::from_bytes([9; 8]));
        let span = SpanContext::new(ids.0, ids.1, TraceFlags::SAMPLED, false, TraceState::default());
        let alone = with_tags(tags[2].clone(), Tags::current);
        Self { tags, alone, span: Context::new().with_remote_span_context(span) }
    }
}

/// What the end of a thread does, for the calling one, which goes on without its scopes.
fn end_here() {
    Thread::here().end();
}

/// A span that brings tags.
fn named() -> tracing::Span {
    tracing::info_span!("named", trace_id = "0123456789abcdef0123456789abcdef", span_id = "0123456789abcdef")
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
        // Without a scope, and with one below.
        let guard = self.change(|| self.sets.span.clone().attach());
        self.change(|| drop(guard));
        self.leave(self.enter(3));
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
        let named = named();
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

    fn beyond(&self) {
        let last = self.enter(1);
        let first = self.enter(2);
        // What is in force says that no more is known: it is the same for all further ones.
        let second = Scope::enter(&self.sets.tags[0]);
        let guard = self.change(|| self.sets.span.clone().attach());
        drop(last);
        drop(first);
        self.change(|| drop(guard));
        self.leave(second);
        self.leave(self.enter(2));
        self.change(end_here);
    }
}
