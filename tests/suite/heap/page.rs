//! The heap on the page, in a browser, of a program that leaks under a tag: the two clicks that find it.
//!
//! In: the scenario `leak`, which says what it really has. Out: what the page shows, within five standard errors of that.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use profiler_tests::browser::Browser;
use profiler_tests::fetch;
use profiler_tests::statistics::STANDARD_ERRORS;
use profiler_tests::tally::is_named;
use serde_json::Value;

use super::heap;
use crate::scenario::{LIMIT, number, start, turn};

/// Milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Waits until there are `states` more states than now.
#[track_caller]
fn wait_for_states(address: SocketAddr, states: usize) {
    let (mut last, end) = (now(), Instant::now() + LIMIT);
    for _ in 0..states {
        last = loop {
            let answer = fetch::json(address, "/api/profile?type=inuse_space").unwrap();
            match answer["heap"]["at"].as_u64() {
                Some(at) if at > last => break at,
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
            assert!(Instant::now() < end, "no state has come for so long");
        };
    }
}

/// The total of a function in the table of the page, over all copies of it.
fn total(browser: &mut Browser, name: &str) -> f64 {
    let rows = browser.evaluate("profilerPage.table().map(({ name, total }) => [name, total])").unwrap();
    let own = rows.as_array().unwrap().iter().filter(|row| is_named(row[0].as_str().unwrap(), name));
    own.map(|row| row[1].as_f64().unwrap()).sum()
}

#[track_caller]
fn assert_near(said: f64, truth: &Value, what: &str) {
    let (bytes, error) = (truth["bytes"].as_f64().unwrap(), truth["error"].as_f64().unwrap());
    // A sample is rounded to whole bytes.
    assert!((said - bytes).abs() <= STANDARD_ERRORS * error + 1e-3 * bytes, "{what}: {said}, not {truth}");
}

/// Check that a leak is found with two clicks, Heap in use and Growth: the branch of the function that leaks is the tallest, its tag
/// stands first, its bytes are right, and so is what was given back; that what is in use is right over many states, and not their sum.
#[test]
fn a_leak_is_found_with_two_clicks() {
    let _turn = turn();
    let mut child = start(&mut heap("leak", &["lg=12"]));
    let before = child.json().unwrap();
    let address: SocketAddr = before["serve"].as_str().unwrap().parse().unwrap();
    // A state has the time at which all of it was read: the first one behind `began` may have been read in part before it.
    wait_for_states(address, 1);
    let began = now();
    wait_for_states(address, 1);
    child.say("leak").unwrap();
    let leaked = &child.json().unwrap()["open_session"];
    wait_for_states(address, 4);
    let mut browser = Browser::start(1600, 900).unwrap();
    browser.open(&format!("http://{address}/?view=both&from={}.{:03}", began / 1000, began % 1000)).unwrap();
    browser.wait_until("document.querySelector('#types button')").unwrap();

    browser.click_on("#types [data-key=inuse]").unwrap();
    browser.wait_until("profilerPage.state().shows === 'inuse_space' && profilerPage.state().samples > 0").unwrap();
    for (name, truth) in [("fill_cache", &before["fill_cache"]), ("open_session", leaked)] {
        assert_near(total(&mut browser, name), truth, name);
    }
    assert_eq!(total(&mut browser, "build_report"), 0.0);

    browser.click_on("#growth").unwrap();
    browser.wait_until("profilerPage.state().grown").unwrap();
    assert_near(total(&mut browser, "open_session"), leaked, "growth of open_session");
    assert_eq!((total(&mut browser, "fill_cache"), total(&mut browser, "build_report")), (0.0, 0.0));
    // The rest is the vector that holds the blocks.
    let all = browser.evaluate("profilerPage.state().samples").unwrap().as_f64().unwrap();
    assert!(total(&mut browser, "open_session") > 0.95 * all, "{all}");
    let widths = "(() => { const name = profilerPage.table().find((row) => row.name.includes('open_session')).name; \
        return [profilerPage.boxAt(name).width, document.querySelector('canvas').clientWidth]; })()";
    let widths = browser.evaluate(widths).unwrap();
    assert!(widths[0].as_f64().unwrap() > 0.95 * widths[1].as_f64().unwrap(), "{widths}");
    let tags = "[...document.querySelectorAll('#tags [aria-label=tenant] button')].map((b) => b.dataset.key)";
    assert_eq!(browser.evaluate(tags).unwrap(), serde_json::json!(["tenant=umbrella", "tenant=acme"]));
    let answer = fetch::json(address, &format!("/api/profile?type=inuse_space&growth&from={}", began as f64 / 1000.0));
    assert_near(answer.unwrap()["growth"]["shrank"].as_f64().unwrap(), &before["build_report"], "shrank");
    assert_eq!(browser.complaints().unwrap(), Vec::<String>::new());
    child.say("enough").unwrap();
    assert!(number(&child.finish().unwrap().json().unwrap(), "/sampled") > 1000);
}
