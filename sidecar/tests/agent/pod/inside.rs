//! What goes on in the pod: this test program is its first process, as the one that holds a pod's namespaces is; it starts the containers, is the collector that
//! the manifest names, and checks what comes.

use std::io::BufRead as _;
use std::time::{Duration, Instant};

use profiler_proto::model::Value;
use profiler_proto::otlp::encode_to_vec;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink, recv, sendto, socket};
use serde_json::Value as Json;

use super::stranger::NAMES;
use super::{Plan, TEST};
use crate::http::get;
use crate::process::Running;
use crate::received::{Received, Taken, pid, text};
use crate::shop::{Shop, Told};
use crate::steal::{self, undisturbed};
use crate::undivided::{ahead, pinned};
use crate::{DEADLINE, assert_balanced, decode, stats};

/// CPU time of the service: for half a second it has no labels.
const SECONDS: Duration = Duration::from_millis(4500);

/// Runs the pod until the end of standard input or a line on it.
pub(super) fn run(plan: &Plan) {
    loopback_up();
    let received = Received::at(&plan.collector);
    let run = Running::agent(&mut ahead(2, &plan.profiler.command(TEST)));
    let page = run.address_after("/stats: http://");
    assert_eq!(page, plan.profiler.variables["PROFILER_SERVE"], "{}", run.log());
    until(&run, || stats(&page)["engine"]["name"] == "ebpf");
    println!("sampling");
    let ((shop, told, taken), stolen) = undisturbed(|| shop(plan, &received, &page, &run));
    let complete = told.complete(&taken);
    eprintln!("{complete:.4} of its CPU time, {} samples", taken.iter().map(|sample| sample.count).sum::<i64>());
    assert!(steal::complete(0.02, stolen).contains(&complete), "{complete:.4}: {}", run.log());
    told.check(&taken);
    check_resource(plan, &received, shop);
    check_strangers(&received, &page, &run);
    println!("checked");
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    assert_eq!(run.end(), Some(0));
}

/// The service from its beginning to its end: its process, what it says of itself, and what arrived of it.
fn shop(plan: &Plan, received: &Received, page: &str, run: &Running) -> (u32, Told, Vec<Taken>) {
    let mut shop = Shop::start(&mut ahead(1, &pinned(&plan.shop.command(TEST))));
    shop.until_used(SECONDS);
    let told = shop.end();
    settle(received, page, run);
    let taken = received.of_program("shop").remove(&shop.pid()).unwrap();
    (shop.pid(), told, taken)
}

/// Waits until all has arrived that was sampled until now, and checks the account from the kernel's ticks to what arrived here. Nobody else is sampled:
/// the account comes to rest.
fn settle(received: &Received, page: &str, run: &Running) {
    // Figures are published together. A publication may be under way now; the one after it is of later, and ticks outside of the pod tell them apart.
    for _ in ["under way", "later"] {
        let before = number(&stats(page), "/kernel/outside");
        until(run, || number(&stats(page), "/kernel/outside") > before);
    }
    let mut last = Json::Null;
    let until = Instant::now() + DEADLINE;
    while !is_closed(&last, received) {
        assert!(Instant::now() < until, "{} arrived: {last} {}", received.count(), run.log());
        std::thread::sleep(Duration::from_millis(200));
        last = stats(page);
    }
    assert_balanced(&last);
}

/// Whether each tick that hit a process of the pod is accounted for, up to those that arrived.
fn is_closed(stats: &Json, received: &Received) -> bool {
    if stats.is_null() {
        return false;
    }
    let sum = |section: &str, figures: &[&str]| {
        figures.iter().map(|figure| number(stats, &format!("/{section}/{figure}"))).sum::<u64>()
    };
    let lost_in_kernel = sum("kernel", &["ring_full"]);
    let is_sent = sum("kernel", &["seen"]) == sum("kernel", &["sent"]) + lost_in_kernel;
    let is_taken = sum("kernel", &["sent"]) == sum("stacks", &["sampled", "left_out", "gone", "unreadable"]);
    let taken = sum("stacks", &["sampled", "gone", "unreadable"]) + lost_in_kernel;
    is_sent
        && is_taken
        && taken == number(stats, "/taken")
        && i64::try_from(number(stats, "/exported")).unwrap() == received.count()
}

fn number(stats: &Json, path: &str) -> u64 {
    stats.pointer(path).and_then(Json::as_u64).unwrap_or_else(|| panic!("{path}: {stats}"))
}

/// Who the service is, by its container, its file and the pod's fields.
fn check_resource(plan: &Plan, received: &Received, shop: u32) {
    let of_shop = |sets: &[crate::received::Arrived]| {
        let mut own = sets.iter().filter(|(_, set)| pid(set) == shop && text(set, "process.executable.name") == "shop");
        own.next_back().unwrap().1.resource.clone()
    };
    let resource = received.all(of_shop);
    for (key, value) in &plan.resource {
        assert_eq!(resource.get(key), Some(&Value::from(value.as_str())), "{key}: {resource:?}");
    }
    assert_eq!(resource.get("process.pid"), Some(&Value::Int(shop.into())));
}

/// That nothing names the stranger, neither what was exported nor what is shown, and that all programs are the pod's.
fn check_strangers(received: &Received, page: &str, run: &Running) {
    let own = std::env::current_exe().unwrap();
    let programs = [
        "shop",
        "profiler-sidecar",
        "sh",
        "dash",
        "bash",
        "unshare",
        "chrt",
        "taskset",
        "env",
        own.file_name().unwrap().to_str().unwrap(),
    ];
    received.all(|sets| {
        for (_, set) in sets {
            assert!(programs.contains(&text(set, "process.executable.name")), "{:?}", set.resource);
            assert_strange_to(&encode_to_vec(set), "what was exported");
        }
    });
    assert_strange_to(&get(page, "/stats").body, "/stats");
    // Who was busy has ended by now: then nobody is left that could be sampled.
    let answer = get(page, "/debug/pprof/profile?seconds=2");
    let told = if answer.status == 200 { encode_to_vec(&decode(&answer.body)) } else { answer.body };
    assert_strange_to(&told, "/debug/pprof/profile");
    assert_strange_to(run.log().as_bytes(), "the log");
}

fn assert_strange_to(bytes: &[u8], what: &str) {
    let found = NAMES.iter().find(|name| bytes.windows(name.len()).any(|window| window == name.as_bytes()));
    assert_eq!(found, None, "{what}");
}

fn until(run: &Running, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < until, "{}", run.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Brings loopback up, which is all that there is in a network namespace that was just made. Source: netlink(7), whose protocol 0 is rtnetlink(7): a request, to be acknowledged, to change
/// the link of index 1 so that it is up.
fn loopback_up() {
    const NEW_LINK: u32 = 16;
    const REQUEST_ACKNOWLEDGED: u32 = 5;
    const UP: u32 = 1;
    let kernel = socket(AddressFamily::NETLINK, SocketType::RAW, None).unwrap();
    let message = [32, NEW_LINK | REQUEST_ACKNOWLEDGED << 16, 1, 0, 0, 1, UP, UP].map(u32::to_ne_bytes).concat();
    sendto(&kernel, &message, SendFlags::empty(), &netlink::SocketAddrNetlink::new(0, 0)).unwrap();
    let mut answer = [0; 64];
    recv(&kernel, &mut answer, RecvFlags::empty()).unwrap();
    // Behind the head of 16 bytes: an error, or 0.
    assert_eq!(answer[16..20], [0; 4], "loopback does not come up");
}
