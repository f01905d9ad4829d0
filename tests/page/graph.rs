//! The flame graph: what is drawn where, pointing, zooming, searching, hiding.

use serde_json::json;

use crate::reader::Reader;
use crate::site::{SHOP, Site, Tags};

/// Check that the hot handler has the share of the width that it has of the samples, and that pointing at it says so.
#[test]
fn the_hot_handler_is_as_wide_as_it_is_hot() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    let [_, _, all, _] = reader.box_of("std::start");
    let [x, y, width, _] = reader.box_of("shop::orders::price");
    assert!((width / all - 0.4).abs() < 0.001, "{width} of {all}");
    reader.browser.hover(x + 10.0, y + 10.0).unwrap();
    assert_eq!(reader.text("#d-name"), "shop::orders::price");
    assert_eq!(reader.text("#d-total"), "4.00 s · 40.0 % ± 1.5 · 400 samples");
    assert_eq!(reader.text("#d-more"), "0.40 cores   self 4.00 s · 40.0 %");
    assert_eq!(reader.text("#d-place"), "shop (own code)   src/shop.rs:42");
    assert_eq!(reader.state("lit"), "shop::orders::price");
    reader.leave();
}

/// Check that a tag narrows the graph, that values of one key add up and keys narrow, and that it can be undone.
#[test]
fn a_tag_narrows_the_graph() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    reader.browser.click_on("[data-key='endpoint=/orders']").unwrap();
    reader.wait("profilerPage.state().samples === 500");
    assert_eq!(reader.ask("profilerPage.boxAt('shop::search::run')"), json!(null));
    assert_eq!(reader.query(), "?tag=endpoint=/orders");
    reader.browser.click_on("[data-key='endpoint=/search']").unwrap();
    reader.wait("profilerPage.state().samples === 800");
    reader.browser.click_on("[data-key='method=GET']").unwrap();
    reader.wait("profilerPage.state().samples === 300");
    assert_eq!(reader.ask("profilerPage.boxAt('shop::orders::price')"), json!(null));
    assert!(reader.text("#tiles").contains("300 of 1,000"));
    reader.browser.click_on("[data-key=none]").unwrap();
    reader.wait("profilerPage.state().samples === 1000");
    reader.leave();
}

/// Check that a click zooms to a box, that an ancestor zooms out, and that 0 shows all again.
#[test]
fn a_click_zooms() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    let [_, _, all, _] = reader.box_of("std::start");
    reader.click("shop::orders::create");
    assert_eq!(reader.state("zoom"), json!(["std::start", "tokio::runtime::run", "shop::orders::create"]));
    let [_, _, width, _] = reader.box_of("shop::orders::price");
    assert!((width / all - 0.8).abs() < 0.001, "{width} of {all}");
    let (x, y) = reader.middle_of("shop::orders::price");
    reader.browser.hover(x, y).unwrap();
    assert!(reader.text("#d-more").ends_with("80.0 % of the zoom"));
    assert!(reader.text("#d-total").contains("40.0 %"), "shares stay those of all samples");
    reader.browser.click(x, y - 40.0).unwrap();
    assert_eq!(reader.state("zoom"), json!(["std::start", "tokio::runtime::run"]));
    reader.press(&["0"]);
    assert_eq!(reader.state("zoom"), json!([]));
    reader.leave();
}

/// Check that matches are summed without overlap, filter the table, and are stepped through.
#[test]
fn a_search_sums_its_matches_without_overlap() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    reader.press(&["/"]);
    reader.browser.type_text("ORDERS|walk").unwrap();
    reader.wait("profilerPage.state().q === 'ORDERS|walk'");
    assert_eq!(reader.state("matched"), 600);
    assert_eq!(reader.text("#found"), "2 places · 4 functions · 6.00 s · 60.0 % ± 1.5 · 600 samples");
    assert_eq!(reader.ask("profilerPage.table().length"), 4);
    reader.press(&["Enter"]);
    assert_eq!(reader.text("#d-name"), "shop::orders::create");
    reader.press(&["Enter"]);
    assert_eq!(reader.text("#d-name"), "shop::report::walk");
    assert!(reader.text("#found").starts_with("2 of 2 places"));
    reader.browser.click_on("#case").unwrap();
    assert_eq!(reader.state("matched"), 100);
    reader.open("?q=(");
    assert!(reader.text("#notices").contains("Invalid regular expression"));
    reader.press(&["Escape"]);
    assert_eq!((reader.state("q"), reader.text("#notices")), (json!(""), String::new()));
    reader.leave();
}

/// Check that a hidden function gives its value to its caller, that its branches are joined, and the way back.
#[test]
fn a_hidden_function_gives_its_value_to_its_caller() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    let (x, y) = reader.middle_of("shop::orders::price");
    reader.browser.right_click(x, y).unwrap();
    assert_eq!(reader.text("#menu b"), "orders::price");
    reader.browser.click_on("#menu [data-key=Hide]").unwrap();
    let own = "profilerPage.table().find(({ name }) => name === 'shop::orders::create').self";
    assert_eq!(reader.ask(own), 400);
    assert_eq!(reader.ask("profilerPage.boxAt('shop::orders::price')"), json!(null));
    assert_eq!(reader.query(), "?h=shop::orders::price");
    reader.browser.click_on("#legend [data-key='shop::orders::price']").unwrap();
    assert_eq!(reader.ask(own), 0);
    reader.browser.click_on("#legend [data-key='@std']").unwrap();
    assert_eq!(reader.ask("profilerPage.table().filter(({ name }) => /^(std|core)::/.test(name)).length"), 0);
    assert_eq!(reader.ask(own.replace("create", "sort").as_str()), 100);
    assert_eq!(reader.state("samples"), 1000);
    reader.leave();
}

/// Check that the samples of one function alone can be shown, with what it calls and with who calls it, that calls of itself count once, that
/// reload and Back keep that, and the way back.
#[test]
fn one_function_is_shown_alone() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "?view=both&h=std::start");
    let (x, y) = reader.middle_of("shop::report::walk");
    reader.browser.right_click(x, y).unwrap();
    reader.browser.click_on("#menu [data-key=Callers]").unwrap();
    let ([_, function, width, _], [_, caller, above, _]) =
        (reader.box_of("shop::report::walk"), reader.box_of("shop::report::build"));
    assert!(function < caller && (width - above).abs() < 1.0 && width > 300.0, "callers stand below, as wide");
    assert_eq!(reader.text("#path"), "callers of report::walk");
    // One row: what is below it, as for its calls; its own calls of itself are one.
    let rows = reader.ask("profilerPage.table().map(({ name, self, total }) => [name, self, total])");
    assert_eq!(rows, json!([["shop::report::walk", 100, 100]]));
    assert_eq!(reader.query(), "?view=both&f=shop::report::walk&callers=1&h=std::start");
    reader.browser.reload().unwrap();
    reader.wait("profilerPage.state().answers > 0");
    reader.box_of("shop::report::build");
    reader.open("?f=shop::orders::create");
    let [create, price] = ["shop::orders::create", "shop::orders::price"].map(|name| reader.box_of(name)[2]);
    assert!((price / create - 0.8).abs() < 0.02, "{price} of {create}");
    assert_eq!(reader.ask("profilerPage.boxAt('shop::search::run')"), json!(null));
    reader.browser.click_on("#unfocus").unwrap();
    reader.box_of("shop::search::run");
    reader.browser.back().unwrap();
    reader.wait("!profilerPage.boxAt('shop::search::run')");
    reader.open("?f=shop::nothing");
    assert!(reader.text("#notices").contains("all is shown"), "{}", reader.text("#notices"));
    reader.box_of("shop::search::run");
    reader.leave();
}

/// Check that the arrow keys walk over the boxes, Enter zooms, and that the graph can stand on its root.
#[test]
fn the_keyboard_walks_and_turns_the_graph() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    reader.press(&["ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"]);
    assert_eq!(reader.text("#d-name"), "shop::search::run");
    assert!(reader.text("#say").starts_with("shop::search::run: 3.00 s · 30.0 %"));
    reader.press(&["ArrowLeft", "ArrowUp", "Enter"]);
    assert_eq!(reader.state("zoom"), json!(["std::start", "tokio::runtime::run"]));
    let [_, root_above, ..] = reader.box_of("shop::orders::create");
    reader.press(&["i"]);
    let [_, root_below, ..] = reader.box_of("shop::orders::create");
    let [_, leaf, ..] = reader.box_of("shop::orders::price");
    assert!(root_below > root_above + 100.0 && leaf < root_below, "{root_above} {root_below} {leaf}");
    reader.press(&["r"]);
    let nodes = "profilerPage.state().nodes";
    assert_eq!(reader.ask(nodes), 14);
    reader.press(&["r"]);
    assert_eq!(reader.ask(nodes), 15);
    reader.leave();
}

/// Check that what a profile calls its functions stays text: no markup, no script, no reversed reading.
#[test]
fn names_stay_text() {
    let hostile = [
        "<img src=x onerror=\"window.broken = 1\">".to_owned(),
        "</script><script>window.broken = 2</script>".to_owned(),
        "\u{202e}\u{0}[31m\u{2028}'\"&amp;".to_owned(),
        "x".repeat(5000),
    ];
    let site = Site::empty();
    let tags: Tags = &[("<b>key", "<i onclick=broken=3>")];
    site.add_stacks(hostile.iter().map(|name| (vec!["main".into(), name.clone()], 100, tags)).collect());
    let mut reader = Reader::at(site.address, "");
    reader.press(&["ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "Enter"]);
    assert_eq!(reader.ask("document.querySelectorAll('main img, main script, header b, header i[onclick]').length"), 0);
    assert_eq!(reader.ask("typeof window.broken"), "undefined");
    assert_eq!(reader.ask("profilerPage.table().some(({ name }) => name.startsWith('<img'))"), true);
    assert_eq!(
        reader.ask("/\\p{Cc}|\\p{Cf}|\\p{Zl}/u.test(profilerPage.table().map(({ name }) => name).join(''))"),
        false
    );
    reader.leave();
}
