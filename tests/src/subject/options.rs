//! The command line of a subject: `task=spin rate=100 threads=8`.
//!
//! In: arguments. Out: numbers and text by key; a missing or wrong one is named in the error.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::Result;

/// Settings by key.
#[derive(Debug, Clone, Default)]
pub struct Options {
    values: BTreeMap<String, String>,
}

impl Options {
    /// The settings in `arguments`, each of the form `key=value`.
    ///
    /// # Errors
    /// For an argument of another form.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self> {
        let split = |argument: String| match argument.split_once('=') {
            Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
            None => Err(format!("{argument:?} is not key=value")),
        };
        Ok(Self { values: arguments.into_iter().map(split).collect::<Result<_, _>>()? })
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// When it is missing or not of its type.
    pub fn value<T: FromStr>(&self, key: &str) -> Result<T> {
        let text = self.values.get(key).ok_or_else(|| format!("{key}=… is missing"))?;
        text.parse().map_err(|_| format!("{key}={text:?} is not of its type").into())
    }

    /// The value of `key`, or `default` where it is missing.
    ///
    /// # Errors
    /// When it is there and not of its type.
    pub fn value_or<T: FromStr>(&self, key: &str, default: T) -> Result<T> {
        if self.values.contains_key(key) { self.value(key) } else { Ok(default) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that values are found by key and typed, and that errors name the key.
    #[test]
    fn values_are_typed() {
        let options = Options::parse(["task=spin", "threads=8"].map(String::from)).unwrap();
        assert_eq!((options.value::<u32>("threads").unwrap(), options.value_or("rate", 100).unwrap()), (8, 100));
        assert!(options.value::<u32>("task").unwrap_err().to_string().contains("task=\"spin\""));
        assert!(Options::parse([String::from("--quick")]).is_err());
    }
}
