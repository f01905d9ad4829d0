//! A trace of which a page has samples of two processes: what its link shows is the work of one request in both.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::Outcome;
use crate::table::fetch;

/// The address at `page` of the trace with most samples in that process of the two where it has fewer. `None`: none was sampled in both.
pub(crate) async fn link(page: &str, first: u32, second: u32) -> Outcome<Option<String>> {
    let mut traces = BTreeSet::new();
    // The page lists the heaviest: of all there are the largest, of either process those that are seldom in the other.
    for of in [String::new(), format!("?pid={first}"), format!("?pid={second}")] {
        let profile: Value = serde_json::from_str(&fetch(page, &format!("/api/profile{of}")).await?)?;
        let listed = profile["tags"]["trace_id"].as_array().into_iter().flatten();
        traces.extend(listed.filter_map(|trace| Some(trace.as_str()?.to_owned())));
    }
    let mut best = (0, None);
    for trace in traces {
        let mut samples = u64::MAX;
        for pid in [first, second] {
            let path = format!("/api/top?n=1&pid={pid}&tag=trace_id={trace}");
            let of_trace: Value = serde_json::from_str(&fetch(page, &path).await?)?;
            samples = samples.min(of_trace["groups"][0]["samples"].as_u64().unwrap_or(0));
            if samples <= best.0 {
                break;
            }
        }
        if samples > best.0 {
            best = (samples, Some(format!("{}/?tag=trace_id={trace}", page.trim_end_matches('/'))));
        }
    }
    Ok(best.1)
}
