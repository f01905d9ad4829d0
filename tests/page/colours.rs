//! Light and dark, and whether text can be read on every colour.

use serde_json::json;

use crate::reader::Reader;
use crate::site::{SHOP, Site};

/// Contrast of the text on each box (WCAG 2.2, §1.4.3), from the pixels that a canvas makes of the colours.
const CONTRASTS: &str = "(async () => {
    const { colour, INKS, KINDS } = await import('./colours.js');
    const context = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const luminance = (fill) => {
        context.fillStyle = fill;
        context.fillRect(0, 0, 1, 1);
        const linear = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v / 255)
            .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const contrasts = [];
    for (const dark of [false, true]) {
        const text = luminance(INKS[dark ? 'dark' : 'light'].text);
        for (let kind = 0; kind < KINDS.length; kind++) for (let package = 0; package < 200; package++) {
            const [low, high] = [text, luminance(colour(kind, `package${package}`, dark))].sort((a, b) => a - b);
            contrasts.push((high + 0.05) / (low + 0.05));
        }
    }
    return contrasts;
})()";

/// Check that text on boxes of any package has a contrast of at least 4.5, in light and dark.
#[test]
fn text_can_be_read_on_every_colour() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    let contrasts = reader.ask(CONTRASTS);
    let contrasts: Vec<f64> = contrasts.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
    assert_eq!(contrasts.len(), 2 * 8 * 200);
    let least = contrasts.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(least >= 4.5, "{least}");
    reader.leave();
}

/// Check that the page follows the system, that `d` changes it, and that the choice is a part of the address.
#[test]
fn the_page_is_light_or_dark() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    let back = "getComputedStyle(document.body).backgroundColor";
    let light = reader.ask(back);
    reader.browser.prefer_dark(true).unwrap();
    reader.wait(&format!("profilerPage.state().dark && {back} !== {light}"));
    reader.press(&["d"]);
    assert_eq!((reader.state("dark"), reader.ask(back)), (json!(false), light.clone()));
    assert_eq!(reader.query(), "?theme=light");
    reader.browser.reload().unwrap();
    reader.wait("profilerPage.state().answers > 0");
    assert_eq!((reader.state("dark"), reader.ask(back)), (json!(false), light));
    reader.leave();
}
