//! The address is the view: links, reload and Back show the same.

use serde_json::json;

use crate::reader::Reader;
use crate::site::{SHOP, Site};

/// Check that a reload shows the same view, whole.
#[test]
fn a_reload_keeps_the_view() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    reader.browser.click_on("[data-key='-900']").unwrap();
    reader.browser.click_on("[data-key='endpoint=/report']").unwrap();
    reader.wait("profilerPage.state().samples === 195");
    reader.click("shop::report::build");
    reader.browser.click_on("th [data-key=samples]").unwrap();
    reader.press(&["/"]);
    reader.browser.type_text("walk").unwrap();
    reader.press(&["Escape", "/"]);
    reader.browser.type_text("flate").unwrap();
    let view = ["from", "tags", "zoom", "q", "sort", "root", "matched"];
    let before = view.map(|field| reader.state(field));
    assert_eq!(before[2], json!(["std::start", "tokio::runtime::run", "shop::report::build"]));
    assert_eq!((&before[0], &before[6]), (&json!("-900"), &json!(95)));
    reader.browser.reload().unwrap();
    reader.wait("profilerPage.state().answers > 0");
    assert_eq!(view.map(|field| reader.state(field)), before);
    reader.leave();
}

/// Check that Back undoes zooms and filters one by one.
#[test]
fn back_undoes() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    reader.click("shop::orders::create");
    reader.click("shop::orders::price");
    reader.browser.click_on("[data-key='endpoint=/orders']").unwrap();
    reader.wait("profilerPage.state().samples === 500");
    reader.browser.back().unwrap();
    reader.wait("profilerPage.state().samples === 1000");
    assert_eq!(reader.ask("profilerPage.state().zoom.at(-1)"), "shop::orders::price");
    reader.browser.back().unwrap();
    reader.wait("profilerPage.state().zoom.at(-1) === 'shop::orders::create'");
    reader.browser.back().unwrap();
    reader.wait("profilerPage.state().zoom.length === 0");
    reader.leave();
}

/// Check that a link leads a reader who never was there to the same place, with no more names than are needed.
#[test]
fn a_link_leads_to_the_same_place() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    reader.click("shop::report::build");
    assert_eq!(reader.query(), "?p=shop::report::build");
    reader.click("shop::report::walk");
    let (link, zoom) = (reader.query(), reader.state("zoom"));
    let mut other = Reader::at(site.address, &link);
    assert_eq!(other.state("zoom"), zoom);
    other.leave();
    reader.leave();
}

/// Check that an address with nonsense in it shows a profile all the same, and that the server's reason is shown.
#[test]
fn nonsense_in_the_address_is_harmless() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "?from=yesterday&view=3d&sort=%00&p=no::such&h=&root=1");
    assert_eq!(reader.state("samples"), 1000);
    assert!(reader.text("#notices").contains("“no::such” is not in the profile now; its nearest ancestor is shown."));
    reader.leave();
}

/// Check that a window from–to can be chosen, that it stands still, and that live is one click away.
#[test]
fn a_window_can_be_fixed() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    reader.browser.click_on("#span summary").unwrap();
    reader.wait("document.querySelector('#to').value !== ''");
    reader.browser.click_on("#span form button").unwrap();
    reader.wait("profilerPage.state().to !== ''");
    assert!(reader.query().starts_with("?from=") && reader.query().contains("&to="));
    assert_eq!(reader.text("#live"), "Fixed");
    reader.press(&[" "]);
    reader.wait("profilerPage.state().to === '' && document.querySelector('#live').textContent === 'Live'");
    reader.leave();
}
