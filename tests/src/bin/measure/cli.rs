//! The command line of `measure`.
//!
//! In: arguments. Out: which rows, and how thoroughly; anything else is refused with what there is.

use profiler_tests::Result;

use crate::rows;

/// What was asked for.
#[derive(Debug, Default)]
pub(crate) struct Cli {
    /// Shorter runs: for a look, not for a figure in the documentation.
    pub(crate) quick: bool,
    /// Names of rows; none means all.
    only: Vec<String>,
}

impl Cli {
    /// Reads `--quick` and `--only ROW`.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut cli = Self::default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => cli.quick = true,
                "--only" => cli.only.push(arguments.next().unwrap_or_default()),
                other => return Err(format!("{other:?} is neither --quick nor --only ROW").into()),
            }
        }
        match cli.only.iter().find(|name| !rows::ALL.iter().any(|row| row.name == **name)) {
            Some(name) => Err(format!("--only {name:?}: rows are {}", rows::ALL.map(|row| row.name).join(", ")).into()),
            None => Ok(cli),
        }
    }

    /// Whether the row of this name was asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// Whether any row that was asked for is of the SDK, and so of programs with a profiler in them.
    pub(crate) fn wants_subjects(&self) -> bool {
        rows::ALL.iter().any(|row| self.wants(row.name) && !row.name.starts_with(rows::sidecar::PREFIX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Cli> {
        Cli::parse(arguments.iter().map(ToString::to_string))
    }

    /// Check that rows are chosen by name, and that one that is not there is refused with those that are.
    #[test]
    fn rows_are_chosen_by_name() {
        let cli = parsed(&["--quick", "--only", "cost"]).unwrap();
        assert_eq!((cli.quick, cli.wants("cost"), cli.wants("rest")), (true, true, false));
        assert!(parsed(&[]).unwrap().wants("rest"));
        let wants_subjects = |arguments| parsed(arguments).unwrap().wants_subjects();
        assert!(wants_subjects(&[]) && wants_subjects(&["--only", "rest"]));
        assert!(!wants_subjects(&["--only", "sidecar-cost"]));
        assert!(parsed(&["--only", "speed"]).unwrap_err().to_string().contains("cost"));
        assert!(parsed(&["--fast"]).unwrap_err().to_string().contains("--quick"));
    }
}
