//! What it costs to send profiles: bytes, time and memory of a request, and what a service pays while its backend is well, dead, or says nothing.
//!
//! Only of this profiler: the others are given no such figures by what they send.

mod request;
mod service;

use std::process::Command;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::process::Running;

use super::Row;
use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::shop::{Serving, Shop};
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "export", what: "what it costs to send profiles", measure };

/// How long a shop may run.
const LIMIT: Duration = Duration::from_secs(300);

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    request::measure(lab, report)?;
    service::measure(lab, report)
}

/// Adds a figure of ours.
fn add(report: &mut Report, what: impl Into<String>, unit: &'static str, digits: usize, value: f64) {
    report.add(Line { row: ROW.name, what: what.into(), unit, digits, values: vec![(Who::Ours, value)] });
}

/// A shop that sends its profiles to `url`.
fn shop(lab: &Lab, serving: Serving, url: &str) -> Result<Shop> {
    let mut command = Command::new(lab.program(Who::Ours)?);
    command.args(serving.task()).arg(format!("url={url}"));
    Shop::start(Running::start(&mut command, LIMIT)?)
}

/// Sends requests to `shop` for as long as `time`; how many it answered.
fn load(lab: &Lab, shop: &Shop, time: Duration) -> Result<f64> {
    let client = lab.client(&shop.address)?;
    std::thread::sleep(time);
    let said = client.finish()?.json()?;
    let answered = said["requests"].as_f64().filter(|answered| *answered > 0.0 && said["errors"] == 0);
    answered.ok_or_else(|| format!("the shop did not serve well: {said}").into())
}
