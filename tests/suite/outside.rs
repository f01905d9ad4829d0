//! What a reader in another process sees: who a process is, and what its threads work for while they stand still.
//!
//! In: the scenarios `published` and `watched`, and a plugin that does what the latter does. Out: every look is right, at random instructions and behind every one. The
//! reader is `profiler_tests::outside`.

use std::process::Command;
use std::time::{Duration, Instant};

use profiler_proto::model::Value as Attribute;
use profiler_tests::outside::published::{Memory, Published};
use profiler_tests::outside::record::{self, Seen, UnknownKey};
use profiler_tests::outside::stopped::Stopped;
use profiler_tests::outside::watched::{State, Watch};
use profiler_tests::process::Running;
use profiler_tests::workload::Random;
use serde_json::Value;

use crate::plugin::{build_host, build_plugin};
use crate::scenario::{clean, command, not_run, number, start, turn};

/// How long a change may take to be published on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Looks at random instructions.
const LOOKS: u64 = 100_000;

/// Those of a reader that is not ours.
const OTHER_LOOKS: u64 = 4000;

/// What the process `pid` publishes, once it is as it should be.
#[track_caller]
fn published(pid: u32, is_so: impl Fn(&Published) -> bool) -> Published {
    let memory = Memory::of(pid).unwrap();
    let end = Instant::now() + LIMIT;
    loop {
        let now = Published::of(pid, &memory).unwrap();
        match now {
            Some(now) if is_so(&now) => return now,
            now => assert!(Instant::now() < end, "it stays at {now:?}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_published(pid: u32) -> bool {
    Published::of(pid, &Memory::of(pid).unwrap()).unwrap().is_some()
}

/// Whether a process may read what another one has in memory, and stop it, tried on a child; where the machine forbids it, says that
/// `test` was not run. As root, that is a failure: nobody shall take a machine for one on which this was tried.
#[track_caller]
fn may_look(test: &str) -> bool {
    // It waits for its standard input.
    let child = start(&mut Command::new("cat"));
    let outcomes = [Memory::of(child.id()).map(drop), Stopped::attach(child.id() as i32).map(drop)];
    let forbidden = |error: &profiler_tests::Error| {
        let code = |code| error.to_string().ends_with(&format!("(os error {code})"));
        [libc::EPERM, libc::EACCES, libc::ENOSYS].into_iter().any(code)
    };
    let refusal = outcomes.into_iter().filter_map(Result::err).find(forbidden);
    if let Some(error) = &refusal {
        not_run(test, &error.to_string());
        let remedy = "give the container SYS_PTRACE, or run the tests as another user than root, who goes without";
        assert!(!rustix::process::geteuid().is_root(), "{error}: {remedy}");
    }
    refusal.is_none()
}

/// Starts the scenario `published`; its process id and what it said first.
fn publisher(options: &[&str]) -> (Running, u32, Value) {
    let mut child = start(&mut command("published", options));
    let said = child.json().unwrap();
    (child, number(&said, "/pid") as u32, said)
}

/// Says a word, and waits until it is done; what the process said then.
#[track_caller]
fn obey(child: &mut Running, word: &str) -> Value {
    child.say(word).unwrap();
    child.json().unwrap()
}

/// Check that a process says who it is, whether it samples itself, and how its threads are read; that a change is
/// published under a later time, and that all of it goes with the profiler.
#[test]
fn a_process_says_who_it_is() {
    if !may_look("what a process says of itself") {
        return;
    }
    let (mut child, pid, _) = publisher(&[]);
    let first = published(pid, |now| now.text("profiler.cpu") == Some("on"));
    assert_eq!(first.context.resource.service_name(), Some("parent"));
    assert_eq!(first.context.resource.get("region"), Some(&Attribute::from("eu-1")));
    assert_eq!(first.context.resource.get("process.pid"), Some(&Attribute::Int(pid.into())));
    assert_eq!(first.text("threadlocal.schema_version"), Some("tlsdesc_v1_dev"));
    assert_eq!(first.keys(), ["profiler.tags"]);
    obey(&mut child, "pause");
    let second = published(pid, |now| now.text("profiler.cpu") == Some("off"));
    assert!(second.at > first.at, "{second:?} after {first:?}");
    obey(&mut child, "endpoint");
    let third = published(pid, |now| now.keys() == ["profiler.tags", "endpoint"]);
    assert_eq!((third.at > second.at, third.context.resource), (true, first.context.resource));
    obey(&mut child, "resume");
    published(pid, |now| now.text("profiler.cpu") == Some("on"));
    obey(&mut child, "stop");
    assert!(!is_published(pid), "it outlives the profiler");
}

/// Check that a forked child does not show what its parent published, and publishes what is its own when it starts a
/// profiler.
#[test]
fn a_forked_child_publishes_its_own() {
    if !may_look("what a forked child says of itself") {
        return;
    }
    let (mut child, parent, _) = publisher(&[]);
    let pid = number(&obey(&mut child, "fork"), "/pid") as u32;
    assert_ne!(pid, parent);
    assert!(is_published(parent) && !is_published(pid));
    obey(&mut child, "stop");
    obey(&mut child, "start");
    let own = published(pid, |_| true);
    assert_eq!(own.context.resource.service_name(), Some("child"));
    assert_eq!(own.context.resource.get("process.pid"), Some(&Attribute::Int(pid.into())));
    let of_parent = published(parent, |_| true);
    assert_eq!(of_parent.context.resource.service_name(), Some("parent"));
}

/// Check that what another library of the process publishes stays as it is, and that this is said.
#[test]
fn another_publisher_is_left_alone() {
    if !may_look("what another library publishes") {
        return;
    }
    let (mut child, pid, said) = publisher(&["other=true"]);
    let notes = said["stats"]["engine"]["notes"].to_string();
    assert!(notes.contains("another library of this process publishes one already"), "{said}");
    let maps = || std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let count = || maps().lines().filter(|line| line.contains("OTEL_CTX")).count();
    assert_eq!((count(), obey(&mut child, "stop")["pid"].as_u64(), count()), (1, Some(pid.into()), 1));
    let theirs = published(pid, |_| true);
    assert_eq!((theirs.at, theirs.size), (77, 0));
}

/// Check that an attribute for which readers have no room is left out, that this is said, and that the others are there.
#[test]
fn an_attribute_without_room_is_left_out() {
    if !may_look("an attribute without room") {
        return;
    }
    let (_child, pid, _) = publisher(&["note=100000"]);
    let now = published(pid, |_| true);
    let resource = &now.context.resource;
    // Each is cut to what backends take: there is no room for all of them.
    let long: Vec<_> = (0..16).filter_map(|n| resource.get(&format!("note.{n}"))?.as_str()).map(str::len).collect();
    assert_eq!((long, resource.service_name()), (vec![2048; 15], Some("parent")));
    assert!(now.context.resource.get("region").is_some() && now.size < (33 << 10), "{}", now.size);
}

/// A thread of the scenario `watched`, as seen from outside.
struct Reader {
    memory: Memory,
    keys: Vec<String>,
    /// Not there where thread-locals are anywhere.
    tls_offset: Option<i64>,
}

/// What a look found.
#[derive(Debug, Default)]
struct Looks {
    /// The thread was not in a change.
    between: u64,
    /// It was, and the change was not seen yet.
    old: u64,
    /// It was, and the change was seen.
    new: u64,
}

impl Reader {
    /// Once the process publishes what there is to know.
    fn of(pid: u32) -> Self {
        let now = published(pid, |now| now.keys().len() == 6);
        Self { memory: Memory::of(pid).unwrap(), keys: now.keys(), tls_offset: now.tls_offset() }
    }

    /// Checks what the thread's record says now against what the thread says that it does.
    #[track_caller]
    fn look(&self, place: u64, watch: u64, looks: &mut Looks) {
        let [last, next] = Watch::read(&self.memory, watch).unwrap();
        let seen: Result<_, UnknownKey> = record::read(&self.memory, place, &self.keys).unwrap();
        let seen = seen.unwrap_or_else(|key| panic!("{key:?} is not in {:?}", self.keys));
        looks.add([last, next], &seen);
    }
}

impl Looks {
    #[track_caller]
    fn add(&mut self, [last, next]: [State; 2], seen: &Seen) {
        match (*seen == last.record(), *seen == next.record()) {
            (true, true) => self.between += 1,
            (true, false) => self.old += 1,
            (false, true) => self.new += 1,
            (false, false) => panic!("between {last:?} and {next:?} it has {seen:?}"),
        }
    }
}

/// What `tests/reader/context.py` saw in one look.
#[track_caller]
fn seen(look: &Value) -> Seen {
    let id = |name: &str| look[name].as_str().map(|id| u128::from_str_radix(id, 16).unwrap());
    let span = id("trace_id").zip(id("span_id"));
    let tags = look["tags"].as_object().unwrap().iter();
    Seen {
        flags: look["trace_flags"].as_u64().unwrap() as u8,
        span: span.map(|(trace_id, span_id)| (trace_id.to_be_bytes(), (span_id as u64).to_be_bytes())),
        tags: tags.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect(),
    }
}

/// A thread as it said itself: its id, where it says what it does, and where its `otel_thread_ctx_v1` is.
type Thread = (i32, u64, Option<u64>);

/// Starts the scenario `watched`; its threads.
fn watched(options: &[&str]) -> (Running, Vec<Thread>) {
    born(&mut command("watched", options))
}

/// Starts a process with such threads.
fn born(command: &mut Command) -> (Running, Vec<Thread>) {
    let mut child = start(command);
    let said = child.json().unwrap();
    let of = |thread: &Value| (number(thread, "/tid") as i32, number(thread, "/watch"), thread["symbol"].as_u64());
    let threads = said["threads"].as_array().unwrap().iter().map(of).collect();
    (child, threads)
}

/// The address at which the thread keeps the pointer to its record.
fn place(thread: &Stopped, reader: &Reader) -> u64 {
    let tls_offset = reader.tls_offset.expect("a program's thread-locals are at one distance");
    thread.thread_pointer().unwrap().wrapping_add_signed(tls_offset)
}

/// Check that the name that the specification gives to the pointer leads to the same place as the offset does, where a
/// program exports it as the documentation says.
#[test]
fn the_exported_symbol_is_where_the_offset_says() {
    if !may_look("the exported symbol") {
        return;
    }
    let _turn = turn();
    let (child, threads) = watched(&["how=race", "rate=1", "threads=2"]);
    let reader = Reader::of(child.id());
    for (tid, _, symbol) in threads {
        let thread = Stopped::attach(tid).unwrap();
        assert_eq!(symbol, Some(place(&thread, &reader)));
    }
}

/// Check that a thread that is stopped at random instructions always has the whole record of what it works for, while it is
/// sampled at 1 kHz.
#[test]
fn torture_by_a_reader_outside() {
    if !may_look("a reader outside at random instructions") {
        return;
    }
    let _turn = turn();
    let (mut child, threads) = watched(&["how=race", "rate=1000", "threads=2"]);
    let reader = Reader::of(child.id());
    let mut stopped: Vec<_> = threads.iter().map(|(tid, ..)| Stopped::attach(*tid).unwrap()).collect();
    child.say("begin").unwrap();
    let (mut looks, mut random) = (Looks::default(), Random::new(1));
    for number in 0..LOOKS {
        let index = number as usize % threads.len();
        let until = Instant::now() + Duration::from_nanos(random.below(40_000));
        let meanwhile = || while Instant::now() < until {};
        assert!(stopped[index].run(meanwhile).unwrap(), "the thread ended");
        reader.look(place(&stopped[index], &reader), threads[index].1, &mut looks);
    }
    println!("{looks:?}");
    assert_eq!(looks.between + looks.old + looks.new, LOOKS);
    assert!(looks.old * 50 > LOOKS && looks.new * 50 > LOOKS, "hardly ever in a change: {looks:?}");
}

/// Check that a reader that is made from the specifications alone, with nothing of this repository, reads who the process is, finds the
/// threads' contexts by the exported symbol, and sees what they work for while they stand still at random instructions.
#[test]
fn torture_by_a_reader_that_knows_the_specifications_alone() {
    if !may_look("a reader by the specifications alone") {
        return;
    }
    let _turn = turn();
    let (mut child, threads) = watched(&["how=race", "rate=1000", "threads=2"]);
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/reader/context.py"));
    command.args([child.id().to_string(), OTHER_LOOKS.to_string()]);
    command.args(threads.iter().map(|(tid, watch, _)| format!("{tid}:{watch}")));
    let mut reader = start(&mut command);
    let process = reader.json().unwrap();
    let resource = &process["resource"];
    let who = (&resource["service.name"], resource["process.pid"].as_u64());
    assert_eq!(who, (&"watched".into(), Some(child.id().into())), "{process}");
    let by_symbol = reader.json().unwrap()["tls_offset"].as_i64();
    assert_eq!(process["attributes"]["profiler.thread_context.tls_offset"].as_i64(), by_symbol);
    assert_eq!(number(&reader.json().unwrap(), "/attached"), 2);
    child.say("begin").unwrap();
    reader.say("begin").unwrap();
    let (mut looks, mut spans) = (Looks::default(), 0);
    for _ in 0..OTHER_LOOKS {
        let look = reader.json().unwrap();
        let states = [0, 1].map(|word| State::of_bits(look["watch"][word].as_u64().unwrap()));
        let seen = seen(&look);
        spans += u64::from(seen.span.is_some() && !seen.tags.is_empty());
        looks.add(states, &seen);
    }
    println!("{looks:?}, {spans} with a span and tags");
    assert!(looks.old > 20 && looks.new > 20 && spans > 100, "hardly ever in a change: {looks:?}, {spans}");
}

/// Takes the thread of the scenario through its life, instruction by instruction; what was seen.
#[track_caller]
fn step_through(how: &str) -> Looks {
    let _turn = turn();
    let (child, threads) = watched(&[&format!("how={how}"), "rate=1", "threads=1"]);
    step(child, threads[0], how)
}

/// The same for a thread that waits for a word.
#[track_caller]
#[expect(clippy::print_stdout, reason = "what was seen, for whoever asks with --nocapture")]
fn step(mut child: Running, (tid, watch, symbol): Thread, what: &str) -> Looks {
    let reader = Reader::of(child.id());
    let mut thread = Stopped::attach(tid).unwrap();
    let place = if reader.tls_offset.is_some() { place(&thread, &reader) } else { symbol.unwrap() };
    child.say("begin").unwrap();
    let (mut looks, mut steps) = (Looks::default(), 0_u64);
    while thread.step().unwrap() {
        steps += 1;
        reader.look(place, watch, &mut looks);
    }
    println!("{what}, {steps} instructions: {looks:?}");
    assert_eq!(child.finish().unwrap().json().unwrap()["ended"], true, "it did not come to its end");
    looks
}

/// Check that behind every instruction of a thread's life the record is the old or the new one: its first scope, scopes left in
/// and out of order, spans with and without tags, tags in the place of others, polls, and its end with a scope that was never left.
#[test]
fn every_instruction_shows_the_old_record_or_the_new_one() {
    if may_look("a reader outside behind every instruction") {
        let looks = step_through("script");
        assert!(looks.old > 1000 && looks.new > 1000, "{looks:?}");
    }
}

/// Check the same for local roots, whose names are tags: with children, below scopes, and in the place of spans that are none.
#[test]
fn every_instruction_shows_the_old_root_or_the_new_one() {
    if may_look("a reader outside behind every instruction, of local roots") {
        let looks = step_through("roots");
        assert!(looks.old > 1000 && looks.new > 1000, "{looks:?}");
    }
}

/// Check the same where a layer that showed a span is gone, and a scope, another span or the span's own end takes back what it showed.
#[test]
fn every_instruction_shows_what_a_layer_showed_or_nothing_of_it() {
    if may_look("a reader outside behind every instruction, of a layer that is gone") {
        let looks = step_through("gone");
        assert!(looks.old > 1000 && looks.new > 1000, "{looks:?}");
    }
}

/// Check the same for scopes beyond those that a thread keeps, on the way there and back, and a span within them.
#[test]
fn every_instruction_beyond_the_bound_shows_the_old_record_or_the_new_one() {
    if may_look("a reader outside behind every instruction, beyond the bound of scopes") {
        let looks = step_through("beyond");
        assert!(looks.old > 1000 && looks.new > 1000, "{looks:?}");
    }
}

/// Check the same for a thread of a library that a program in C loads with `dlopen`: where the loader put its thread-locals at a fixed distance,
/// and where it put them anywhere, so that each change asks the variable's descriptor.
#[test]
fn every_instruction_in_a_plugin_shows_the_old_record_or_the_new_one() {
    if !may_look("a reader outside behind every instruction of a plugin") {
        return;
    }
    let (host, plugin) = (build_host("watched"), build_plugin("plugin_watched"));
    // How much room the loader keeps beside the program's thread-locals: for all of the plugin's, and for none. Source: glibc's manual, "Dynamic
    // Linking Tunables".
    for (room, is_fixed) in [(8192, true), (0, false)] {
        let mut host = Command::new(&host);
        clean(host.arg(&plugin).args(["how=script", "watched"]));
        let _turn = turn();
        let (child, threads) = born(host.env("GLIBC_TUNABLES", format!("glibc.rtld.optional_static_tls={room}")));
        assert_eq!(Reader::of(child.id()).tls_offset.is_some(), is_fixed);
        let looks = step(child, threads[0], if is_fixed { "fixed" } else { "anywhere" });
        assert!(looks.old > 1000 && looks.new > 1000, "{is_fixed}: {looks:?}");
    }
}
