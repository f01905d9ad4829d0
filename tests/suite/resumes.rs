//! Pauses and resumes that come one right after the other.

use crate::scenario::{command, number, result, turn};

/// Check that no CPU time is taken for that of threads which block the signal because it was used while alarms were taken away
/// and set, however often that happens.
#[test]
fn many_resumes_leave_nothing_that_looks_blocked() {
    for (engine, rate) in [("timer", 100), ("perf", 1000)] {
        let _turn = turn();
        let rate = format!("rate={rate}");
        let mut command = command("resumes", &["threads=2", "times=1000", &rate]);
        let outcome = result(command.env("PROFILER_ENGINE", engine));
        assert!(number(&outcome, "/stats/taken") > 50, "{engine}: {outcome}");
        assert_eq!(number(&outcome, "/stats/lost/blocked"), 0, "{engine}: {outcome}");
    }
}
