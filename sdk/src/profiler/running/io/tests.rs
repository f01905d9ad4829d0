//! What becomes of tasks where names cannot be had, where descriptors go, and while others ask.

use std::time::SystemTime;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::message::Reply;
use super::*;
use crate::aggregate::Aggregate;
use crate::config::Config;
use crate::cpu::Sample;
use crate::cpu::record::Head;
use crate::unwind::modules::Modules;

/// The thread's state, without destinations.
fn io(server: Option<crate::serve::Bound>, mark: &Arc<Mark>) -> Io {
    let settings = Config::new("a").resolve(&|_| None).unwrap();
    let (commands, _mailbox) = std::sync::mpsc::channel();
    let handle = Handle::new(commands, &settings, Arc::clone(mark));
    let (folders, resource) = (Some(Folders::new(&|_| None)), settings.resource);
    Io {
        server,
        serves_within: false,
        #[cfg(feature = "tower")]
        security: settings.security,
        #[cfg(feature = "tower")]
        opened: None,
        destinations: Vec::new(),
        limits: settings.limits,
        spool: None,
        resource,
        folders,
        handle,
    }
}

/// Check that the thread stops behind a task in the time of which the host closed the descriptors: before it looks at them, which it does without
/// waiting, and so without asking, while there is more to do.
#[test]
fn the_thread_stops_behind_a_task_in_which_descriptors_went() {
    let mark = Arc::new(Mark::set().unwrap());
    let (goes_on, went_on) = std::sync::mpsc::channel();
    let ours = Arc::clone(&mark);
    std::thread::spawn(move || {
        let (runtime, looked) = (runtime(&ours).unwrap(), Arc::clone(&ours));
        look_with(move || looked.stop_if_gone());
        runtime.block_on(async {
            let (before, goes_on) = (goes_on.clone(), goes_on);
            tokio::spawn(watched(async move {
                before.send("a task").unwrap();
                ours.lose();
            }));
            while goes_on.send("another turn").is_ok() {
                tokio::task::yield_now().await;
            }
        });
    });
    let [long, short] = [Duration::from_secs(60), Duration::from_millis(200)];
    let told = [long, long, short].map(|wait| went_on.recv_timeout(wait).ok());
    assert_eq!(told, [Some("another turn"), Some("a task"), None]);
}

/// Check that a profile of which the names cannot be looked up, for who reads the files panics, is made without them, and that the next one has them.
#[test]
fn a_profile_outlives_its_names() {
    let mark = Arc::new(Mark::set().unwrap());
    let io = io(None, &mark);
    let mut symbolizer = Symbolizer::new(Some(Folders::new(&|_| None)));
    let window = large_window();
    let named = |set: &ProfileSet| {
        let functions = set.dictionary.functions.iter();
        functions.filter(|function| set.dictionary.strings.text(function.name).contains("::")).count()
    };
    let [without, with] = [true, false].map(|panics| {
        let learn = async |symbolizer: &mut Symbolizer| {
            symbolizer.learn(&window.places()).await;
            assert!(!panics, "as a reader of strange files may");
        };
        let make = |symbolizer: &Symbolizer| assemble(&window, symbolizer, &io.resource, Granularity::Lines);
        runtime(&mark).unwrap().block_on(io.with_symbols(&mut symbolizer, learn, make)).unwrap()
    });
    let samples = |set: &ProfileSet| set.profiles[0].samples.iter().map(|sample| sample.value).sum::<i64>();
    assert_eq!((samples(&without), named(&without)), (samples(&with), 0));
    assert!(samples(&with) > 1000 && named(&with) > 100, "{} {}", samples(&with), named(&with));
}

/// Check that a profile of the heap is counted that is lost as it is made, and none that is not.
#[cfg(feature = "heap")]
#[test]
fn a_profile_of_the_heap_that_is_lost_is_counted() {
    let window = |rows| HeapWindow {
        started_at: SystemTime::now(),
        duration: Duration::from_secs(1),
        interval: 1,
        sites: Vec::new(),
        rows,
        without_span: 0,
        is_part: true,
        knows_allocated: true,
        eras: Vec::new(),
        first: None,
        stats: crate::stats::HeapStats::default(),
    };
    let mark = Arc::new(Mark::set().unwrap());
    let io = io(None, &mark);
    let mut symbolizer = Symbolizer::new(None);
    // Of a site that is not there: who looks for it panics.
    let panics = window(vec![crate::heap::Row { site: 1, ..Default::default() }]);
    let lost = [panics, window(Vec::new())].map(|window| {
        runtime(&mark).unwrap().block_on(async {
            let exporter = Exporter::start(Vec::new(), Arc::clone(&io.handle.ledger), Limits::default()).unwrap();
            io.handle.heap_profile_is_due();
            io.export_heap_window(Some(window), &mut symbolizer, &exporter).await;
        });
        io.handle.stats().heap.profiles_lost.count(Cause::Failed)
    });
    assert_eq!(lost, [1, 1]);
}

/// Check that profiles that are given up before they are made are one loss, and none where they were made before.
#[cfg(feature = "heap")]
#[test]
fn profiles_of_the_heap_that_are_given_up_are_one_loss() {
    let io = io(None, &Arc::new(Mark::set().unwrap()));
    let lost = || io.handle.stats().heap.profiles_lost.count(Cause::Shutdown);
    io.handle.heap_profile_is_due();
    assert!(io.handle.heap_profile_is_made());
    io.handle.give_up_heap_profiles(Cause::Shutdown);
    assert_eq!(lost(), 0);
    (0..3).for_each(|_| io.handle.heap_profile_is_due());
    io.handle.give_up_heap_profiles(Cause::Shutdown);
    assert!(!io.handle.heap_profile_is_made());
    io.handle.give_up_heap_profiles(Cause::Shutdown);
    assert_eq!(lost(), 1);
}

/// A window with addresses all over this program.
fn large_window() -> Box<Window> {
    let modules = Arc::new(Modules::read(&Modules::default()));
    let code = modules.iter().find(|module| module.is_executable()).unwrap().code.clone();
    let mut aggregate = Aggregate::begin(Instant::now(), SystemTime::now());
    let step = (code.end - code.start) as usize / 4000;
    for address in code.step_by(step) {
        let head = Head { weight: 1, period: 10_000_000, ..Head::default() };
        let sample = Sample { head, tags: &[], addresses: &[address], modules: &modules, thread_name: None };
        aggregate.add(&sample).unwrap();
    }
    Box::new(aggregate.end(Instant::now(), SystemTime::now(), Duration::from_millis(10)))
}

/// Check that queues are as large as they were set to be: in one without room nothing waits.
#[test]
fn queues_are_as_large_as_they_were_set() {
    let mark = Arc::new(Mark::set().unwrap());
    let mut io = io(None, &mark);
    let endpoint = crate::export::Otlp::http("http://127.0.0.1:1").into();
    io.destinations = crate::export::resolve(vec![endpoint], &|_| None).unwrap();
    io.limits.queue_bytes = 1;
    let (handle, window) = (io.handle.clone(), large_window());
    let stacks = window.stacks();
    handle.ledger.enter(stacks, stacks, stacks, &window.lost, &window.degraded);
    let (tasks, inbox) = channel(&mark);
    let (reply, _answer) = Reply::new();
    assert!(tasks.try_send(Task::Export { window }).is_ok());
    assert!(tasks.try_send(Task::Stop { deadline: Instant::now(), reply }).is_ok());
    runtime(&mark).unwrap().block_on(io.work(inbox));
    let account = handle.stats().account;
    assert_eq!((account.lost.count(Cause::QueueFull), account.pending), (stacks, 0), "{account:?}");
}

/// Check that where there is no destination no names are looked up, and that what was sampled is counted as what nobody takes.
#[test]
fn no_names_are_looked_up_for_nobody() {
    let mark = Arc::new(Mark::set().unwrap());
    let io = io(None, &mark);
    let (handle, window) = (io.handle.clone(), large_window());
    let stacks = window.stacks();
    handle.ledger.enter(stacks, stacks, stacks, &window.lost, &window.degraded);
    let (tasks, inbox) = channel(&mark);
    let (reply, answer) = Reply::new();
    assert!(tasks.try_send(Task::Export { window }).is_ok());
    assert!(tasks.try_send(Task::Stop { deadline: Instant::now() + Duration::from_secs(60), reply }).is_ok());
    runtime(&mark).unwrap().block_on(io.work(inbox));
    let stats = handle.stats();
    assert_eq!((stats.account.lost.count(Cause::NoDestination), stats.account.pending), (stacks, 0), "{stats:?}");
    assert_eq!((stats.symbols, answer.recv()), (crate::stats::SymbolStats::default(), Ok(true)));
}

async fn get_stats(address: std::net::SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// How many addresses were symbolized, as an answer says.
fn resolved(answer: &str) -> u64 {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    let stats: serde_json::Value = serde_json::from_str(body).unwrap();
    stats["symbols"]["resolved"].as_u64().unwrap()
}

/// Check that `/stats` answers while a large window is being symbolized: the window, asked for first, is not yet in
/// the answer. Client and server share the thread, so that no scheduler decides.
#[test]
fn requests_are_answered_while_a_window_is_symbolized() {
    let mark = Arc::new(Mark::set().unwrap());
    let server = crate::serve::Server::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr();
    let io = io(Some(server), &mark);
    let (tasks, inbox) = channel(&mark);
    assert!(tasks.try_send(Task::Export { window: large_window() }).is_ok());
    runtime(&mark).unwrap().block_on(async {
        let client = async {
            let during = get_stats(address).await;
            let (reply, _answer) = Reply::new();
            let deadline = Instant::now() + Duration::from_secs(60);
            assert!(tasks.try_send(Task::Flush { deadline, reply }).is_ok());
            // The queue is empty again once the window is done.
            while tasks.sender.as_ref().unwrap().capacity() < QUEUE {
                tokio::task::yield_now().await;
            }
            let after = get_stats(address).await;
            drop(tasks);
            (during, after)
        };
        let ((), (during, after)) = tokio::join!(io.work(inbox), client);
        assert_eq!(resolved(&during), 0, "{during}");
        assert!(resolved(&after) > 1000, "{after}");
    });
}
