//! Tasks behind each turn of which is looked whether the thread that runs them may go on.
//!
//! In: the look, once for a thread ([`look_with`]); tasks. Out: the same tasks. The runtime has hooks for a thread that waits, but polls its
//! descriptors also between tasks, where nothing is asked: should the host have closed them during a task that took long, it would panic. Where no
//! look is set, as in the sidecar, tasks are as they were.

use std::cell::RefCell;
use std::future::poll_fn;

thread_local! {
    static LOOK: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// Has `look` called on the calling thread behind each turn of a task that is [`watched`]. It may stop the thread.
#[cfg_attr(
    not(any(feature = "cpu", test)),
    expect(dead_code, reason = "who runs tasks of these modules alone has no look")
)]
pub(crate) fn look_with(look: impl Fn() + 'static) {
    LOOK.with(|place| *place.borrow_mut() = Some(Box::new(look)));
}

/// The task, with a look behind each of its turns.
pub(crate) async fn watched<F: Future>(task: F) -> F::Output {
    let mut task = Box::pin(task);
    poll_fn(|context| {
        let poll = task.as_mut().poll(context);
        LOOK.with(|look| look.borrow().iter().for_each(|look| look()));
        poll
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Check that there is a look behind each turn, and none on threads that have none.
    #[test]
    fn there_is_a_look_behind_each_turn() {
        let turns = || {
            let mut left = 3;
            watched(poll_fn(move |_| {
                left -= 1;
                if left == 0 { Poll::Ready("done") } else { Poll::Pending }
            }))
        };
        let run = || {
            let (mut task, mut context) = (std::pin::pin!(turns()), Context::from_waker(Waker::noop()));
            (0..3).map(|_| task.as_mut().poll(&mut context)).collect::<Vec<_>>()
        };
        let looks = Rc::new(Cell::new(0));
        let count = Rc::clone(&looks);
        look_with(move || count.set(count.get() + 1));
        assert_eq!(run(), [Poll::Pending, Poll::Pending, Poll::Ready("done")]);
        assert_eq!(looks.get(), 3);
        std::thread::scope(|scope| scope.spawn(|| assert_eq!(run().len(), 3)).join().unwrap());
        assert_eq!(looks.get(), 3);
    }
}
