//! Reads the shares from the page, in a browser.
//!
//! In: the address of a profiled process. Out: the totals in the table's rows, and the samples that the header says there are
//! with a filter for each tag.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use profiler_tests::browser::Browser;
use profiler_tests::fetch;
use profiler_tests::tally::is_named;
use profiler_tests::workload::PARTS;

use super::{Reading, SAMPLES};

/// What the page says once the server has enough samples.
pub(super) fn read(address: &str) -> Reading {
    let stacks = enough(address);
    let mut page = Page::open(address);
    Reading {
        way: "page",
        functions: PARTS.iter().map(|part| page.total(part.function)).collect(),
        tags: PARTS.iter().map(|part| page.tagged(part.tag)).collect(),
        stacks,
    }
}

/// Waits until the server has enough stacks; how many. Ends with the scenario, at its limit.
fn enough(address: &str) -> f64 {
    loop {
        let stacks = fetch::json(address.parse().unwrap(), "/stats").unwrap()["exported"].as_f64().unwrap();
        if stacks >= SAMPLES {
            return stacks;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// The page in a browser.
struct Page {
    browser: Browser,
    /// The page's address up to what it shows.
    window: String,
}

impl Page {
    fn open(address: &str) -> Self {
        let browser = Browser::start(1280, 800).unwrap();
        // The end is fixed, for what comes later would be in one answer and not in the next.
        let until = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        Self { browser, window: format!("http://{address}/?from={}&to={until}", until - 600) }
    }

    /// The sum of the totals of the functions of this name: a build may have several copies of one.
    fn total(&mut self, name: &str) -> f64 {
        self.show("view=table");
        let rows = self.browser.evaluate("profilerPage.table().map(({ name, total }) => [name, total])").unwrap();
        let own = rows.as_array().unwrap().iter().filter(|row| is_named(row[0].as_str().unwrap(), name));
        own.map(|row| row[1].as_f64().unwrap()).sum()
    }

    /// The samples that are left with a filter for a tag.
    fn tagged(&mut self, tag: &str) -> f64 {
        self.show(&format!("tag=endpoint%3D{tag}"));
        self.browser.evaluate("profilerPage.state().samples").unwrap().as_f64().unwrap()
    }

    fn show(&mut self, query: &str) {
        self.browser.open(&format!("{}&{query}", self.window)).unwrap();
        self.browser.wait_until("profilerPage.state().answers > 0").unwrap();
    }
}
