//! What the page says of the profile's own worth: loss, roughness, absence.

use profiler::StatsSection;
use profiler::proto::loss::{Cause, Flaw, Loss};
use serde_json::json;

use crate::reader::Reader;
use crate::site::{SHOP, Site};

/// Check that loss is shown by cause, amber from 1 % and red from 5 %, and that shares are not rescaled for it.
#[test]
fn loss_is_shown_by_cause() {
    let site = Site::with(SHOP);
    site.says(|stats| {
        let mut lost = Loss::default();
        lost.add(Cause::RingFull, 15);
        lost.add(Cause::QueueFull, 5);
        stats.account.enter(1000, 980, &lost);
        stats.account.exported(970);
        stats.degraded.add(Flaw::Truncated, 60);
        stats.engine.refused = vec![("perf".into(), "perf_event_paranoid is 3".into())];
        stats.engine.threads = vec![("timer".into(), 3), ("process_timer".into(), 0)];
        stats.engine.notes = vec!["threads are found once they use CPU".into()];
    });
    let mut reader = Reader::at(site.address, "");
    assert_eq!(reader.text("#figures .amber"), "Lost20 2.0 %");
    assert_eq!(reader.text("#figures .red"), "Truncated60 6.0 %");
    assert_eq!(reader.text("#verdict"), "Incomplete");
    let ledger = reader.text("#ledger");
    assert!(ledger.contains("1,000 taken = 970 exported + 10 pending + 20 lost"), "{ledger}");
    assert!(ledger.contains("ring full15 · 1.5 %") && ledger.contains("queue full5 · 0.5 %"), "{ledger}");
    assert!(ledger.contains("timer3 threads") && ledger.contains("process_timerall other threads"), "{ledger}");
    assert!(ledger.contains("perfrefused: perf_event_paranoid is 3"), "{ledger}");
    assert!(ledger.contains("notethreads are found once they use CPU"), "{ledger}");
    assert_eq!(reader.ask("profilerPage.table()[0].ofSelf.percent"), 40);
    reader.leave();
}

/// Check that absent line tables are said, with the remedy, and too few samples.
#[test]
fn what_is_missing_is_said_with_the_remedy() {
    let site = Site::with(&SHOP[3..4]);
    site.says(|stats| stats.symbols.lines = Some(false));
    let mut reader = Reader::at(site.address, "");
    assert_eq!(reader.text("#notices code"), "debug = \"line-tables-only\"");
    assert!(reader.text("#notices .amber").starts_with("Only 50 samples: a share of 50 % is known to ± 7.1 at best."));
    reader.leave();
}

/// Check that an empty page says why it is empty: nothing yet, sampling off, no engine, no process of those there are, tags that nobody has.
#[test]
fn an_empty_page_says_why() {
    let site = Site::empty();
    let mut reader = Reader::at(site.address, "");
    assert_eq!(reader.text("#empty h2"), "No samples yet");
    site.says(|stats| stats.sampling = false);
    reader.wait("document.querySelector('#empty h2').textContent === 'Sampling is off'");
    site.says(|stats| {
        stats.engine.name = String::new();
        stats.engine.refused = vec![("timer".into(), "timer_create: EAGAIN".into())];
    });
    reader.wait("document.querySelector('#empty h2').textContent === 'No engine could be started'");
    assert_eq!(reader.text("#empty p"), "timer: timer_create: EAGAIN");
    site.says(|stats| {
        (stats.sampling, stats.engine.name) = (true, "ebpf".into());
        stats.sections = vec![StatsSection::new("processes").with("known", 7).with("profiled", 0)];
    });
    // One whose profiles were received is there to be looked at.
    reader.wait("document.querySelector('#empty h2').textContent === 'No samples yet'");
    site.forgets("shop", 4711);
    reader.wait("document.querySelector('#empty h2').textContent === 'No process is profiled'");
    assert!(reader.text("#empty p").starts_with("Of 7 processes none is: see profiler-sidecar doctor"));
    site.says(|stats| (stats.sections, stats.engine.name) = (Vec::new(), "timer".into()));
    site.add(SHOP);
    reader.wait("profilerPage.state().samples === 1000");
    reader.open("?tag=endpoint%3D/nowhere");
    assert_eq!(reader.text("#empty h2"), "No sample has these tags");
    assert_eq!(reader.ask("document.querySelector(\"[data-key='endpoint=/nowhere']\").ariaPressed"), json!("true"));
    reader.leave();
}

/// Check that a bad parameter shows the server's reason, and that a server that is gone is said and found again.
#[test]
fn a_refusal_shows_its_reason() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    reader.ask("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))");
    reader.wait("document.querySelector('#live').textContent === 'No answer'");
    assert!(
        reader
            .text("#notices .red")
            .starts_with("The service does not answer. Trying again; what is shown came before.")
    );
    assert_eq!(reader.state("samples"), 1000);
    reader.leave();
}
