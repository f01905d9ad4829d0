//! What the agent pulls of a Go program that serves its profiles (`tests/go/served`), and what it does not.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use profiler_proto::otlp::decode_bytes;
use profiler_proto::{Limits, ProfileSet};

use crate::early::build;
use crate::http::get;
use crate::metrics::{PROFILES, collector, next};
use crate::process::{self, Running, agent, go_program_with};
use crate::{DEADLINE, decode, folder, is_root};

/// What all files of a folder have, by sample type: values of stacks with this function, summed.
fn sum(folder: &Path, kind: &str, function: &str) -> Vec<i64> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let written = paths.filter(|path| path.extension().is_some_and(|extension| extension == "gz"));
    let sets = written.filter_map(|path| std::fs::read(path).ok()).map(|bytes| decode(&bytes));
    sets.flat_map(|set| of_set(&set, kind, function)).collect()
}

fn of_set(set: &ProfileSet, kind: &str, function: &str) -> Option<i64> {
    let text = |id| set.dictionary.strings.text(id);
    let profile = set.profiles.iter().find(|profile| text(profile.kind.sample_type.kind) == kind)?;
    let has = |sample: &&profiler_proto::Sample| {
        let locations = &set.dictionary.stacks.get(sample.stack).unwrap().locations;
        let lines = locations.iter().flat_map(|id| &set.dictionary.locations.get(*id).unwrap().lines);
        lines.map(|line| text(set.dictionary.functions.get(line.function).unwrap().name)).any(|name| name == function)
    };
    let samples: Vec<i64> = profile.samples.iter().filter(has).map(|sample| sample.value).collect();
    (!samples.is_empty()).then(|| samples.iter().sum())
}

/// Held while a test has programs `served`: whose an answer is, is told by the name where nothing else can be seen, and two tests at once would have several of a name.
pub(crate) fn one_served() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn until(run: &Running, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < until, "{}", run.log());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// An agent with these capabilities alone that captures and pulls at this pace.
fn bare(capabilities: &str, every: &str, address: &str) -> Command {
    let mut bare = Command::new("setpriv");
    bare.args(["--bounding-set", capabilities, "--inh-caps=-all", "--no-new-privs"]);
    process::quiet(bare.arg(env!("CARGO_BIN_EXE_profiler-sidecar")));
    bare.args(["run", "--runtime-interval", every, "--pull", &format!("http://{address}")]);
    bare
}

fn figures(page: &str) -> [u64; 4] {
    let stats: serde_json::Value = serde_json::from_slice(&get(page, "/stats").body).unwrap();
    ["endpoints", "sets", "failed", "from_outside"].map(|key| stats["pulls"][key].as_u64().unwrap())
}

/// Check that without any privilege the profiles of a program arrive that serves them, with its token: what is in use, what was allocated and
/// waited for since, goroutines, CPU; whoever else is there whose descriptors are not ours to see either.
#[test]
fn without_privileges_profiles_are_pulled() {
    if !is_root() {
        return;
    }
    let _one = one_served();
    let mut program = go_program_with("served", &["secret"]);
    let (address, files) = (program.address_after("listening "), folder("pulled"));
    let company = ["1234", "1235"].map(|user| {
        let mut company = Command::new("setpriv");
        company.args(["--reuid", user, "--clear-groups", "sh", "-c", "echo there; while sleep 0.3; do :; done"]);
        Running::program(&mut company)
    });
    company.iter().for_each(|running| drop(running.address_after("there")));
    let mut bare = bare("-all", "2s", &address);
    bare.env("PROFILER_PULL_TOKEN", "secret").env("PROFILER_FILES_DIR", &files);
    let run = Running::agent(&mut bare);
    let page = run.address_after("http://");
    let has = |kind: &str, function: &str, enough: i64| {
        let told = sum(&files, kind, function);
        told.iter().any(|value| *value >= enough)
    };
    until(&run, || has("inuse_space", "main.keep", 10_000_000) && has("goroutine", "main.main", 1));
    until(&run, || has("samples", "main.spin", 1));
    // Since the first answer nothing was allocated there, and what was before it is in no profile.
    assert_eq!(sum(&files, "alloc_space", "main.keep"), [0; 0]);
    program.ask("churn", "churned");
    until(&run, || sum(&files, "alloc_space", "main.keep").iter().sum::<i64>() >= 10_000_000);
    until(&run, || has("delay", "main.wait", 1_000_000));
    let told: i64 = sum(&files, "alloc_space", "main.keep").iter().sum();
    assert!((10_000_000..11_500_000).contains(&told), "{told}");
    let [endpoints, sets, failed, from_outside] = figures(&page);
    assert!(
        endpoints == 1 && sets > 0 && (failed, from_outside) == (0, 0),
        "{sets} {failed} {from_outside} {}",
        run.log()
    );
    assert_eq!(run.end(), Some(0));
    drop(company);
    std::fs::remove_dir_all(files).unwrap();
}

/// Check that where nobody can see whose a socket is, its program's profiles arrive all the same, differences too, whatever other processes of that user come and go; and that it
/// is said.
#[test]
fn who_answers_unseen_has_company_that_comes_and_goes() {
    if !is_root() {
        return;
    }
    let _one = one_served();
    let other = ["--reuid=1234", "--regid=1234", "--clear-groups"];
    // Where others can run it.
    let place = std::env::temp_dir().join(format!("profiler-served-{}", std::process::id()));
    build("served", "go1.22.12", &place);
    let mut program = Command::new("setpriv");
    process::quiet(program.args(other).arg(&place));
    let mut program = Running::program(&mut program);
    let (address, files) = (program.address_after("listening "), folder("pulled-unseen"));
    let mut company = Command::new("setpriv");
    company.args(other).args(["sh", "-c", "echo there; while sleep 0.3; do :; done"]);
    let company = Running::program(&mut company);
    company.address_after("there");
    let mut bare = bare("-all", "1s", &address);
    let run = Running::agent(bare.env("PROFILER_FILES_DIR", &files));
    let page = run.address_after("http://");
    until(&run, || sum(&files, "inuse_space", "main.keep").iter().any(|value| *value >= 10_000_000));
    // Behind a first answer for each kind.
    until(&run, || !sum(&files, "samples", "main.spin").is_empty());
    program.ask("churn", "churned");
    until(&run, || sum(&files, "alloc_space", "main.keep").iter().sum::<i64>() >= 10_000_000);
    let [endpoints, sets, failed, _] = figures(&page);
    assert!(endpoints == 1 && sets > 10 && failed == 0, "{sets} {failed} {}", run.log());
    assert!(run.log().contains(&format!("who answers at http://{address} cannot be seen")), "{}", run.log());
    assert_eq!(run.end(), Some(0));
    drop((program, company));
    std::fs::remove_file(place).unwrap();
    std::fs::remove_dir_all(files).unwrap();
}

/// Check that a program that is another user's than who opened its socket is not pulled for what is read of it from outside, where whose the socket is cannot be seen: its name
/// tells who answers.
#[test]
fn who_was_handed_a_socket_by_another_user_is_read_once() {
    if !is_root() {
        return;
    }
    let _one = one_served();
    let place = std::env::temp_dir().join(format!("profiler-handed-{}", std::process::id()));
    build("served", "go1.24.13", &place);
    let mut command = Command::new(&place);
    process::quiet(command.env("USER_AGAIN", "1234"));
    let mut program = Running::program(&mut command);
    let address = program.address_after("listening ");
    program.ask("again", "ready");
    let began = Instant::now();
    while program.log().matches("ready").count() < 2 {
        assert!(began.elapsed() < DEADLINE, "{}", program.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut bare = bare("-all,+sys_ptrace", "1s", &address);
    let run = Running::agent(&mut bare);
    let page = run.address_after("http://");
    // Four kinds each time: CPU alone is asked for.
    until(&run, || figures(&page)[3] >= 12);
    let [_, sets, failed, from_outside] = figures(&page);
    assert!(sets <= from_outside / 4 && failed == 0, "{sets} {failed} {from_outside} {}", run.log());
    assert!(run.log().contains(&format!("is taken for one of process {},", program.pid())), "{}", run.log());
    assert_eq!(run.end(), Some(0));
    drop(program);
    std::fs::remove_file(place).unwrap();
}

/// Check that of those who may answer unseen none is who has a network of its own; and that a program that calls itself otherwise than any of them is called so.
#[test]
fn who_has_another_network_does_not_answer_unseen() {
    if !is_root() {
        return;
    }
    let _one = one_served();
    let other = ["--reuid=1234", "--regid=1234", "--clear-groups"];
    let place = std::env::temp_dir().join(format!("profiler-linked-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    build("served", "go1.22.12", &place.join("served"));
    let mut program = Command::new("setpriv");
    process::quiet(program.args(other).args(["bash", "-c", "exec -a shown \"$0\""]).arg(place.join("served")));
    let program = Running::program(&mut program);
    let (address, files) = (program.address_after("listening "), folder("pulled-elsewhere"));
    let idle = ["sh", "-c", "echo there; while sleep 0.3; do :; done"];
    let company = Running::program(Command::new("setpriv").args(other).args(idle));
    let elsewhere = Running::program(Command::new("unshare").args(["--net", "setpriv"]).args(other).args(idle));
    [&company, &elsewhere].into_iter().for_each(|running| drop(running.address_after("there")));
    let mut bare = bare("-all", "1s", &address);
    let run = Running::agent(bare.env("PROFILER_FILES_DIR", &files));
    until(&run, || !sum(&files, "inuse_space", "main.keep").is_empty());
    let log = run.log();
    let said = log.lines().find(|line| line.contains("cannot be seen: it is taken for one of process ")).unwrap();
    let named = said.split(" of process ").nth(1).unwrap().split(", and what").next().unwrap();
    let named: Vec<u32> = named.split(", ").map(|pid| pid.parse().unwrap()).collect();
    assert!([&program, &company].iter().all(|running| named.contains(&running.pid())), "{said}");
    assert!(!named.contains(&elsewhere.pid()), "{said}");
    // Files begin with the service's name.
    let names: Vec<_> = std::fs::read_dir(&files).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().any(|name| name.to_str().unwrap().starts_with("shown-")), "{names:?}");
    assert_eq!(run.end(), Some(0));
    drop((program, company, elsewhere));
    std::fs::remove_dir_all(place).unwrap();
    std::fs::remove_dir_all(files).unwrap();
}

/// Check that user and password are shown where the file of settings says so, and that the pulled profiles have the resource that the process's own have: who
/// reads them need not know where they came from.
#[test]
fn pulled_profiles_are_those_of_their_process() {
    if !is_root() {
        return;
    }
    let _one = one_served();
    let program = go_program_with("served", &["secret"]);
    let (address, pid) = (program.address_after("listening "), program.pid().to_string());
    let folder = folder("pull-basic");
    let file = folder.join("settings.toml");
    // `ada:secret` in base64, as RFC 7617 has it.
    let endpoint =
        format!("[[pull]]\nurl = \"http://{address}\"\nheaders = {{ authorization = \"Basic YWRhOnNlY3JldA==\" }}\n");
    std::fs::write(&file, endpoint).unwrap();
    let resource = |arguments: &[&str], of: &str| {
        let (collector, requests) = collector("200 OK");
        let mut run = agent(&["run", "--pid", &pid]);
        run.args(arguments).env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{collector}"));
        let run = Running::agent(&mut run);
        let resource = next(&requests, PROFILES, &run, |body| {
            let sets = decode_bytes(body, &Limits::default()).unwrap();
            // The process may not have been seen when it was asked first.
            let is_its = |set: &ProfileSet| set.resource.get("process.pid").is_some();
            sets.into_iter().find(|set| is_its(set) && of_set(set, of, "main.keep").is_some()).map(|set| set.resource)
        });
        assert_eq!(run.end(), Some(0));
        resource
    };
    let file = file.to_str().unwrap();
    let pulled = resource(&["--runtime-interval", "off", "--config", file], "inuse_space");
    let read = resource(&["--runtime-interval", "1s"], "inuse_space");
    assert_eq!(pulled.service_name(), Some("served"), "{pulled:?}");
    assert_eq!(pulled, read);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Check that what is read from outside is not asked for.
#[test]
fn what_is_read_from_outside_is_not_pulled() {
    if !is_root() {
        return;
    }
    let _one = one_served();
    let program = go_program_with("served", &[]);
    let endpoint = format!("http://{}", program.address_after("listening "));
    let pid = program.pid().to_string();
    let run = Running::agent(&mut agent(&["run", "--pid", &pid, "--runtime-interval", "1s", "--pull", &endpoint]));
    let page = run.address_after("http://");
    // Of three rounds all four kinds, and CPU.
    until(&run, || figures(&page)[3] >= 15);
    assert_eq!(figures(&page)[..3], [1, 0, 0], "{}", run.log());
    assert_eq!(run.end(), Some(0));
}

/// Check the same of a program that settings name by a name of this machine that has to be looked up: the agent has a table of names of its own.
#[test]
fn what_is_read_from_outside_is_not_pulled_by_another_name() {
    if !is_root() {
        return;
    }
    let _one = one_served();
    let ip = own_address().map_or_else(|| "127.0.0.1".to_owned(), |ip| ip.to_string());
    let program = go_program_with("served", &[&format!("at={ip}:0")]);
    let address = program.address_after("listening ");
    let port = address.rsplit(':').next().unwrap();
    let folder = folder("pull-name");
    let names = folder.join("hosts");
    std::fs::write(&names, format!("{ip} shop.pod\n")).unwrap();
    let mut named = Command::new("unshare");
    named.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]).arg(&names);
    process::quiet(named.arg(env!("CARGO_BIN_EXE_profiler-sidecar")));
    named.args(["run", "--pid", &program.pid().to_string(), "--runtime-interval", "1s"]);
    let run = Running::agent(named.args(["--pull", &format!("http://shop.pod:{port}")]));
    let page = run.address_after("http://");
    until(&run, || figures(&page)[3] >= 15);
    assert_eq!(figures(&page)[..3], [1, 0, 0], "{}", run.log());
    assert_eq!(run.end(), Some(0));
    std::fs::remove_dir_all(folder).unwrap();
}

/// Starts an agent without any privilege that pulls from an address, and writes files into `files`.
fn pulling(address: &str, files: &Path) -> Running {
    let mut bare = bare("-all", "1s", address);
    Running::agent(bare.env("PROFILER_FILES_DIR", files))
}

/// What the program allocates to be kept when it begins, and for each "churn": a hundred times so much as the runtime makes 106,496 bytes of, each of them sampled.
const CHURNED: i64 = 10_000_000;

/// Check that a program that is ended and started again at the same address, and then counts more than the one before, tells of no time twice: what came before it was
/// asked first is in no difference, and nothing is below zero.
#[test]
fn a_program_that_is_started_again_begins_anew() {
    if !is_root() {
        return;
    }
    let _one = one_served();
    let files = folder("restarted");
    let mut first = go_program_with("served", &[]);
    let (address, pid) = (first.address_after("listening "), first.pid());
    let run = pulling(&address, &files);
    until(&run, || largest(&files, "inuse_space") >= CHURNED * 9 / 10);
    first.ask("churn", "churned");
    until(&run, || allocated(&files) >= CHURNED * 9 / 10);
    drop(first);
    let mut second = go_program_with("served", &[&format!("at={address}")]);
    assert_ne!(second.pid(), pid);
    // It is asked each second, and may be asked in between: what it does after the first answer is told.
    let before = allocated(&files);
    for _ in 0..3 {
        second.ask("churn", "churned");
    }
    until(&run, || largest(&files, "inuse_space") >= 4 * CHURNED * 9 / 10);
    let between = allocated(&files) - before;
    assert!((0..=3 * CHURNED * 11 / 10).contains(&between), "{between}");
    let before = allocated(&files);
    second.ask("churn", "churned");
    until(&run, || allocated(&files) >= before + CHURNED * 9 / 10);
    assert!((0..CHURNED * 11 / 10).contains(&(allocated(&files) - before)), "{}", run.log());
    assert!(sum(&files, "alloc_space", "main.waste").iter().all(|value| *value < CHURNED), "{}", run.log());
    assert_eq!(run.end(), Some(0));
    std::fs::remove_dir_all(files).unwrap();
}

/// Check the same of one that keeps its number and its socket (exec), and counts from nothing all the same.
#[test]
fn a_program_that_becomes_itself_anew_begins_anew() {
    if !is_root() {
        return;
    }
    let _one = one_served();
    let files = folder("renewed");
    let mut program = go_program_with("served", &[]);
    let address = program.address_after("listening ");
    let run = pulling(&address, &files);
    let page = run.address_after("http://");
    until(&run, || largest(&files, "inuse_space") >= CHURNED * 9 / 10);
    for _ in 0..3 {
        program.ask("churn", "churned");
    }
    until(&run, || allocated(&files) >= 3 * CHURNED * 9 / 10);
    let before = allocated(&files);
    program.ask("again", "listening ");
    until(&run, || program.log().matches("listening ").count() == 2);
    // Several rounds, of which the first may have begun before.
    let answered = figures(&page)[1];
    until(&run, || figures(&page)[1] >= answered + 10);
    assert_eq!(allocated(&files), before, "{}", run.log());
    program.ask("churn", "churned");
    until(&run, || allocated(&files) >= before + CHURNED * 9 / 10);
    assert!((0..CHURNED * 11 / 10).contains(&(allocated(&files) - before)), "{}", run.log());
    assert!(sum(&files, "alloc_space", "main.waste").iter().all(|value| *value < CHURNED), "{}", run.log());
    assert_eq!(run.end(), Some(0));
    std::fs::remove_dir_all(files).unwrap();
}

/// What all files have of what was allocated to be kept; no difference is below zero.
fn allocated(files: &Path) -> i64 {
    let told = sum(files, "alloc_space", "main.keep");
    assert!(told.iter().all(|value| *value >= 0), "{told:?}");
    told.iter().sum()
}

/// The most that any file has of what is kept.
fn largest(files: &Path, kind: &str) -> i64 {
    sum(files, kind, "main.keep").into_iter().max().unwrap_or(0)
}

/// Check that where nothing is read from outside, a program that serves profiles is found by its socket, and one that does not is not asked again.
#[test]
fn programs_that_serve_profiles_are_found_when_that_is_asked_for() {
    if !is_root() {
        return;
    }
    let _one = one_served();
    let program = go_program_with("served", &[]);
    let address = program.address_after("listening ");
    let files = folder("found");
    let silent = process::go_program("parked");
    let pids = [&program, &silent].map(|program| program.pid().to_string());
    let mut run = agent(&["run", "--pid", &pids[0], "--pid", &pids[1], "--runtime-interval", "off"]);
    let run = Running::agent(run.args(["--pull", "discover"]).env("PROFILER_FILES_DIR", &files));
    let page = run.address_after("http://");
    until(&run, || sum(&files, "inuse_space", "main.keep").iter().any(|value| *value >= 10_000_000));
    assert!(run.log().contains(&format!("profiles are pulled from http://{address}")), "{}", run.log());
    // Nor is it silent of one that serves none.
    let told = |pid: &str| run.log().lines().any(|line| line.contains("no profiles to pull") && line.contains(pid));
    until(&run, || told(&format!("pid={}", silent.pid())));
    assert!(!told(&format!("pid={}", program.pid())), "{}", run.log());
    assert_eq!((figures(&page)[0], figures(&page)[2]), (1, 0), "{}", run.log());
    assert_eq!(run.end(), Some(0));
    std::fs::remove_dir_all(files).unwrap();
}

/// Check that a program is found that serves at an address of the machine alone, not at the loopback, where another one has the same port: each is asked, and has its own name.
#[test]
fn programs_with_one_port_at_two_addresses_are_each_found() {
    if !is_root() {
        return;
    }
    let _one = one_served();
    let Some(ip) = own_address() else {
        println!("NOT RUN: this machine has no address but the loopback's");
        return;
    };
    let first = go_program_with("served", &[&format!("at={ip}:0")]);
    let address = first.address_after("listening ");
    let port = address.rsplit(':').next().unwrap().to_owned();
    let second = go_program_with("served", &[&format!("at=127.0.0.1:{port}")]);
    let pids = [first.pid().to_string(), second.pid().to_string()];
    let run = ["run", "--pid", &pids[0], "--pid", &pids[1], "--runtime-interval", "off", "--pull", "discover"];
    let (collector, requests) = collector("200 OK");
    let mut run = agent(&run);
    run.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{collector}"));
    let run = Running::agent(&mut run);
    let page = run.address_after("http://");
    let found = RefCell::new(BTreeSet::new());
    next(&requests, PROFILES, &run, |body| {
        let sets = decode_bytes(body, &Limits::default()).unwrap();
        let kept = sets.iter().filter(|set| of_set(set, "inuse_space", "main.keep").is_some());
        found.borrow_mut().extend(kept.filter_map(|set| set.resource.get("process.pid").map(ToString::to_string)));
        (found.borrow().len() == 2).then_some(())
    });
    assert_eq!(found.into_inner(), pids.clone().into());
    for (pid, address) in pids.iter().zip([address, format!("127.0.0.1:{port}")]) {
        let told = run.log().lines().any(|line| {
            line.contains(&format!("profiles are pulled from http://{address}")) && line.contains(&format!("pid={pid}"))
        });
        assert!(told, "{pid} {}", run.log());
    }
    assert_eq!((figures(&page)[0], figures(&page)[2]), (2, 0), "{}", run.log());
    assert_eq!(run.end(), Some(0));
}

/// An address of this machine that is not the loopback's, where it has one: that which it would send from. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

/// Check that a program is found that serves over TLS, under a name that is not its address, where the settings say whom to trust and what to send; beside it, a way in
/// which it does not answer.
#[test]
fn programs_are_found_over_tls() {
    if !is_root() {
        return;
    }
    let _one = one_served();
    let folder = folder("found-tls");
    let made = rcgen::generate_simple_self_signed(["shop".to_owned()]).unwrap();
    let (certificate, key) = (folder.join("shop.pem"), folder.join("shop.key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let program = go_program_with("served", &["secret", certificate.to_str().unwrap(), key.to_str().unwrap()]);
    let address = program.address_after("listening ");
    let (file, files) = (folder.join("settings.toml"), folder.join("files"));
    let settings = format!(
        "[[pull]]\nurl = \"discover\"\n[[pull]]\nurl = \"discover\"\nscheme = \"https\"\nca = {certificate:?}\n\
         server_name = \"shop\"\nheaders = {{ authorization = \"Bearer secret\" }}\n"
    );
    std::fs::write(&file, settings).unwrap();
    std::fs::create_dir(&files).unwrap();
    let pid = program.pid().to_string();
    let mut run = agent(&["run", "--pid", &pid, "--runtime-interval", "off", "--config", file.to_str().unwrap()]);
    let run = Running::agent(run.env("PROFILER_FILES_DIR", &files));
    let page = run.address_after("http://");
    until(&run, || sum(&files, "inuse_space", "main.keep").iter().any(|value| *value >= 10_000_000));
    assert!(run.log().contains(&format!("profiles are pulled from https://{address}")), "{}", run.log());
    assert_eq!((figures(&page)[0], figures(&page)[2]), (1, 0), "{}", run.log());
    assert_eq!(run.end(), Some(0));
    std::fs::remove_dir_all(folder).unwrap();
}
