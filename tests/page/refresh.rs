//! The live refresh: new profiles come, the reader's place stays.

use serde_json::json;

use crate::reader::Reader;
use crate::site::{SHOP, Site};

/// Check that a refresh brings new samples and keeps zoom, search, sorting, scroll and selection.
#[test]
fn a_refresh_keeps_the_readers_place() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "?q=price&sort=-total");
    reader.click("shop::orders::create");
    reader.press(&["ArrowDown", "ArrowDown"]);
    assert_eq!(reader.text("#d-name"), "shop::orders::price");
    site.add(SHOP);
    reader.wait("profilerPage.state().samples === 2000");
    assert_eq!(reader.ask("profilerPage.state().zoom.at(-1)"), "shop::orders::create");
    assert_eq!((reader.state("matched"), reader.state("sort")), (json!(800), json!("-total")));
    reader.press(&["ArrowUp"]);
    assert_eq!(reader.text("#d-name"), "shop::orders::create");
    assert_eq!(reader.text("#d-total"), "10.0 s · 50.0 % ± 1.1 · 1,000 samples");
    reader.leave();
}

/// Check that a function chosen in the table stays chosen and lit, though each answer numbers its names anew.
#[test]
fn a_refresh_keeps_the_chosen_function() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "?view=both");
    reader.ask("document.querySelector('table').focus()");
    reader.press(&["ArrowDown", "ArrowDown"]);
    assert_eq!(reader.state("lit"), "shop::search::score");
    site.add(&[("std::start;tokio::runtime::run;aaa::first;bbb::second;shop::search::score", 2000, &[])]);
    reader.wait("profilerPage.state().samples === 3000");
    assert_eq!(
        (reader.text("[aria-selected=true] td"), reader.state("lit")),
        ("shop::search::score".into(), json!("shop::search::score"))
    );
    reader.leave();
}

/// Check that a zoom whose place has gone shows the nearest ancestor, says so, and comes back with it.
#[test]
fn a_zoom_that_is_gone_shows_the_nearest_ancestor() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "?p=shop::orders::price");
    reader.browser.click_on("[data-key='endpoint=/search']").unwrap();
    reader.wait("profilerPage.state().samples === 300");
    assert_eq!(
        (reader.state("found"), reader.state("zoom")),
        (json!(false), json!(["std::start", "tokio::runtime::run"]))
    );
    assert!(reader.text("#notices").contains("“orders::price” is not in the profile now"));
    reader.browser.click_on("[data-key='endpoint=/search']").unwrap();
    reader.wait("profilerPage.state().samples === 1000");
    assert_eq!(reader.ask("profilerPage.state().zoom.at(-1)"), "shop::orders::price");
    assert_eq!(reader.text("#notices"), "");
    reader.leave();
}

/// Check that a refresh that is under way when the reader pauses brings nothing any more.
#[test]
fn a_pause_drops_the_refresh_under_way() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    site.add(SHOP);
    let held = "const real = window.fetch; window.fetch = async (...asked) => { const answer = await real(...asked); \
        await new Promise((release) => { window.release = release; }); return answer; };";
    reader.ask(held);
    reader.wait("window.release");
    reader.press(&[" "]);
    reader.ask("new Promise((done) => { window.release(); setTimeout(done, 500); })");
    assert_eq!((reader.state("samples"), reader.text("#live")), (json!(1000), "Paused".into()));
    reader.leave();
}

/// Check that the space bar stops the refresh and starts it again.
#[test]
fn the_space_bar_pauses() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    reader.press(&[" "]);
    assert_eq!((reader.text("#live"), reader.state("paused")), ("Paused".into(), json!(true)));
    let answers = reader.state("answers");
    site.add(SHOP);
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert_eq!((reader.state("answers"), reader.state("samples")), (answers, json!(1000)));
    reader.press(&[" "]);
    reader.wait("profilerPage.state().samples === 2000");
    reader.leave();
}
