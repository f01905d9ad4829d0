//! `/flamegraph.svg` in a browser: the file zooms and searches by itself.

use profiler_tests::browser::Browser;
use serde_json::json;

use crate::site::{SHOP, Site};

/// Where the box of `shop::search::run` is, as JavaScript finds it: left edge, width, and whether it is to be seen.
const SEARCH: &str = "(box => [box.rect.x.baseVal.value, box.rect.width.baseVal.value, box.element.style.display !== 'none'])\
                      (boxes.find(box => box.name === 'shop::search::run'))";

/// Check that boxes are as wide as they are hot, that a click zooms and Escape shows all again, and that a search paints and tells the share.
#[test]
fn the_drawing_zooms_and_searches() {
    let site = Site::with(SHOP);
    let mut browser = Browser::start(1600, 900).unwrap();
    browser.open(&format!("http://{}/flamegraph.svg", site.address)).unwrap();
    browser.wait_until("boxes.length > 8").unwrap();
    let before = browser.evaluate(SEARCH).unwrap();
    assert!((before[1].as_f64().unwrap() - 1200.0 * 0.3).abs() < 0.01, "{before}");
    let click =
        |name: &str| format!("boxes.find(box => box.name === '{name}').element.dispatchEvent(new Event('click'))");
    browser.evaluate(&click("shop::search::run")).unwrap();
    assert_eq!(browser.evaluate(SEARCH).unwrap(), json!([0, 1200, true]));
    let text = "boxes.find(box => box.name === 'shop::search::score').element.querySelector('text').textContent";
    assert_eq!(browser.evaluate(text).unwrap(), "shop::search::score");
    browser.evaluate(&click("shop::orders::create")).unwrap();
    assert_eq!(browser.evaluate(SEARCH).unwrap()[2], false, "it is neither below nor above");
    browser.press("Escape").unwrap();
    assert_eq!(browser.evaluate(SEARCH).unwrap(), before);
    browser.evaluate("window.prompt = () => 'SHOP::REPORT'").unwrap();
    browser.click_on("#search").unwrap();
    // Two functions of it stand above each other: their share counts once.
    browser.wait_until("document.getElementById('search').textContent === 'SHOP::REPORT: 19.50 %'").unwrap();
    let painted = "boxes.filter(box => box.rect.getAttribute('fill') !== box.fill).length";
    assert_eq!(browser.evaluate(painted).unwrap(), 3);
    assert_eq!(browser.complaints().unwrap(), Vec::<String>::new());
}
