//! Where tags and spans are written: into memory of the thread itself, whatever other threads do, so that no processor waits for another one's.
//!
//! In: a thread that has its stack, its thread-locals and an allocator's region of its own. Out: changes of what is in force, each in a forked child in
//! which nothing else can be written: a write anywhere else ends it, also one that writes what was there.
//!
//! A binary of its own, for its allocator serves the process.

#![cfg(all(
    feature = "macros",
    feature = "opentelemetry",
    feature = "tower",
    feature = "tracing-layer",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::ops::Range;
use std::pin::pin;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Task, Poll, Waker};

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body::Body;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use profiler::tower::{TagLayer, TagService};
use profiler::{Config, FutureExt, Scope, Tags, tag, tags};
use tower_layer::Layer;
use tower_service::Service;
use tracing_subscriber::layer::SubscriberExt;

/// Bytes of the region of a thread's own. Nothing in it is used again.
const REGION: usize = 16 << 20;

/// Where the region is.
static BEGIN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The region is the calling thread's.
    static IS_APART: Cell<bool> = const { Cell::new(false) };
    /// How much of it is given out.
    static USED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, but for the thread with a region of its own.
struct Apart;

// SAFETY: a place in the region is given out once, aligned and within it; all else goes to `System` unchanged.
unsafe impl GlobalAlloc for Apart {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !IS_APART.get() {
            // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is also `System`'s.
            return unsafe { System.alloc(layout) };
        }
        let begin = (region().start + USED.get()).next_multiple_of(layout.align());
        let end = begin + layout.size();
        if end > region().end {
            return ptr::null_mut();
        }
        USED.set(end - region().start);
        ptr::with_exposed_provenance_mut(begin)
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if !region().contains(&place.addr()) {
            // SAFETY: `place` comes from `alloc` above, and not from the region, hence from `System`, with the same layout.
            unsafe { System.dealloc(place, layout) }
        }
    }
}

#[global_allocator]
static ALLOCATOR: Apart = Apart;

fn region() -> Range<usize> {
    let begin = BEGIN.load(Ordering::Relaxed);
    begin..begin + if begin == 0 { 0 } else { REGION }
}

/// Makes the region.
fn make_region() {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: mmap(2) of fresh memory.
    let begin = unsafe { libc::mmap(ptr::null_mut(), REGION, protection, flags, -1, 0) };
    assert_ne!(begin, libc::MAP_FAILED);
    BEGIN.store(begin.expose_provenance(), Ordering::Relaxed);
}

/// Sets that another thread built, and contexts of this one: to make one current, OpenTelemetry counts its owners. And a service with tags.
struct Things<'a> {
    sets: &'a [Tags; 2],
    spans: [Context; 2],
    service: TagService<Answers>,
}

/// A service of what is asked of it, by its content type: the answer is as it was asked.
#[derive(Clone, Copy)]
struct Answers;

impl Service<Request<()>> for Answers {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Task<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let mut answer = Response::new("answer".to_owned());
        *answer.headers_mut() = request.into_parts().0.headers;
        ready(Ok(answer))
    }
}

/// Sends a request, and takes the answer to the end of its body.
fn ask(mut service: TagService<Answers>, request: Request<()>) {
    let mut task = Task::from_waker(Waker::noop());
    let Poll::Ready(Ok(answer)) = pin!(service.call(request)).poll(&mut task) else { return };
    let mut body = pin!(answer.into_body());
    while let Poll::Ready(Some(_)) = body.as_mut().poll_frame(&mut task) {}
}

impl<'a> Things<'a> {
    fn new(sets: &'a [Tags; 2]) -> Self {
        let span = |number: u8| {
            let ids = (TraceId::from_bytes([number; 16]), SpanId::from_bytes([number; 8]));
            let span = SpanContext::new(ids.0, ids.1, TraceFlags::SAMPLED, false, TraceState::default());
            Context::new().with_remote_span_context(span)
        };
        Self { sets, spans: [span(1), span(2)], service: TagLayer::new().layer(Answers) }
    }
}

#[profiler::tagged(function = "tagged")]
fn tagged() {}

#[profiler::tagged(function = "awaited")]
async fn awaited() {
    std::future::pending().await
}

fn begin_awaited() {
    let _pending = pin!(awaited()).poll(&mut Task::from_waker(Waker::noop()));
}

/// What is tried, by name.
#[expect(clippy::type_complexity, reason = "a table of cases, each named where it is used")]
const CHANGES: [(&str, fn(&Things<'_>)); 11] = [
    ("sets made before, one in the other", |things| {
        let _outer = Scope::enter(&things.sets[0]);
        let _inner = Scope::enter(&things.sets[1]);
    }),
    ("a set made for it", |_| drop(tag!("first" => 17, "second" => "two"))),
    ("out of order", |things| {
        let [outer, inner] = [0, 1].map(|set| Scope::enter(&things.sets[set]));
        drop(outer);
        drop(inner);
    }),
    ("a function with tags", |_| tagged()),
    ("an async function with tags", |_| begin_awaited()),
    ("polls", |_| {
        let mut future = pin!(std::future::pending::<()>().with_tags(tags!("first" => 1)));
        for _ in 0..2 {
            let _pending = future.as_mut().poll(&mut Task::from_waker(Waker::noop()));
        }
    }),
    ("spans, one in the other, within tags", |things| {
        let _scope = Scope::enter(&things.sets[0]);
        let _outer = things.spans[0].clone().attach();
        let _inner = things.spans[1].clone().attach();
    }),
    ("what a task takes along", |things| {
        let _scope = Scope::enter(&things.sets[0]);
        drop(Scope::enter(Tags::current()));
    }),
    ("a request through `TagLayer`", |things| ask(things.service, Request::new(()))),
    ("a call of gRPC through it", |things| {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static("/shop.v1.Orders/Place");
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        ask(things.service, request);
    }),
    ("spans of `tracing`, one in the other", |_| {
        let _outer = tracing::info_span!("outer").entered();
        let _inner = tracing::info_span!("inner").entered();
    }),
];

/// What the child ends with where it wrote where it may not.
const WROTE_ELSEWHERE: i32 = 3;

extern "C" fn wrote_elsewhere(_: libc::c_int) {
    // SAFETY: ends the child; callable from a signal handler (signal-safety(7)).
    unsafe { libc::_exit(WROTE_ELSEWHERE) };
}

/// Whatever can be written but the stack and the thread-locals of the calling thread and the region: which addresses.
#[expect(clippy::unwrap_used, reason = "what fails here fails the test")]
fn elsewhere() -> Vec<Range<usize>> {
    let stack = 0_u8;
    let own = [ptr::from_ref(&stack).addr(), IS_APART.with(|apart| ptr::from_ref(apart).addr()), region().start];
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let writable = maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|rights| rights.starts_with("rw")));
    let ranges = writable.map(|line| {
        let (begin, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        usize::from_str_radix(begin, 16).unwrap()..usize::from_str_radix(end, 16).unwrap()
    });
    ranges.filter(|range| !own.iter().any(|place| range.contains(place))).collect()
}

/// Makes the change in a forked child that can write nothing but what is the calling thread's own; how that ended.
fn in_a_child(change: &dyn Fn()) -> i32 {
    // SAFETY: the child has this thread alone, takes no lock but those of an allocator that is its own, and ends by _exit(2).
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let elsewhere = elsewhere();
        let handler: extern "C" fn(libc::c_int) = wrote_elsewhere;
        // SAFETY: signal(2) with a handler that ends the process; mprotect(2) of mappings that are there, of which only reading is left, so a
        //         write in any of them comes to the handler.
        unsafe {
            libc::signal(libc::SIGSEGV, handler as libc::sighandler_t);
            for range in &elsewhere {
                libc::mprotect(ptr::with_exposed_provenance_mut(range.start), range.len(), libc::PROT_READ);
            }
        }
        change();
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waitpid(2) writes the status of our own child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -status }
}

/// Check that scopes, polls, requests and spans write nothing but memory of their own thread.
#[test]
fn what_is_in_force_is_written_into_memory_of_its_own_thread() {
    // Whose contexts are observed; it samples nothing meanwhile.
    let profiler = profiler::start(Config::new("test")).unwrap();
    profiler.pause();
    let sets = [tags!("first" => 1, "second" => "two"), tags!("second" => 2, "third" => "three")];
    // Theirs, too, another thread builds.
    tagged();
    begin_awaited();
    make_region();
    let own = || {
        IS_APART.set(true);
        let subscriber = tracing_subscriber::registry().with(profiler::tracing_layer());
        let _subscriber = tracing::subscriber::set_default(subscriber);
        let things = Things::new(&sets);
        // What is made once is made: keys, the thread's records.
        CHANGES.iter().for_each(|(_, change)| change(&things));
        let ends = CHANGES.map(|(name, change)| (name, in_a_child(&|| change(&things))));
        // What is known to write elsewhere: the count of a set's owners, and one that is in nobody's way.
        let owners = in_a_child(&|| drop(sets[0].clone()));
        let left_out = in_a_child(&|| drop(tag!("" => "counted as left out")));
        IS_APART.set(false);
        (ends, owners, left_out)
    };
    let (ends, owners, left_out) = std::thread::scope(|scope| scope.spawn(own).join().unwrap());
    assert_eq!(ends, CHANGES.map(|(name, _)| (name, 0)));
    assert_eq!((owners, left_out), (WROTE_ELSEWHERE, WROTE_ELSEWHERE), "a write elsewhere is not noticed");
}
