//! Endpoints that are asked: who is asked, what is told of it. In: servers of ours on the loopback. Out: what reaches the sink.

use std::sync::mpsc::{Receiver, channel};

use profiler::Ledger;
use profiler_proto::{model, pprof};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::config::CommandLine;
use crate::privilege::Tier;

/// Check that a process is asked at one address of the settings, and at another one once it answers there no more.
#[test]
fn a_process_is_asked_at_one_address() {
    let config = Config::new(CommandLine::default(), &|_| None).unwrap();
    let (handle, _inbox) = Handle::new(Arc::<Ledger>::default(), &config, (Tier::None, config.rate_hz));
    let pulls = Pulls::new(&config, &handle);
    let [first, second] = [1, 2].map(|pid| Process::new(pid, 1));
    let claim = |task, process| pulls.claim(task, Claim { process, socket: None });
    assert!(claim(0, Some(first)) && claim(0, Some(first)) && !claim(1, Some(first)) && claim(2, None));
    assert!(claim(1, Some(second)) && pulls.is_named(first) && pulls.is_named(second));
    assert!(claim(0, None) && !pulls.is_named(first) && claim(1, Some(first)) && claim(0, Some(second)));
    // Where nobody is known to have it, a socket is asked at one address, too.
    let socket = |inode| Some(Socket { inode, address: ([127, 0, 0, 1], 1).into(), user: 0 });
    let claim = |task, inode| pulls.claim(task, Claim { process: None, socket: socket(inode) });
    assert!(claim(5, 1) && claim(5, 1) && !claim(6, 1) && claim(6, 2) && claim(5, 3) && claim(7, 1));
}

/// A process of Go that is asked at a server of ours, of which nothing is read from outside; its questions, what comes of it.
struct Asking {
    handle: Handle,
    own: Process,
    task: Task,
    told: Receiver<ProfileSet>,
    whose: Whose,
}

impl Asking {
    /// `answers` says what is answered at a path behind `/debug/pprof/`; nothing: that there is none.
    async fn at(answers: impl Fn(&Handle, Process, &str) -> Option<Vec<u8>> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = Config::new(CommandLine::default(), &|_| None).unwrap();
        let (handle, _inbox) = Handle::new(Arc::<Ledger>::default(), &config, (Tier::None, config.rate_hz));
        let own = Process::find(std::process::id()).unwrap();
        let target = Arc::new(Target::bare(own, Kind::Go("go1.24.0".into())));
        handle.publish(vec![target], Default::default(), Default::default());
        handle.outside.leave(own);
        let answering = handle.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let length = stream.read(&mut request).await.unwrap();
                let line = String::from_utf8_lossy(&request[..length]).into_owned();
                let path = line.trim_start_matches("GET /debug/pprof/").split(' ').next().unwrap();
                let body = answers(&answering, own, path);
                let status = if body.is_some() { "200 OK" } else { "404 Not Found" };
                let body = body.unwrap_or_default();
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
                drop(stream.write_all(&[head.as_bytes(), &body].concat()).await);
            }
        });
        let pulls = Pulls::new(&config, &handle);
        let endpoint = Endpoint::new(&format!("http://{address}")).unwrap();
        let puller = Puller::new(&endpoint, Arc::clone(&pulls.turns)).unwrap();
        let (sink, told) = channel();
        let task = Task::new(pulls, endpoint, puller, Arc::new(move |set| drop(sink.send(set))));
        let whose = task.look().await.unwrap();
        Self { handle, own, task, told, whose }
    }

    async fn round(&mut self) -> bool {
        self.task.round(&self.whose, &self.whose, None).await
    }
}

/// A profile of one sample with this value, of the kind that `of` makes.
fn profile(value: i64, of: impl FnOnce(&mut model::Dictionary) -> model::Kind) -> Vec<u8> {
    let mut set = ProfileSet::default();
    let kind = of(&mut set.dictionary);
    let samples = vec![model::Sample { value, ..model::Sample::default() }];
    set.profiles.push(model::Profile { kind, samples, ..model::Profile::default() });
    pprof::encode(&set)
}

/// Check that differences are told from the second answer on, and that one during which a capture told of the same is not.
#[test]
fn a_difference_is_told_unless_a_capture_told_of_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let answers = AtomicU64::new(0);
        let mut asking = Asking::at(move |_, _, path| {
            let heap = |value| profile(value, |dictionary| model::Kind::heap(dictionary, 1)[1]);
            (path == "heap").then(|| heap(1 << answers.fetch_add(1, Ordering::Relaxed)))
        })
        .await;
        let value = |set: ProfileSet| set.profiles[0].samples[0].value;
        let mut capture = Readings::default();
        for told in [None, Some(1), Some(2), None, Some(8)] {
            asking.round().await;
            assert_eq!(asking.told.try_iter().map(value).next(), told);
            for _ in 0..if told == Some(2) { 2 } else { 0 } {
                asking.handle.outside.captures(asking.own, &mut capture);
                asking.handle.outside.captured(asking.own, &mut capture, vec![What::Heap]);
            }
            asking.handle.outside.leave(asking.own);
        }
        // The others are not served.
        assert_eq!(asking.handle.pulls.failed.load(Ordering::Relaxed), 5 * 4);
    });
}

/// Check that who answers is another one where the socket is, or where what is known of it differs, and that what is not known at one time is remembered.
#[test]
fn who_answers_is_told_by_what_is_known() {
    let socket = |inode| Some(Socket { inode, address: ([127, 0, 0, 1], 1).into(), user: 0 });
    let who = |inode, pid: Option<u32>, name: Option<&str>| Answering {
        socket: socket(inode),
        process: pid.map(|pid| Process::new(pid, 1)),
        name: name.map(Into::into),
    };
    let mut last = who(1, None, Some("shop"));
    for (now, is_other) in [
        (who(1, Some(7), Some("shop")), false),
        (who(1, None, None), false),
        (who(1, Some(8), None), true),
        (who(1, None, Some("shop")), false),
        (who(1, None, Some("cart")), true),
        (who(2, None, Some("cart")), true),
    ] {
        assert_eq!(last.is_other(&now), is_other, "{last:?} {now:?}");
        last = now.or(Some(last));
    }
    assert_eq!(last, who(2, None, Some("cart")));
    assert_eq!(who(1, None, None).or(Some(who(1, Some(7), Some("shop")))), who(1, Some(7), Some("shop")));
}

/// Check that a kind that is read from outside while it is pulled is told by one of the two alone: what was answered is not handed on.
#[test]
fn what_is_read_from_outside_meanwhile_is_not_told_by_the_pull() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let heap = profile(5, |dictionary| model::Kind::heap(dictionary, 1)[3]);
        let goroutines = profile(5, model::Kind::goroutine);
        let mut asking = Asking::at(move |handle, own, path| match path {
            "heap" => {
                handle.outside.captured(own, &mut Readings::default(), vec![What::Heap]);
                Some(heap.clone())
            }
            "goroutine" => Some(goroutines.clone()),
            _ => None,
        })
        .await;
        for _ in 0..2 {
            // At its begin it is not read.
            asking.handle.outside.leave(asking.own);
            asking.round().await;
        }
        let name = |set: ProfileSet| set.dictionary.strings.text(set.profiles[0].kind.sample_type.kind).to_owned();
        assert_eq!(asking.told.try_iter().map(name).collect::<Vec<_>>(), ["goroutine"; 2]);
    });
}

/// Check that what is answered while a socket is replaced by another one is nobody's: counted once, and not handed on.
#[test]
fn who_is_replaced_while_it_is_asked_is_not_shown() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for is_replaced in [false, true] {
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move {
                let mut listener = Some(listener);
                while let Ok((mut stream, _)) = listener.as_ref().unwrap().accept().await {
                    drop(stream.read(&mut [0; 1024]).await);
                    if is_replaced {
                        drop(listener.take());
                        listener = Some(TcpListener::bind(address).await.unwrap());
                    }
                    drop(stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await);
                }
            });
            let config = Config::new(CommandLine::default(), &|_| None).unwrap();
            let (handle, _inbox) = Handle::new(Arc::<Ledger>::default(), &config, (Tier::None, config.rate_hz));
            let own = Arc::new(Target::bare(Process::find(std::process::id()).unwrap(), Kind::Native));
            handle.publish(vec![own], Default::default(), Default::default());
            let pulls = Pulls::new(&config, &handle);
            let endpoint = Endpoint::new(&format!("http://{address}")).unwrap();
            let puller = Puller::new(&endpoint, Arc::clone(&pulls.turns)).unwrap();
            let sink: Arc<Sink> = Arc::new(|_| panic!("a set"));
            let mut task = Task::new(pulls, endpoint, puller, sink);
            let whose = task.look().await.unwrap();
            assert!(whose.one().is_some());
            task.round(&whose, &whose, None).await;
            let failed = handle.pulls.failed.load(Ordering::Relaxed);
            assert_eq!(failed, if is_replaced { 1 } else { 5 });
        });
    }
}
