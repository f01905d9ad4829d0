//! How long starting the profiler takes: the call that a program makes in `main`, each time in a fresh process.

use profiler_tests::Result;
use profiler_tests::statistics::{median, quantile};

use super::Row;
use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "start", what: "duration of the call that starts it", measure };

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let times = if lab.quick { 3 } else { 15 };
    let (mut typical, mut worst) = (Vec::new(), Vec::new());
    for who in Who::PROFILERS {
        let milliseconds = |_| -> Result<f64> {
            let said = lab.run(who, &["task=start".into()])?.said;
            said["milliseconds"].as_f64().ok_or_else(|| "it did not say how long it took".into())
        };
        let taken = (0..times).map(milliseconds).collect::<Result<Vec<_>>>()?;
        typical.push((who, median(&taken)));
        worst.push((who, quantile(&taken, 1.0)));
    }
    let mut add = |of: &str, values| {
        let what = format!("{of} of {times} fresh processes");
        report.add(Line { row: ROW.name, what, unit: "ms", digits: 2, values });
    };
    add("median", typical);
    add("longest", worst);
    Ok(())
}
