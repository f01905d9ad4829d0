//! What is in force in functions with the attribute, and after them: compiled as users compile, run on threads that tasks
//! move between.
//!
//! In: functions of all kinds. Out: the tags that they saw. Warnings are errors here, in what the macro writes too.

#![deny(warnings, clippy::all, clippy::pedantic, unused, rust_2018_idioms)]
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::cell::Cell;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use profiler::{Tags, tagged};

/// The tags in force here, in the order of their keys.
fn in_force() -> String {
    let tags = format!("{:?}", Tags::current());
    let mut tags: Vec<_> = tags.trim_matches(['{', '}']).split(", ").map(|tag| tag.replace('"', "")).collect();
    tags.sort();
    tags.join(", ")
}

/// What is in force while the task yields, which must be the same all the time.
async fn seen() -> String {
    let first = in_force();
    for _ in 0..20 {
        tokio::task::yield_now().await;
        assert_eq!(in_force(), first);
    }
    first
}

/// Runs 50 tasks on 4 threads; what they saw, and what is in force for tasks without tags meanwhile.
fn on_threads<F: Future<Output = String> + Send + 'static>(task: impl Fn() -> F) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    let tasks: Vec<_> = (0..50).flat_map(|_| [runtime.spawn(task()), runtime.spawn(seen())]).collect();
    let mut seen: Vec<_> = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).collect();
    seen.sort();
    seen.dedup();
    seen
}

struct User {
    tier: u8,
    name: String,
}

impl User {
    fn new() -> Self {
        Self { tier: 3, name: "ann".to_owned() }
    }

    /// Docs, visibility and attributes stay.
    #[tagged(user.tier = self.tier, "user-name" = self.name)]
    #[must_use]
    pub(crate) fn by_reference(&self) -> String {
        in_force()
    }

    #[tagged(tier = self.tier)]
    fn by_value(self) -> (String, Self) {
        (in_force(), self)
    }

    #[tagged(tier = self.tier)]
    fn changing(&mut self, by: u8) -> &mut u8 {
        self.tier += by;
        self.name = in_force();
        &mut self.tier
    }

    #[tagged(tier = self.tier)]
    async fn awaited(&self) -> String {
        seen().await
    }

    #[tagged(tier = self.tier, times = times)]
    async fn awaited_changing(&mut self, mut times: u8) -> &str {
        while times > 0 {
            times -= 1;
            self.tier += 1;
        }
        self.name = seen().await;
        &self.name
    }

    #[tagged(tier = self.tier)]
    async fn awaited_by_value(self: Arc<Self>) -> String {
        seen().await
    }
}

/// Check that tags are in force in functions and methods, with the values of their arguments, and not after them.
#[test]
fn functions_have_their_tags() {
    #[tagged(endpoint = "/orders", type = 1)]
    fn literal() -> String {
        in_force()
    }
    #[tagged(sum = a + b, pair = format_args!("{a}-{b}"))]
    fn computed((a, b): (u8, u8)) -> String {
        in_force()
    }
    #[tagged(value = value, size = N)]
    fn generic<'a, T, const N: usize>(value: &'a T, other: &'a [u8; N]) -> (String, &'a [u8])
    where
        T: Display + ?Sized,
    {
        (in_force(), other)
    }
    #[tagged(a = a)]
    unsafe fn not_checked(a: u8) -> String {
        in_force() + &a.to_string()
    }
    #[tagged(a = a)]
    extern "C" fn foreign(a: u8) -> usize {
        in_force().len()
    }
    assert_eq!(literal(), "endpoint: /orders, type: 1");
    assert_eq!(literal(), "endpoint: /orders, type: 1");
    assert_eq!(computed((1, 2)), "pair: 1-2, sum: 3");
    assert_eq!(generic("x", &[1, 2]), ("size: 2, value: x".to_owned(), &[1, 2][..]));
    // SAFETY: it does nothing that would need a promise.
    assert_eq!(unsafe { not_checked(1) }, "a: 11");
    assert_eq!(foreign(7), "a: 7".len());
    let mut user = User::new();
    assert_eq!(user.by_reference(), "user-name: ann, user.tier: 3");
    assert_eq!((*user.changing(2), user.name.as_str()), (5, "tier: 3"));
    assert_eq!(user.by_value().0, "tier: 5");
    assert_eq!(in_force(), "");
}

/// Check that tags end with the function, however it ends, and that inner functions stand on outer ones.
#[test]
fn tags_end_with_the_function() {
    #[tagged(outer = 1, both = 1)]
    fn outer() -> String {
        inner(true).unwrap() + " then " + &in_force()
    }
    #[tagged(inner = 2, both = 2)]
    fn inner(well: bool) -> Option<String> {
        if !well {
            return None;
        }
        let tags = well.then(in_force)?;
        Some(tags)
    }
    #[tagged(a = 1)]
    fn failing() {
        panic!("expected by the test");
    }
    assert_eq!(outer(), "both: 2, inner: 2, outer: 1 then both: 1, outer: 1");
    assert_eq!((inner(false), in_force().as_str()), (None, ""));
    assert!(std::panic::catch_unwind(failing).is_err());
    assert_eq!(in_force(), "");
}

/// Check that the tags of an async function follow its task from thread to thread, and touch no other task.
#[test]
fn tags_follow_async_functions() {
    #[tagged(endpoint = "/orders", id = id)]
    async fn order<'a, T>(id: u8, text: &'a str, keep: T) -> Result<(String, &'a str, T), Box<dyn std::error::Error>>
    where
        T: Send,
    {
        let number: u8 = text.parse()?;
        if number == 0 {
            return Err("zero".into());
        }
        Ok((seen().await, text, keep))
    }
    #[tagged(a = 1)]
    async fn boxed(odd: bool) -> Box<dyn Display + Send> {
        if odd {
            return Box::new(1);
        }
        tokio::task::yield_now().await;
        Box::new(in_force())
    }
    #[tagged(a = 1)]
    async fn opaque() -> Result<impl Display, Box<dyn std::error::Error>> {
        "1".parse::<u8>()?;
        Ok(seen().await)
    }
    let tags = on_threads(|| async {
        assert_eq!(order(7, "x", ()).await.unwrap_err().to_string(), "invalid digit found in string");
        assert_eq!(order(7, "0", ()).await.unwrap_err().to_string(), "zero");
        order(7, "5", 1).await.unwrap().0
    });
    assert_eq!(tags, ["", "endpoint: /orders, id: 7"]);
    assert_eq!(on_threads(|| async { boxed(false).await.to_string() + &boxed(true).await.to_string() }), ["", "a: 11"]);
    assert_eq!(on_threads(|| async { opaque().await.unwrap().to_string() }), ["", "a: 1"]);
    assert_eq!(on_threads(|| Arc::new(User::new()).awaited_by_value()), ["", "tier: 3"]);
    assert_eq!(on_threads(|| async { User::new().awaited().await }), ["", "tier: 3"]);
    assert_eq!(on_threads(|| async { User::new().awaited_changing(2).await.to_owned() }), ["", "tier: 3, times: 2"]);
}

/// Polls a future once; nothing of it stays in force.
fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    let outcome = future.poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(in_force(), "");
    outcome
}

/// Says what is in force when it is dropped.
struct AtEnd(Rc<Cell<String>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.set(in_force());
    }
}

/// Check that what an async function holds is let go with its tags, also when it is called off.
#[test]
fn a_function_called_off_ends_with_its_tags() {
    #[tagged(a = 1)]
    async fn waiting(end: AtEnd) {
        let _end = end;
        std::future::pending::<()>().await;
    }
    let end = Rc::new(Cell::default());
    let mut future = Box::pin(waiting(AtEnd(Rc::clone(&end))));
    assert!(poll(future.as_mut()).is_pending());
    drop(future);
    assert_eq!((end.take(), in_force()), ("a: 1".to_owned(), String::new()));
}

/// Check when values are evaluated: at the first poll of an async function, at the call of one that hands out a future.
#[test]
fn values_are_evaluated_once() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    fn next() -> usize {
        CALLS.fetch_add(1, Ordering::Relaxed)
    }
    #[tagged(call = next())]
    async fn at_first_poll() -> String {
        seen().await
    }
    #[tagged(call = next())]
    fn at_call() -> impl Future<Output = String> {
        seen()
    }
    let (mut first, mut second) = (Box::pin(at_first_poll()), Box::pin(at_call()));
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    let finish = |future: &mut Pin<Box<dyn Future<Output = String>>>| loop {
        if let Poll::Ready(tags) = poll(future.as_mut()) {
            return tags;
        }
    };
    let mut both: [Pin<Box<dyn Future<Output = String>>>; 2] = [Box::pin(first.as_mut()), Box::pin(second.as_mut())];
    assert_eq!([finish(&mut both[0]), finish(&mut both[1])], ["call: 1", "call: 0"]);
    assert_eq!(CALLS.load(Ordering::Relaxed), 2);
}

type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
type BoxFuture<'a, T> = Later<'a, T>;

/// Check that futures that are handed out take the tags with them, boxed or not, also past an early return.
#[test]
fn tags_follow_futures_that_are_handed_out() {
    #[tagged(id = id)]
    fn opaque(id: u8) -> impl Future<Output = String> + Send {
        let called = in_force();
        async move { called + " then " + &seen().await }
    }
    #[tagged(name = name)]
    fn borrowing<'a>(name: &'a str, early: bool) -> Pin<Box<dyn Future<Output = String> + Send + 'a>> {
        if early {
            return Box::pin(async move { name.to_owned() + " " + &seen().await });
        }
        let called = in_force();
        Box::pin(async move { called + " then " + &seen().await })
    }
    #[tagged(name = name)]
    fn by_name(name: &str) -> BoxFuture<'_, String> {
        Box::pin(async move { name.to_owned() + " " + &seen().await })
    }
    #[tagged(a = 1)]
    fn only_a_block<T: Send + 'static>(value: T) -> impl Future<Output = (T, String)> + Send {
        async move { (value, seen().await) }
    }
    assert_eq!(on_threads(|| opaque(7)), ["", "id: 7 then id: 7"]);
    assert_eq!(on_threads(|| borrowing("x", true)), ["", "x name: x"]);
    assert_eq!(on_threads(|| borrowing("x", false)), ["", "name: x then name: x"]);
    assert_eq!(on_threads(|| by_name("x")), ["", "x name: x"]);
    assert_eq!(on_threads(|| async { only_a_block(1).await.1 }), ["", "a: 1"]);
}

/// Check the same where a macro says what is handed out.
#[test]
fn tags_follow_futures_whose_type_a_macro_says() {
    macro_rules! function {
        ($name:ident, $returned:ty, $inner:ty) => {
            #[tagged(id = id)]
            fn $name(id: u8) -> $returned {
                let called = in_force();
                Box::pin(async move { called + " then " + &seen().await })
            }
            mod $name {
                use super::*;
                #[tagged(id = id)]
                pub(super) fn inner(id: u8) -> Pin<Box<$inner>> {
                    Box::pin(seen())
                }
            }
        };
    }
    function!(boxed, BoxFuture<'static, String>, dyn Future<Output = String> + Send);
    function!(opaque, impl Future<Output = String> + Send, impl Future<Output = String> + Send);
    assert_eq!(on_threads(|| boxed(7)), ["", "id: 7 then id: 7"]);
    assert_eq!(on_threads(|| opaque(7)), ["", "id: 7 then id: 7"]);
    assert_eq!(on_threads(|| boxed::inner(7)), ["", "id: 7"]);
    assert_eq!(on_threads(|| opaque::inner(7)), ["", "id: 7"]);
}

/// Check that a stream that is handed out has the tags whenever it is asked for more.
#[test]
fn tags_follow_streams_that_are_handed_out() {
    struct Seen;
    impl Stream for Seen {
        type Item = String;
        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<String>> {
            Poll::Ready(Some(in_force()))
        }
    }
    #[tagged(a = a)]
    fn stream(a: u8) -> impl Stream<Item = String> {
        Seen
    }
    let mut stream = Box::pin(stream(1));
    let next = stream.as_mut().poll_next(&mut Context::from_waker(Waker::noop()));
    assert_eq!((next, in_force()), (Poll::Ready(Some("a: 1".to_owned())), String::new()));
}

trait Shop {
    async fn place(&self, id: u8) -> String;

    #[tagged(endpoint = "default", id = id)]
    async fn refuse(&self, id: u8) -> String {
        seen().await
    }

    #[tagged(endpoint = "sync", id = id)]
    fn count(&self, id: u8) -> String {
        in_force()
    }
}

#[async_trait::async_trait]
trait DynamicShop: Send + Sync {
    async fn place(&self, user: &User, id: u8) -> Result<String, Box<dyn std::error::Error>>;

    #[tagged(endpoint = "default", id = id)]
    async fn refuse(&self, id: u8) -> String {
        seen().await
    }
}

struct Counter {
    name: &'static str,
}

impl Shop for Counter {
    #[tagged(shop = self.name, id = id)]
    async fn place(&self, id: u8) -> String {
        seen().await
    }
}

#[async_trait::async_trait]
impl DynamicShop for Counter {
    #[tagged(shop = self.name, user.name = user.name, id = id)]
    #[inline]
    async fn place(&self, user: &User, id: u8) -> Result<String, Box<dyn std::error::Error>> {
        let _: u8 = user.tier.to_string().parse()?;
        Ok(seen().await)
    }
}

/// Check that async methods of traits have their tags, defaults too.
#[test]
fn methods_of_traits_have_their_tags() {
    let counter = Counter { name: "corner" };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    assert_eq!(runtime.block_on(Shop::place(&counter, 1)), "id: 1, shop: corner");
    assert_eq!(runtime.block_on(Shop::refuse(&counter, 1)), "endpoint: default, id: 1");
    assert_eq!(counter.count(1), "endpoint: sync, id: 1");
}

/// Check the same for traits under `#[async_trait]`, whose methods hand out boxed futures.
#[test]
fn methods_under_async_trait_have_their_tags() {
    let shop: Arc<dyn DynamicShop> = Arc::new(Counter { name: "corner" });
    let place = || {
        let shop = Arc::clone(&shop);
        async move { shop.place(&User::new(), 1).await.unwrap() }
    };
    assert_eq!(on_threads(place), ["", "id: 1, shop: corner, user.name: ann"]);
    let refuse = || {
        let shop = Arc::clone(&shop);
        async move { shop.refuse(1).await }
    };
    assert_eq!(on_threads(refuse), ["", "endpoint: default, id: 1"]);
}
