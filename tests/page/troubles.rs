//! The sidecar's own page beside a Go program with four bugs (`examples/go/troubles`): each is what stands out, two clicks at most from where the page opens; goroutines are told by their state.
//!
//! Real all the way: the program is built by Go, the sidecar reads its runtime each second, the browser clicks. Needs root, by which the sidecar may read.

use std::time::{Duration, Instant};

use profiler_tests::fetch;
use profiler_tests::pod::Pod;

use crate::reader::Reader;

/// How long a bug may take to show itself, on a machine that is busy.
const SHOWN: Duration = Duration::from_secs(120);

/// The four: the choice, whether its growth is looked at, the function, and the least part of all that it has. Beside the queue, the lock is waited for.
const BUGS: [(&str, bool, &str, f64); 4] = [
    ("inuse", true, "main.newSession", 0.5),
    ("goroutine", true, "main.send", 0.5),
    ("mutex", false, "main.(*counters).count", 0.5),
    ("block", false, "main.(*queue).enqueue", 0.2),
];

/// From where the page opens: a click on the kind, and one on its growth where that is meant; the part of all that `function` has then, with what it calls.
fn part(reader: &mut Reader, (kind, growth, function, _): (&str, bool, &str, f64)) -> Option<f64> {
    reader.open("");
    let choice = format!("#types [data-key={kind}]");
    if reader.ask(&format!("Boolean(document.querySelector('{choice}'))")) == false {
        return None;
    }
    reader.browser.click_on(&choice).unwrap();
    reader.wait(&format!("(profilerPage.state().shows ?? '').startsWith('{kind}')"));
    if growth {
        reader.browser.click_on("#growth").unwrap();
        // There may be one capture only, by now.
        if !soon(reader, "profilerPage.state().grown") {
            return None;
        }
    }
    let part = "(() => { const rows = profilerPage.table(), found = rows.find(({ name }) => name === NAME); \
                return found ? found.total / Math.max(...rows.map(({ total }) => total)) : null; })()";
    reader.ask(&part.replace("NAME", &format!("{function:?}"))).as_f64()
}

/// Whether an expression becomes true within some seconds.
fn soon(reader: &mut Reader, expression: &str) -> bool {
    let until = Instant::now() + Duration::from_secs(5);
    while reader.ask(&format!("Boolean({expression})")) == false {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}

/// Waits until the sidecar has captured the program some times: before, there is nothing to look at.
fn until_it_captures(pod: &Pod) {
    let until = Instant::now() + SHOWN;
    loop {
        let stats = fetch::json(pod.page, "/stats").unwrap();
        if stats["captures"]["sets"].as_u64() >= Some(3) {
            return;
        }
        assert!(Instant::now() < until, "{stats}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Check the four, one after the other, as somebody finds them who knows nothing but that something is wrong.
#[test]
fn each_bug_of_a_go_program_stands_out_after_two_clicks() {
    if !Pod::is_possible() {
        println!("NOT RUN: the sidecar reads other processes, which needs root");
        return;
    }
    let pod = Pod::start(&[]).unwrap();
    until_it_captures(&pod);
    let mut reader = Reader::at(pod.page, "");
    for bug in BUGS {
        let until = Instant::now() + SHOWN;
        loop {
            let part = part(&mut reader, bug);
            if part.is_some_and(|part| part >= bug.3) {
                break;
            }
            assert!(
                Instant::now() < until,
                "{bug:?}: {part:?}, {}",
                reader.ask("JSON.stringify(profilerPage.table())")
            );
            std::thread::sleep(Duration::from_millis(500));
        }
    }
    by_state(&mut reader);
    reader.leave();
}

/// Check that the page of a kind that the program has off says so, with what turns it on, instead of having its reader wait.
#[test]
fn what_a_program_has_off_is_said() {
    if !Pod::is_possible() {
        println!("NOT RUN: the sidecar reads other processes, which needs root");
        return;
    }
    // The other program has heap profiles.
    let (pod, pid) = Pod::start_beside(&[("GODEBUG", "memprofilerate=0")]).unwrap();
    until_it_captures(&pod);
    let mut reader = Reader::at(pod.page, "");
    for (kind, why) in [("inuse_space", "runtime.MemProfileRate is 0"), ("goroutine", "")] {
        reader.open(&format!("?type={kind}&pid={pid}"));
        reader.wait(&format!("profilerPage.state().shows === '{kind}'"));
        reader.wait(&format!("document.querySelector('#empty').hidden === {}", why.is_empty()));
        assert!(reader.text("#empty").contains(why), "{kind}: {}", reader.text("#empty"));
    }
    reader.leave();
}

/// Check that goroutines can be told by their state: those that send to a channel are the ones that leak, and the first of all is none of them.
fn by_state(reader: &mut Reader) {
    let is_there = |reader: &mut Reader, name: &str| {
        reader.ask(&format!("profilerPage.table().some((row) => row.name === '{name}' && row.total > 0)")) == true
    };
    for (query, has_main) in [("", true), ("&tag=go.goroutine.state=chan%20send", false)] {
        reader.open(&format!("?type=goroutine{query}"));
        reader.wait("profilerPage.state().shows === 'goroutine' && profilerPage.state().samples > 0");
        assert!(reader.text("#tags").contains("go.goroutine.state"), "{}", reader.text("#tags"));
        let found = ["main.send", "main.main"].map(|name| is_there(reader, name));
        assert_eq!(found, [true, has_main], "{query}: {}", reader.ask("JSON.stringify(profilerPage.table())"));
    }
}
