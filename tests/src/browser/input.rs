//! What a reader's hands do: keys and the mouse, as the browser gets them from a real device.
//!
//! In: names of keys as in the web's `KeyboardEvent.key`, places in the page's own pixels. Out: input events.

use serde_json::{Value, json};

use super::Browser;
use crate::Result;

impl Browser {
    /// Presses a key and lets it go: `a`, `?`, `Enter`, `ArrowDown`, …; with `Control+` in front, together with it.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn press(&mut self, key: &str) -> Result<()> {
        let (modifiers, key) = key.strip_prefix("Control+").map_or((0, key), |key| (2, key));
        let mut down = json!({
            "type": "keyDown", "key": key, "modifiers": modifiers, "windowsVirtualKeyCode": code_of(key),
        });
        match key {
            "Enter" => down["text"] = "\r".into(),
            key if modifiers == 0 && key.chars().count() == 1 => down["text"] = key.into(),
            _ => {}
        }
        self.pipe.call("Input.dispatchKeyEvent", &down)?;
        let up = json!({ "type": "keyUp", "key": key, "modifiers": modifiers, "windowsVirtualKeyCode": code_of(key) });
        self.pipe.call("Input.dispatchKeyEvent", &up).map(drop)
    }

    /// Types text into what has the focus.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn type_text(&mut self, text: &str) -> Result<()> {
        self.pipe.call("Input.insertText", &json!({ "text": text })).map(drop)
    }

    /// Moves the mouse to a place.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn hover(&mut self, x: f64, y: f64) -> Result<()> {
        self.mouse("mouseMoved", x, y, "none")
    }

    /// Clicks at a place.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn click(&mut self, x: f64, y: f64) -> Result<()> {
        self.click_with("left", x, y)
    }

    /// Clicks at a place with the right button.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn right_click(&mut self, x: f64, y: f64) -> Result<()> {
        self.click_with("right", x, y)
    }

    /// Clicks in the middle of the first element that a CSS selector finds.
    ///
    /// # Errors
    /// When there is none, or it is not to be seen.
    pub fn click_on(&mut self, selector: &str) -> Result<()> {
        let find = format!("document.querySelector({})", Value::from(selector));
        let place = format!(
            "(() => {{ const e = {find}; if (!e) return null; e.scrollIntoView({{ block: 'nearest' }}); \
             const r = e.getBoundingClientRect(); \
             return r.width && r.height ? [r.left + r.width / 2, r.top + r.height / 2] : null; }})()"
        );
        let place = self.evaluate(&place)?;
        match (place[0].as_f64(), place[1].as_f64()) {
            (Some(x), Some(y)) => self.click(x, y),
            _ => Err(format!("there is nothing to click at {selector}").into()),
        }
    }

    fn click_with(&mut self, button: &str, x: f64, y: f64) -> Result<()> {
        self.hover(x, y)?;
        self.mouse("mousePressed", x, y, button)?;
        self.mouse("mouseReleased", x, y, button)
    }

    fn mouse(&mut self, kind: &str, x: f64, y: f64, button: &str) -> Result<()> {
        let event = json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": u8::from(button != "none") });
        self.pipe.call("Input.dispatchMouseEvent", &event).map(drop)
    }
}

/// The Windows virtual key code, which Chromium wants for keys that are not text.
fn code_of(key: &str) -> u32 {
    match key {
        "Enter" => 13,
        "Escape" => 27,
        "PageUp" => 33,
        "PageDown" => 34,
        "End" => 35,
        "Home" => 36,
        "ArrowLeft" => 37,
        "ArrowUp" => 38,
        "ArrowRight" => 39,
        "ArrowDown" => 40,
        "Tab" => 9,
        key => key.chars().next().map_or(0, |c| u32::from(c.to_ascii_uppercase())),
    }
}
