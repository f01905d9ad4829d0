//! Changes of tags and spans in single steps: what a handler reads behind every instruction is the old context or the new one.
//!
//! In: the changes of a thread, once at full speed, which tells what is read after each, and once in single steps. Out: how
//! often the old and the new one were read. The handler of the trap reads what the handler of SIGPROF would.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Mutex, OnceLock};
use std::task::{Context as Task, Poll, Waker};

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};

use super::stepper::Run;
use crate::context::{Current, TAG_WORDS, address, current_of_signal, otel};
use crate::{FutureExt, Scope, Tags};

/// What a handler reads.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Seen {
    current: Current,
    tags: [u64; TAG_WORDS],
}

const NOTHING: Seen = Seen { current: NO_CONTEXT, tags: [0; TAG_WORDS] };
const NO_CONTEXT: Current = Current { tag_bytes: 0, trace_id: [0; 2], span_id: 0 };

/// What is read after each change; first, before all of them.
static EXPECTED: OnceLock<Vec<Seen>> = OnceLock::new();

thread_local! {
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
    let expected = EXPECTED.get().map_or(&[][..], Vec::as_slice);
    let (seen, changes) = (read(), CHANGES.get());
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

/// Every kind of change, beginning with the thread's first; `changed` is called after each.
fn change(sets: &[Tags; 3], span: &Context, changed: &dyn Fn()) {
    let enter = |number: usize| {
        let scope = Scope::enter(&sets[number]);
        changed();
        scope
    };
    let leave = |scope: Scope| {
        drop(scope);
        changed();
    };
    // In order, with a span inside.
    let outer = enter(0);
    let guard = span.clone().attach();
    changed();
    leave(enter(1));
    drop(guard);
    changed();
    // Out of order.
    let (inner, last) = (enter(1), enter(2));
    leave(outer);
    leave(last);
    leave(inner);
    // Polls, and the end of the future.
    {
        let mut future = pin!(Inside(changed).with_tags(sets[2].clone()));
        for _ in 0..2 {
            let _pending = future.as_mut().poll(&mut Task::from_waker(Waker::noop()));
            changed();
        }
    }
    changed();
}

/// Check that at every instruction of a change, the first of a thread included, its handler reads the context before it or the
/// one after it.
#[test]
fn a_change_is_seen_whole_at_every_instruction() {
    address::prepare().unwrap();
    otel::observe();
    let long = "x".repeat(200);
    let sets =
        [crate::tags!("a" => 1, "b" => long, "d" => 4), crate::tags!("b" => 2), crate::tags!("a" => long, "c" => 3)];
    let ids = (TraceId::from_bytes([7; 16]), SpanId::from_bytes([9; 8]));
    let span = SpanContext::new(ids.0, ids.1, TraceFlags::SAMPLED, false, TraceState::default());
    let span = Context::new().with_remote_span_context(span);
    let expected = Mutex::new(vec![NOTHING]);
    std::thread::scope(|scope| {
        scope.spawn(|| change(&sets, &span, &|| expected.lock().unwrap().push(read())));
    });
    let expected = EXPECTED.get_or_init(|| expected.into_inner().unwrap());
    assert!(expected.windows(2).all(|pair| pair[0] != pair[1]), "a change that changes nothing");
    assert_eq!(expected.last(), Some(&NOTHING));
    let counts = Mutex::new([0; 3]);
    let steps = Run::new().look(look).check(|| {
        change(&sets, &span, &|| CHANGES.set(CHANGES.get() + 1));
        assert_eq!(CHANGES.get() + 1, expected.len());
        *counts.lock().unwrap() = COUNTS.get();
    });
    let [old, new, neither] = counts.into_inner().unwrap();
    assert_eq!(neither, 0, "of {steps} instructions");
    assert!(old > 1000 && new > 100, "{old} old, {new} new of {steps} instructions");
}
