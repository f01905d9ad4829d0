//! The heap on the page: what is in use, what was allocated, what grew; in bytes and in objects.

use profiler_tests::browser::Browser;
use serde_json::json;

use crate::reader::Reader;
use crate::site::{Row, SHOP, Site};

const MIB: i64 = 1 << 20;

/// What of the shop's memory is in use at first.
const EARLY: &[Row] = &[
    ("std::start;shop::cache::fill", 64 * MIB, &[("tenant", "all")]),
    ("std::start;shop::session::open;alloc::vec::grow", 10 * MIB, &[("tenant", "umbrella")]),
    ("std::start;shop::report::build", 30 * MIB, &[("tenant", "globex")]),
];
/// And then: the sessions of one tenant have grown, the report's memory has shrunk.
const LATE: &[Row] = &[
    ("std::start;shop::cache::fill", 64 * MIB, &[("tenant", "all")]),
    ("std::start;shop::session::open;alloc::vec::grow", 50 * MIB, &[("tenant", "umbrella")]),
    ("std::start;shop::session::open;alloc::vec::grow", 2 * MIB, &[("tenant", "initech")]),
    ("std::start;shop::report::build", 12 * MIB, &[("tenant", "globex")]),
];

/// CPU profiles, and three states of the heap.
fn leaky() -> Site {
    let site = Site::with(SHOP);
    site.add_heap(20, EARLY);
    site.add_heap(10, EARLY);
    site.add_heap(0, LATE);
    site
}

/// The texts of the buttons in a group.
fn buttons(reader: &mut Reader, selector: &str) -> Vec<String> {
    let texts = format!("[...document.querySelectorAll('{selector} button')].map((b) => b.textContent)");
    reader.ask(&texts).as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// The cells of the table's first row that are seen.
fn first_row(reader: &mut Reader) -> Vec<String> {
    let cells = "[...document.querySelector('tbody tr[aria-rowindex]').cells].filter((c) => c.checkVisibility()).map((c) => c.textContent)";
    reader.ask(cells).as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Check that there is nothing to choose where there is no heap profile, and that there is as soon as there is one.
#[test]
fn the_heap_can_be_chosen_where_there_is_one() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    assert_eq!((buttons(&mut reader, "#types"), buttons(&mut reader, "#units")), (vec![], vec![]));
    assert_eq!(reader.ask("document.querySelector('#growth').checkVisibility()"), false);
    reader.press(&["t", "b", "g"]);
    assert_eq!((reader.query(), reader.state("shows")), (String::new(), json!("cpu")));
    site.add_heap(0, LATE);
    reader.wait("document.querySelectorAll('#types button').length === 3");
    assert_eq!(buttons(&mut reader, "#types"), ["CPU", "Heap in use", "Allocated"]);
    assert_eq!(reader.text("#types [aria-pressed=true]"), "CPU");
    reader.leave();
}

/// Check that memory in use is that of the newest state, in bytes with their units, beside what the allocator says; that objects are
/// counts; and that what was allocated is a sum, with a rate.
#[test]
fn memory_has_its_units() {
    let mut reader = Reader::at(leaky().address, "?view=both");
    reader.browser.click_on("#types [data-key=inuse]").unwrap();
    reader.wait("profilerPage.state().shows === 'inuse_space'");
    assert_eq!(reader.query(), "?type=inuse_space&view=both");
    assert_eq!(reader.state("samples"), 128 * MIB);
    let tiles = reader.text("#tiles");
    assert!(tiles.contains("Heap in use128 MiB ± 8.00 MiB") && tiles.contains("one in 512 KiB"), "{tiles}");
    assert!(tiles.contains("Sampled live heap128 MiB of allocated 200 MiB of resident 300 MiB"), "{tiles}");
    assert_eq!(first_row(&mut reader), ["shop::cache::fill", "64.0 MiB", "50.0 % ± 3.1", "64.0 MiB", "50.0 % ± 3.1"]);
    let (x, y) = reader.middle_of("shop::session::open");
    reader.browser.hover(x, y).unwrap();
    assert_eq!(reader.text("#d-total"), "52.0 MiB ± 5.10 MiB · 40.6 % ± 3.1");
    assert_eq!(reader.text("#d-more"), "self 0 B · 0.0 %");
    reader.browser.click_on("#units [data-key=Objects]").unwrap();
    reader.wait("profilerPage.state().shows === 'inuse_objects'");
    assert_eq!(first_row(&mut reader)[..2], ["shop::cache::fill", "65,536"]);
    assert_eq!(reader.text("#d-total"), "131,072 objects ± 8,188 · 100.0 % ± 0.0");
    reader.browser.click_on("#types [data-key=alloc]").unwrap();
    reader.wait("profilerPage.state().shows === 'alloc_objects'");
    reader.press(&["b"]);
    reader.wait("profilerPage.state().shows === 'alloc_space'");
    assert_eq!(reader.state("samples"), 2 * (104 + 104 + 128) * MIB);
    assert!(reader.text("#tiles").contains("Allocated672 MiB ± 18.3 MiB, 22.4 MiB/s"), "{}", reader.text("#tiles"));
    assert_eq!(reader.ask("document.querySelector('#growth').checkVisibility()"), false);
    reader.browser.resize(390, 800, 2.0).unwrap();
    reader.wait("document.querySelector('canvas').clientWidth < 390");
    assert_eq!(reader.ask("document.documentElement.scrollWidth <= 390"), true);
    reader.press(&["t"]);
    reader.wait("profilerPage.state().shows === 'cpu'");
    assert_eq!((reader.state("samples"), reader.query()), (json!(1000), "?view=both".into()));
    reader.leave();
}

/// Check that a leak is found with two clicks: its stack has the tallest branch, its tenant stands first; that what stayed is not shown
/// and what shrank is, as a sum; and that the address holds it all.
#[test]
fn a_leak_is_found_with_two_clicks() {
    let mut reader = Reader::at(leaky().address, "");
    reader.browser.click_on("#types [data-key=inuse]").unwrap();
    reader.browser.click_on("#growth").unwrap();
    reader.wait("profilerPage.state().grown");
    assert_eq!((reader.state("samples"), reader.query()), (json!(42 * MIB), "?type=inuse_space&growth=1".into()));
    let [_, _, all, _] = reader.box_of("std::start");
    let [_, _, leak, _] = reader.box_of("shop::session::open");
    assert!((leak / all - 1.0).abs() < 0.001, "{leak} of {all}");
    for gone in ["shop::cache::fill", "shop::report::build"] {
        assert_eq!(reader.ask(&format!("profilerPage.boxAt('{gone}')")), json!(null));
    }
    assert_eq!(buttons(&mut reader, "#tags [aria-label=tenant]"), ["umbrella 95.2 %", "initech 4.8 %"]);
    let tiles = reader.text("#tiles");
    assert!(tiles.contains("Grew42.0 MiB ± 10.8 MiB, 2.10 MiB/s") && tiles.contains("Shrank18.0 MiB"), "{tiles}");
    reader.browser.click_on("[data-key='tenant=umbrella']").unwrap();
    reader.wait("profilerPage.state().samples < 42 * 2 ** 20");
    assert_eq!(reader.state("samples"), 40 * MIB);
    reader.browser.reload().unwrap();
    reader.wait("profilerPage.state().answers > 0");
    assert_eq!((reader.state("samples"), reader.state("grown")), (json!(40 * MIB), json!(true)));
    assert_eq!(reader.ask("document.querySelector('#growth').ariaPressed"), "true");
    reader.browser.back().unwrap();
    reader.wait("profilerPage.state().samples === 42 * 2 ** 20");
    reader.press(&["g"]);
    reader.wait("profilerPage.state().samples === 128 * 2 ** 20");
    reader.leave();
}

/// Check that an empty heap says why: one state, nothing that grew, tags that nobody has, nothing yet, a process without a heap
/// profile; and that there is a way back.
#[test]
fn an_empty_heap_says_why() {
    let site = Site::with(SHOP);
    let mut reader = Reader::with(Browser::start(1600, 900).unwrap(), site.address, "");
    let title = |reader: &mut Reader, query: &str, expected: &str| {
        reader.open(query);
        assert_eq!(reader.text("#empty h2"), expected, "{query}");
    };
    site.says(|stats| (stats.heap.on, stats.heap.interval_bytes) = (true, 1 << 19));
    title(&mut reader, "?type=inuse_space", "No state of the heap yet");
    site.add_heap(10, EARLY);
    title(&mut reader, "?type=inuse_space&growth=1", "Growth needs two states");
    site.add_heap(0, EARLY);
    title(&mut reader, "?type=inuse_space&growth=1", "Nothing grew");
    title(&mut reader, "?type=inuse_space&tag=tenant%3Dnobody", "No sample has these tags");
    reader.leave();
    let bare = Site::with(SHOP);
    let mut browser = Browser::start(1600, 900).unwrap();
    browser.open(&format!("http://{}/?type=inuse_space", bare.address)).unwrap();
    browser
        .wait_until("document.querySelector('#notices').textContent.includes('there are no heap profiles')")
        .unwrap();
    browser.click_on("#types [data-key=cpu]").unwrap();
    browser.wait_until("profilerPage.state().samples === 1000").unwrap();
}
