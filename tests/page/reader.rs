//! A reader with a browser at a page: opens it, asks what it shows, and in the end whether it behaved.
//!
//! In: a server's address. Out: the page's own account of what is drawn (`window.profilerPage`), and the words on it.

use profiler_tests::browser::Browser;
use serde_json::Value;

/// A browser with the page open.
pub(crate) struct Reader {
    pub(crate) browser: Browser,
    origin: String,
}

impl Reader {
    /// Opens the page of the server at `address` with `query` and waits until a profile is drawn.
    pub(crate) fn at(address: impl std::fmt::Display, query: &str) -> Self {
        Self::with(Browser::start(1600, 900).unwrap(), address, query)
    }

    /// The same in a browser that has been prepared.
    pub(crate) fn with(browser: Browser, address: impl std::fmt::Display, query: &str) -> Self {
        let mut reader = Self { browser, origin: format!("http://{address}/") };
        reader.open(query);
        reader
    }

    /// Opens the page with another query.
    pub(crate) fn open(&mut self, query: &str) {
        self.browser.open(&format!("{}{query}", self.origin)).unwrap();
        self.wait("profilerPage.state().answers > 0");
    }

    /// Waits until a JavaScript expression is true.
    pub(crate) fn wait(&mut self, expression: &str) {
        self.browser.wait_until(expression).unwrap();
    }

    /// The value of a JavaScript expression.
    pub(crate) fn ask(&mut self, expression: &str) -> Value {
        self.browser.evaluate(expression).unwrap()
    }

    /// A field of the page's state.
    pub(crate) fn state(&mut self, field: &str) -> Value {
        self.ask("profilerPage.state()")[field].take()
    }

    /// The text of the first element that a selector finds.
    pub(crate) fn text(&mut self, selector: &str) -> String {
        let text = self.ask(&format!("document.querySelector({}).textContent", Value::from(selector)));
        text.as_str().unwrap().to_owned()
    }

    /// What the address has after the path.
    pub(crate) fn query(&mut self) -> String {
        self.ask("decodeURIComponent(location.search)").as_str().unwrap().to_owned()
    }

    /// Where the widest box of a function is: x, y, width and height; it must be in sight.
    pub(crate) fn box_of(&mut self, name: &str) -> [f64; 4] {
        let place = self.ask(&format!("profilerPage.boxAt({})", Value::from(name)));
        assert_eq!(place["visible"], true, "{name}: {place}");
        ["x", "y", "width", "height"].map(|side| place[side].as_f64().unwrap())
    }

    /// The middle of that box.
    pub(crate) fn middle_of(&mut self, name: &str) -> (f64, f64) {
        let [x, y, width, height] = self.box_of(name);
        (x + width / 2.0, y + height / 2.0)
    }

    /// Clicks on that box.
    pub(crate) fn click(&mut self, name: &str) {
        let (x, y) = self.middle_of(name);
        self.browser.click(x, y).unwrap();
    }

    /// Presses keys, one after the other.
    pub(crate) fn press(&mut self, keys: &[&str]) {
        keys.iter().for_each(|key| self.browser.press(key).unwrap());
    }

    /// Checks that the page complained of nothing and asked nobody but its own server.
    pub(crate) fn leave(mut self) {
        assert_eq!(self.browser.complaints().unwrap(), Vec::<String>::new());
        let requests = self.browser.requests().unwrap();
        assert!(requests.iter().any(|url| url.contains("/api/profile")), "{requests:?}");
        let own = |url: &&String| url.starts_with(&self.origin) || url.starts_with("data:");
        assert_eq!(requests.iter().find(|url| !own(url)), None);
    }
}
