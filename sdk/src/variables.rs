//! The variables of the environment, and which of them code outweighs.
//!
//! In: a look-up of variables (in tests, a table). Out: their texts, or an error that names the one that cannot be read. Leaf
//! module, for whatever reads settings; runs in `start`, on the caller's thread.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;

use crate::error::Error;

/// The environment of one start.
pub(crate) struct Variables<'a> {
    lookup: &'a dyn Fn(&str) -> Option<OsString>,
    /// `SETTING over VARIABLE`, each once.
    outweighed: RefCell<BTreeSet<String>>,
}

impl<'a> Variables<'a> {
    pub(crate) fn new(lookup: &'a dyn Fn(&str) -> Option<OsString>) -> Self {
        Self { lookup, outweighed: RefCell::default() }
    }

    /// The text of a variable without the white space around it; unset and empty are the same, as OpenTelemetry says.
    ///
    /// # Errors
    /// If it is not UTF-8.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Error> {
        let Some(value) = (self.lookup)(name) else { return Ok(None) };
        // Without the value, which may be a secret.
        let text = value
            .into_string()
            .map_err(|_| Error::setting(name, "…", "it is not UTF-8", "set it to UTF-8 text, or unset it"))?;
        Ok(Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_owned))
    }

    /// Notes that `setting`, which code made, is in force, if `variable` is set as well.
    pub(crate) fn outweigh(&self, setting: &str, variable: &str) {
        if (self.lookup)(variable).is_some_and(|value| !value.to_string_lossy().trim().is_empty()) {
            self.outweighed.borrow_mut().insert(format!("{setting} over {variable}"));
        }
    }

    /// Says in the log what code and environment both set, and which is in force: names only, for values may be secrets.
    pub(crate) fn log_outweighed(&self) {
        let outweighed = self.outweighed.borrow();
        if !outweighed.is_empty() {
            let settings = outweighed.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            tracing::info!("code and environment both set something, in force is code: {settings}");
        }
    }

    #[cfg(test)]
    pub(crate) fn outweighed(&self) -> Vec<String> {
        self.outweighed.borrow().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    /// Check that white space does not count, and that what is not UTF-8 is refused by name.
    #[test]
    fn a_text_is_what_stands_between_white_space() {
        let lookup = |name: &str| match name {
            "A" => Some(" a b\n".into()),
            "B" => Some(" ".into()),
            "C" => Some(OsString::from_vec(b"caf\xe9".to_vec())),
            _ => None,
        };
        let variables = Variables::new(&lookup);
        assert_eq!(variables.text("A").unwrap().as_deref(), Some("a b"));
        assert_eq!(["B", "D"].map(|name| variables.text(name).unwrap()), [None, None]);
        let error = variables.text("C").unwrap_err().to_string();
        assert!(error.starts_with("C=") && error.contains("not UTF-8"), "{error}");
    }

    /// Check that only what is set twice is noted, once however often it is asked for.
    #[test]
    fn what_code_outweighs_is_noted_once() {
        let lookup = |name: &str| {
            [("A", "1"), ("C", " ")].iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        };
        let variables = Variables::new(&lookup);
        for variable in ["A", "B", "A", "C"] {
            variables.outweigh("Config::a", variable);
        }
        assert_eq!(variables.outweighed(), ["Config::a over A"]);
    }
}
