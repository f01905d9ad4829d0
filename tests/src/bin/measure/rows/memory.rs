//! Resident memory that a profiler adds: 64 busy threads under it for some seconds, its symbols found and everything sent at
//! least once, less the same without a profiler. From `VmRSS` in /proc/self/status (proc(5)), and the highest ever, `VmHWM`.

use profiler_tests::Result;

use super::Row;
use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "memory", what: "resident memory that it adds", measure };

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let seconds = if lab.quick { 4 } else { 25 };
    let task = ["task=memory".into(), "threads=64".into(), format!("seconds={seconds}")];
    let bare = lab.run(Who::Nobody, &task)?;
    let (mut resident, mut peak) = (Vec::new(), Vec::new());
    for who in Who::PROFILERS {
        let outcome = lab.run(who, &task)?;
        let added = |name: &str| -> Result<f64> { Ok((outcome.figure(name)? - bare.figure(name)?) / 1e6) };
        resident.push((who, added("resident")?));
        peak.push((who, added("peak")?));
    }
    for (of, values) in [("resident", resident), ("peak", peak)] {
        let what = format!("{of}, 64 busy threads, {seconds} s");
        report.add(Line { row: ROW.name, what, unit: "MB", digits: 1, values });
    }
    Ok(())
}
