//! A real browser without a window, driven as a reader would: open a page, press keys, click, look.
//!
//! In: addresses, keys, places, JavaScript to ask with. Out: values, pictures, and everything that the page complained of
//! or asked the network for. Chromium speaks the DevTools protocol over a pipe, so there is no port to find and no
//! connection to lose; it ends when the pipe does. Each browser has a profile folder of its own, gone with it.

mod input;
mod pipe;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Result;
use pipe::Pipe;

/// How long a page may take to come to what is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where Debian and others put the browser; `PROFILER_TEST_CHROMIUM` names another.
const PLACES: [&str; 4] =
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome", "/snap/bin/chromium"];

/// A browser with one tab.
#[derive(Debug)]
pub struct Browser {
    pipe: Pipe,
}

impl Browser {
    /// Starts a browser whose window shows `width` × `height` pixels.
    ///
    /// # Errors
    /// When there is no Chromium, with what to install; when it does not come up in time.
    pub fn start(width: u32, height: u32) -> Result<Self> {
        let mut browser = Self { pipe: Pipe::open(&executable()?)? };
        browser.pipe.attach()?;
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.pipe.call(&format!("{domain}.enable"), &json!({}))?;
        }
        browser.pipe.call("Performance.enable", &json!({ "timeDomain": "threadTicks" }))?;
        browser.resize(width, height, 1.0)?;
        browser.prefer_dark(false)?;
        Ok(browser)
    }

    /// Opens `url` and waits until it is loaded.
    ///
    /// # Errors
    /// When it cannot be loaded, or not in time.
    pub fn open(&mut self, url: &str) -> Result<()> {
        let answer = self.pipe.call("Page.navigate", &json!({ "url": url }))?;
        match answer["errorText"].as_str() {
            Some(error) => Err(format!("{url}: {error}").into()),
            None => self.wait_until("document.readyState === 'complete' && location.href !== 'about:blank'"),
        }
    }

    /// Loads the page anew, as F5 does.
    ///
    /// # Errors
    /// When it is not loaded in time.
    pub fn reload(&mut self) -> Result<()> {
        self.evaluate("window.beforeReload = true")?;
        self.pipe.call("Page.reload", &json!({}))?;
        self.wait_until("!window.beforeReload && document.readyState === 'complete'")
    }

    /// Goes one step back in the history of the tab.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn back(&mut self) -> Result<()> {
        self.evaluate("history.back()").map(drop)
    }

    /// The value of a JavaScript expression; of a promise, what it comes to.
    ///
    /// # Errors
    /// What it threw.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.pipe.call("Runtime.evaluate", &parameters)?;
        match answer.get("exceptionDetails") {
            Some(details) => Err(format!("{expression}: {}", described(details)).into()),
            None => Ok(answer["result"]["value"].take()),
        }
    }

    /// Waits until a JavaScript expression is true. While a page loads, what it throws counts as false.
    ///
    /// # Errors
    /// When it is not within 30 s, with what it was last.
    pub fn wait_until(&mut self, expression: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let value = self.evaluate(&format!("Boolean({expression})"));
            match value {
                Ok(Value::Bool(true)) => return Ok(()),
                other if Instant::now() >= end => {
                    return Err(format!("not so within {PATIENCE:?}: {expression} ({other:?})").into());
                }
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// How long the page's own thread has worked until now, in milliseconds of CPU time.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn worked(&mut self) -> Result<f64> {
        let answer = self.pipe.call("Performance.getMetrics", &json!({}))?;
        let metrics = answer["metrics"].as_array().ok_or("no metrics")?;
        let duration = metrics.iter().find(|metric| metric["name"] == "TaskDuration");
        let seconds = duration.and_then(|metric| metric["value"].as_f64());
        Ok(1000.0 * seconds.ok_or("nothing says how long tasks took")?)
    }

    /// Runs a script in every page that is opened from now on, before the page's own.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn before_load(&mut self, script: &str) -> Result<()> {
        self.pipe.call("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": script })).map(drop)
    }

    /// Gives the page another size, with `density` device pixels to each of its own.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn resize(&mut self, width: u32, height: u32, density: f64) -> Result<()> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": density, "mobile": false });
        self.pipe.call("Emulation.setDeviceMetricsOverride", &size).map(drop)
    }

    /// Says whether the reader's system is dark.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn prefer_dark(&mut self, dark: bool) -> Result<()> {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.pipe.call("Emulation.setEmulatedMedia", &features).map(drop)
    }

    /// What is seen now, as PNG.
    ///
    /// # Errors
    /// When there is no picture.
    pub fn screenshot(&mut self) -> Result<Vec<u8>> {
        let answer = self.pipe.call("Page.captureScreenshot", &json!({ "format": "png" }))?;
        let text = answer["data"].as_str().ok_or("the picture has no data")?;
        Ok(base64::Engine::decode(&base64::prelude::BASE64_STANDARD, text)?)
    }

    /// What the pages complained of until now: exceptions, errors and warnings on the console, broken rules of the
    /// content security policy, failed requests.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn complaints(&mut self) -> Result<Vec<String>> {
        self.evaluate("0")?;
        Ok(self.pipe.events().iter().filter_map(complaint).collect())
    }

    /// The addresses that the pages asked for until now, in order.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn requests(&mut self) -> Result<Vec<String>> {
        self.evaluate("0")?;
        let sent = self.pipe.events().iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        Ok(sent.filter_map(|event| event["params"]["request"]["url"].as_str().map(str::to_owned)).collect())
    }
}

fn executable() -> Result<PathBuf> {
    let named = std::env::var_os("PROFILER_TEST_CHROMIUM").map(PathBuf::from);
    let found = named.or_else(|| PLACES.iter().map(PathBuf::from).find(|place| place.exists()));
    found.ok_or_else(|| "no Chromium here: apt-get install chromium, or set PROFILER_TEST_CHROMIUM".into())
}

fn complaint(event: &Value) -> Option<String> {
    let parameters = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(described(&parameters["exceptionDetails"])),
        "Runtime.consoleAPICalled" if ["error", "warning", "assert"].contains(&parameters["type"].as_str()?) => {
            Some(format!("console: {}", parameters["args"]))
        }
        "Log.entryAdded" if ["error", "warning"].contains(&parameters["entry"]["level"].as_str()?) => {
            Some(format!("{} {}", parameters["entry"]["text"], parameters["entry"]["url"]))
        }
        _ => None,
    }
}

fn described(details: &Value) -> String {
    let thrown = details["exception"]["description"].as_str().or(details["text"].as_str());
    thrown.unwrap_or("something without a description").to_owned()
}
