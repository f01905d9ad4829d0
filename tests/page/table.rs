//! The table: the graph's figures as text, sorted, walked, and told to a screen reader.

use profiler_tests::browser::Browser;
use serde_json::json;

use crate::reader::Reader;
use crate::site::{SHOP, Site};

/// Check that rows carry self, total, share, error and count, and that recursion is counted once.
#[test]
fn a_row_has_all_figures() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    let cells = |reader: &mut Reader, row: usize| {
        let row =
            format!("[...document.querySelectorAll('tbody tr[aria-rowindex]')[{row}].cells].map((c) => c.textContent)");
        reader.ask(&row)
    };
    assert_eq!(
        cells(&mut reader, 0),
        json!(["shop::orders::price", "4.00 s", "40.0 % ± 1.5", "4.00 s", "40.0 % ± 1.5", "400"])
    );
    let walk = reader.ask("profilerPage.table().find(({ name }) => name === 'shop::report::walk')");
    assert_eq!((&walk["self"], &walk["total"]), (&json!(100), &json!(100)));
    assert_eq!(walk["ofTotal"], json!({ "percent": 10, "error": 0.9 }));
    let few = reader.ask("document.querySelector('tr.few td').textContent");
    assert_eq!(few, "tokio::runtime::park");
    reader.leave();
}

/// Check that beside the graph names have room on a small screen: what gives way is the count of samples, then the standard errors, which are told on pointing.
#[test]
fn names_have_room_beside_the_graph() {
    let site = Site::with(SHOP);
    for (width, shown) in [(1920, [true, true]), (1366, [true, false]), (1280, [false, false])] {
        let mut reader = Reader::with(Browser::start(width, 768).unwrap(), site.address, "");
        let row = "document.querySelector('tbody tr[aria-rowindex]')";
        let is_seen =
            |what: &str| format!("document.querySelector('tbody tr[aria-rowindex] {what}').checkVisibility()");
        let seen = ["small", "td:nth-child(6)"].map(|what| reader.ask(&is_seen(what)));
        assert_eq!(seen, shown.map(|shown| json!(shown)), "{width}");
        let name = reader.ask(&format!("{row}.cells[0].clientWidth")).as_f64().unwrap();
        assert!(name >= 180.0, "{name} pixels of {width}");
        assert_eq!(reader.ask(&format!("{row}.cells[2].title")), "40.0 % ± 1.5");
        reader.leave();
    }
}

/// Check that each column sorts, that a second click turns the order, and that it is said and kept.
#[test]
fn columns_sort() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    let first = "profilerPage.table()[0].name";
    reader.browser.click_on("th [data-key=total]").unwrap();
    assert_eq!((reader.ask(first), reader.query()), (json!("std::start"), "?sort=-total".into()));
    reader.browser.click_on("th [data-key=name]").unwrap();
    assert_eq!(reader.ask(first), "core::slice::sort");
    assert_eq!(reader.ask("document.querySelector('[aria-sort=ascending]').textContent"), "Function");
    reader.browser.click_on("th [data-key=name]").unwrap();
    assert_eq!((reader.ask(first), reader.query()), (json!("tokio::runtime::run"), "?sort=-name".into()));
    reader.leave();
}

/// Check that the keyboard walks the rows, that Enter zooms to the function, and that the table follows the zoom.
#[test]
fn the_keyboard_walks_the_rows() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "?view=both");
    reader.ask("document.querySelector('table').focus()");
    reader.press(&["ArrowDown", "ArrowDown"]);
    assert_eq!(reader.text("[aria-selected=true] td"), "shop::search::score");
    assert_eq!(
        reader.ask("document.querySelector('table').getAttribute('aria-activedescendant')"),
        reader.ask("document.querySelector('[aria-selected=true]').id")
    );
    assert_eq!(
        (reader.text("#d-name"), reader.state("lit")),
        ("shop::search::score".into(), json!("shop::search::score"))
    );
    reader.press(&["End"]);
    assert_eq!(reader.state("lit"), reader.ask("profilerPage.table().at(-1).name"));
    reader.press(&["Home", "Enter"]);
    assert_eq!(reader.ask("profilerPage.state().zoom.at(-1)"), "shop::orders::price");
    assert_eq!(reader.ask("profilerPage.table().map(({ name }) => name)"), json!(["shop::orders::price"]));
    reader.leave();
}

/// Check that every control has a name and every row a place, and that the keys 1 to 3 choose the view.
#[test]
fn the_page_can_be_read_without_eyes() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    let nameless = "[...document.querySelectorAll('button, input, summary, a, [role]')].filter((e) => !e.closest('[hidden]') \
        && !(e.textContent.trim() || e.ariaLabel || e.labels?.length || e.role === 'status')).map((e) => e.outerHTML)";
    assert_eq!(reader.ask(nameless), json!([]));
    assert_eq!(reader.ask("document.querySelector('[role=grid]').getAttribute('aria-rowcount')"), "14");
    reader.press(&["2"]);
    assert_eq!((reader.state("shown"), reader.query()), (json!("table"), "?view=table".into()));
    assert_eq!(reader.ask("document.querySelector('#graph').checkVisibility()"), false);
    reader.press(&["3"]);
    assert_eq!(reader.state("shown"), "both");
    reader.press(&["?"]);
    assert!(reader.text("#keys").contains("collapse recursion"));
    reader.press(&["Escape"]);
    assert_eq!(reader.ask("document.querySelector('dialog').open"), false);
    reader.leave();
}
