//! Tags that follow a task: in force whenever its future is polled, on whichever thread that is.
//!
//! In: a future or a stream, and tags. Out: the same future, around each poll of which, and around whose end, there is a scope. User code.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use pin_project_lite::pin_project;

use super::tags::{Scope, Tags};

/// Puts tags in force for a future.
pub trait FutureExt: Future + Sized {
    /// Has `tags` in force whenever this future runs, on top of those of the code that polls it, and when it is dropped before its
    /// end:
    ///
    /// ```
    /// use profiler::FutureExt;
    /// # async fn place(order: u64) {}
    /// # async fn handle(order: u64, customer: &str) {
    /// place(order).with_tags(profiler::tags!("endpoint" => "/orders", "customer" => customer)).await;
    /// # }
    /// ```
    ///
    /// Together with the tags of here: `place(order).with_tags(more).with_current_tags()`, in this order.
    fn with_tags(self, tags: Tags) -> WithTags<Self> {
        WithTags { inner: Some(self), tags }
    }

    /// Has those tags in force that are in force now, and no others, for a task that is to inherit them:
    /// `tokio::spawn(send(mail).with_current_tags())`.
    ///
    /// They stand in the place of all that the code around it brings, so `send(mail).with_current_tags().with_tags(more)` has nothing of
    /// `more`. Write `send(mail).with_tags(more).with_current_tags()`.
    ///
    /// What begins when a request has been answered has none of its tags. For a websocket, take them before:
    ///
    /// ```
    /// use profiler::{FutureExt, Tags};
    /// # struct Socket;
    /// # struct Upgrade;
    /// # impl Upgrade {
    /// #     fn on_upgrade<F: Future>(self, serve: impl FnOnce(Socket) -> F) { drop(serve(Socket)) }
    /// # }
    /// # async fn serve(socket: Socket) {}
    /// # fn handle(upgrade: Upgrade) {
    /// let here = Tags::current();
    /// upgrade.on_upgrade(move |socket| serve(socket).with_tags(here))
    /// # }
    /// ```
    fn with_current_tags(self) -> WithTags<Self> {
        self.with_tags(Tags::current())
    }
}

impl<F: Future> FutureExt for F {}

/// Puts tags in force for a stream.
pub trait StreamExt: Stream + Sized {
    /// Has `tags` in force whenever this stream runs, on top of those of the code that polls it, and when it is dropped.
    fn with_tags(self, tags: Tags) -> WithTags<Self> {
        WithTags { inner: Some(self), tags }
    }
}

impl<S: Stream> StreamExt for S {}

pin_project! {
    /// A future or a stream with tags: see [`FutureExt::with_tags`] and [`StreamExt::with_tags`].
    ///
    /// A future is dropped when it has ended, and not only with this: what it still holds is let go while its tags are in force. Polled
    /// again after that, this is pending for ever.
    #[derive(Debug, Clone)]
    #[must_use = "futures and streams do nothing unless they are polled"]
    pub struct WithTags<T> {
        // Taken away at its end, while its tags are in force.
        #[pin]
        pub(super) inner: Option<T>,
        pub(super) tags: Tags,
    }

    impl<T> PinnedDrop for WithTags<T> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if this.inner.is_some() {
                // What it still holds is let go for the same request that it worked for.
                let _scope = Scope::enter(&*this.tags);
                this.inner.set(None);
            }
        }
    }
}

impl<F: Future> Future for WithTags<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let _scope = Scope::enter(&*this.tags);
        // Polled again behind its end: there is nothing left that could say more, and a guest does not panic.
        let Some(inner) = this.inner.as_mut().as_pin_mut() else { return Poll::Pending };
        let outcome = inner.poll(context);
        if outcome.is_ready() {
            this.inner.set(None);
        }
        outcome
    }
}

impl<S: Stream> Stream for WithTags<S> {
    type Item = S::Item;

    #[inline]
    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let this = self.project();
        let _scope = Scope::enter(&*this.tags);
        this.inner.as_pin_mut().map_or(Poll::Ready(None), |inner| inner.poll_next(context))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.as_ref().map_or((0, Some(0)), Stream::size_hint)
    }
}

/// `work` with the tags that are in force now, and no others, for another thread:
/// `tokio::task::spawn_blocking(profiler::inherit(move || hash(password)))`, `rayon::spawn(profiler::inherit(..))`,
/// `std::thread::spawn(profiler::inherit(..))`.
///
/// For work that is called more than once, as in an iterator of `rayon`, take [`Tags::current`] before it and use
/// [`with_tags`](crate::with_tags) in it.
pub fn inherit<R>(work: impl FnOnce() -> R) -> impl FnOnce() -> R {
    let tags = Tags::current();
    move || super::tags::with_tags(tags, work)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::task::Waker;

    use super::*;

    /// What is in force, for a look.
    fn seen() -> String {
        format!("{:?}", Tags::current())
    }

    /// Notes what is in force when it is polled, and when it is dropped.
    struct Probe(Arc<Mutex<Vec<String>>>);

    impl Future for Probe {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            self.0.lock().unwrap().push(seen());
            Poll::Pending
        }
    }

    impl Drop for Probe {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(seen());
        }
    }

    impl Stream for Probe {
        type Item = ();
        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<()>> {
            self.0.lock().unwrap().push(seen());
            Poll::Ready(Some(()))
        }
        fn size_hint(&self) -> (usize, Option<usize>) {
            (1, None)
        }
    }

    /// Check that the tags are in force at each poll and at the end, on top of those outside, and at no other time.
    #[test]
    fn tags_are_in_force_at_each_poll_and_at_the_end() {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let mut future = Box::pin(FutureExt::with_tags(Probe(Arc::clone(&notes)), crate::tags!("task" => 1)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        {
            let _outer = crate::tag!("task" => 0, "worker" => 2);
            assert!(future.as_mut().poll(&mut context).is_pending());
        }
        drop(future);
        let notes = notes.lock().unwrap();
        assert_eq!(*notes, [r#"{"task": "1"}"#, r#"{"task": "1", "worker": "2"}"#, r#"{"task": "1"}"#]);
        assert_eq!(seen(), "{}");
    }

    /// Check the same for a stream.
    #[test]
    fn a_stream_has_its_tags() {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let mut stream = Box::pin(StreamExt::with_tags(Probe(Arc::clone(&notes)), crate::tags!("stream" => 1)));
        assert_eq!(stream.size_hint(), (1, None));
        assert!(stream.as_mut().poll_next(&mut Context::from_waker(Waker::noop())).is_ready());
        drop(stream);
        assert_eq!(*notes.lock().unwrap(), [r#"{"stream": "1"}"#, r#"{"stream": "1"}"#]);
    }

    /// Check that work on another thread inherits the tags.
    #[test]
    fn work_elsewhere_inherits_tags() {
        let work = {
            let _scope = crate::tag!("endpoint" => "/orders");
            inherit(seen)
        };
        assert_eq!(std::thread::spawn(work).join().unwrap(), r#"{"endpoint": "/orders"}"#);
    }
}
