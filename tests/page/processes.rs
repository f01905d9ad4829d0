//! Several processes on one page, as the sidecar shows them: all of them, one, a trace across them; and what only Go's runtime keeps.

use serde_json::json;

use crate::reader::Reader;
use crate::site::{Row, SHOP, Site};

/// 500 samples of the service that the shop calls, 200 of them for the trace.
const INVENTORY: &[Row] = &[
    ("main.main;main.serve;main.reserve", 200, &[]),
    ("main.main;main.serve;runtime.mallocgc", 250, &[]),
    ("runtime.gcBgMarkWorker", 50, &[]),
];
/// Goroutines at first, and when some hang.
const EARLY: &[Row] = &[("main.main;main.serve;runtime.gopark", 10, &[])];
const LATE: &[Row] =
    &[("main.main;main.serve;runtime.gopark", 11, &[]), ("main.main;main.audit;runtime.gopark", 40, &[])];

/// The shop of Rust and the inventory of Go.
fn pod() -> Site {
    let site = Site::empty();
    site.add_process("shop", 4711, "rust", SHOP);
    site.add_process("inventory", 4712, "go", INVENTORY);
    site
}

/// Chooses the process whose words hold `text`.
fn choose(reader: &mut Reader, text: &str) {
    reader.ask(&format!(
        "(() => {{ const list = document.querySelector('#process'); list.value = [...list.options].find((o) => o.text.includes('{text}')).value; list.dispatchEvent(new Event('change')); }})()"
    ));
}

/// Check that all processes stand below the root, coloured and named as such but no functions, and that one can be chosen, by the
/// address too.
#[test]
fn one_process_is_chosen_of_all() {
    let site = pod();
    let mut reader = Reader::at(site.address, "?view=both");
    assert_eq!(reader.state("samples"), 1500);
    let ([shop, .., shop_width, _], [inventory, .., inventory_width, _]) =
        (reader.box_of("shop"), reader.box_of("inventory"));
    assert!(shop < inventory && (shop_width / inventory_width - 2.0).abs() < 0.1, "{shop_width} {inventory_width}");
    let options = reader.ask("[...document.querySelector('#process').options].map((o) => o.text)");
    assert_eq!(options, json!(["All 2 processes", "shop · pid 4711 · rust", "inventory · pid 4712 · go"]));
    assert_eq!(reader.ask("profilerPage.table().some(({ name }) => name === 'inventory')"), false);
    assert!(reader.text("#legend").contains("processes"));
    choose(&mut reader, "inventory");
    reader.wait("profilerPage.state().samples === 500");
    assert_eq!(reader.query(), "?service=inventory&pid=4712&view=both");
    assert!(
        reader.text("#d-name").contains("all")
            && reader.ask("document.title").as_str().unwrap().starts_with("inventory")
    );
    assert_eq!(reader.ask("profilerPage.boxAt('shop::orders::price')"), json!(null));
    reader.box_of("main.reserve");
    reader.browser.reload().unwrap();
    reader.wait("profilerPage.state().answers > 0");
    assert_eq!(
        (reader.state("samples"), reader.ask("document.querySelector('#process').selectedOptions[0].text")),
        (json!(500), json!("inventory · pid 4712 · go"))
    );
    choose(&mut reader, "All");
    reader.wait("profilerPage.state().samples === 1500");
    assert_eq!(reader.query(), "?view=both");
    reader.leave();
}

/// Check that two processes of one service stand below the root by their pids, and that the service can be chosen.
#[test]
fn processes_of_one_service_are_told_by_pid() {
    let site = pod();
    site.add_process("inventory", 4713, "go", INVENTORY);
    let mut reader = Reader::at(site.address, "?service=inventory");
    assert_eq!(reader.state("samples"), 1000);
    reader.box_of("pid 4712");
    reader.box_of("pid 4713");
    assert_eq!(reader.ask("document.querySelector('#process').selectedOptions[0].text"), "inventory · all");
    reader.leave();
}

/// Check that a trace is chosen in two clicks, and shows what both processes did for it.
#[test]
fn a_trace_shows_both_processes() {
    let site = pod();
    let mut reader = Reader::at(site.address, "?view=graph");
    assert!(!reader.text("#tags").contains("trace_id"), "traces have a list of their own");
    reader.browser.click_on("#trace summary").unwrap();
    let trace = "ab".repeat(16);
    assert_eq!(reader.text("#trace .panel button"), format!("{trace} 40.0 %"));
    reader.browser.click_on("#trace .panel button").unwrap();
    reader.wait("profilerPage.state().samples === 600");
    assert_eq!(reader.query(), format!("?view=graph&tag=trace_id={trace}"));
    for name in ["shop", "shop::orders::price", "inventory", "main.reserve"] {
        reader.box_of(name);
    }
    assert_eq!(reader.ask("profilerPage.boxAt('runtime.mallocgc')"), json!(null));
    assert_eq!(reader.text("#trace summary"), "Trace abababab…");
    choose(&mut reader, "inventory");
    reader.wait("profilerPage.state().samples === 200");
    reader.leave();
}

/// Check that goroutines are a choice where there are some, counted exactly, and that those that hang are found by their growth.
#[test]
fn hanging_goroutines_are_found_by_their_growth() {
    let site = pod();
    site.add_goroutines("inventory", 4712, 60, EARLY);
    site.add_goroutines("inventory", 4712, 0, LATE);
    site.says(|stats| stats.from_outside = true);
    let mut reader = Reader::at(site.address, "?view=both");
    reader.browser.click_on("#types [data-key=goroutine]").unwrap();
    reader.wait("profilerPage.state().shows === 'goroutine'");
    assert_eq!((reader.state("samples"), reader.query()), (json!(51), "?type=goroutine&view=both".to_owned()));
    assert!(reader.text("#tiles").contains("Goroutines51"), "{}", reader.text("#tiles"));
    reader.browser.click_on("#growth").unwrap();
    reader.wait("profilerPage.state().grown");
    let rows = reader.ask("profilerPage.table().filter(({ total }) => total).map(({ name, total }) => [name, total])");
    assert_eq!(reader.state("samples"), 41);
    assert!(rows.as_array().unwrap().contains(&json!(["main.audit", 40])), "{rows}");
    reader.leave();
}
