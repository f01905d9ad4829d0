//! The same of the agent and of its peer, one after the other: beside two busy goroutines, and beside ten programs of many functions.
//!
//! Both sample all processes of the machine at 99 Hz, and send each 10 s to a receiver that takes what it can read. A tick is one of either's clock, whatever it hit: nearly
//! all hit the program that is busy.

use std::io::{self, Write as _};
use std::thread::sleep;
use std::time::{Duration, Instant};

use profiler_proto::validate::Rule;
use profiler_tests::Result;
use profiler_tests::receiver::Receiver;

use super::super::settle;
use super::NAME;
use crate::lab::Lab;
use crate::pod::{BpfStats, Busy, NO_CAPTURES, Pod, Watched};
use crate::report::{Line, Report};
use crate::who::Who;

/// One at work: the sidecar, or its peer.
enum One {
    Ours(crate::pod::Agent),
    Peer(crate::pod::Peer),
}

impl One {
    fn start(who: Who, pod: &Pod, receiver: &Receiver) -> Result<Self> {
        let endpoint = receiver.endpoint();
        match who {
            Who::Ours => Ok(Self::Ours(pod.agent(&[NO_CAPTURES], Some(&endpoint))?)),
            _ => Ok(Self::Peer(pod.peer(&endpoint)?)),
        }
    }

    fn watched(&self) -> Watched {
        match self {
            Self::Ours(agent) => agent.watched(),
            Self::Peer(peer) => peer.watched(),
        }
    }
}

/// What is not measured where the peer cannot be had.
const BESIDE: &str = "sidecar-cost, beside its peer";

pub(super) fn measure(pod: &Pod, lab: &Lab, report: &mut Report) -> Result<()> {
    let starts = BpfStats::on().and_then(|_stats| pod.peer(&taking_anything()?.endpoint()));
    if let Err(why) = starts {
        // Nobody is left to be told when standard error is gone.
        let _written = writeln!(io::stderr(), "{why}");
        report.not_run(BESIDE, "the OpenTelemetry eBPF profiler does not build or start: Go's module proxy and CAP_SYS_RESOURCE are what it needs");
        return Ok(());
    }
    let (mut shares, mut ticks, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for who in Who::FROM_OUTSIDE {
        let (share, tick) = beside_two(who, pod, lab)?;
        shares.push((who, share));
        ticks.push((who, tick));
        memory.push((who, beside_ten(who, pod, lab)?));
    }
    let mut add = |what: &str, unit, digits, values| {
        report.add(Line { row: NAME, what: what.into(), unit, digits, values });
    };
    add("both: CPU of its threads, of a core, 2 busy goroutines", "%", 3, shares);
    add("both: in the kernel, a tick beside them", "µs", 2, ticks);
    add("both: resident and maps beside 10 Go programs", "MB", 1, memory);
    Ok(())
}

/// A receiver of whatever is sent: the peer speaks another version of the protocol.
fn taking_anything() -> Result<Receiver> {
    let receiver = Receiver::start()?;
    receiver.allow(Rule::ALL.iter().copied());
    Ok(receiver)
}

/// The hundredths of a core that its threads take, and the microseconds of a tick.
fn beside_two(who: Who, pod: &Pod, lab: &Lab) -> Result<(f64, f64)> {
    let _stats = BpfStats::on()?;
    let _target = pod.steady(Busy::TWO)?;
    let receiver = taking_anything()?;
    let one = One::start(who, pod, &receiver)?;
    settle(lab);
    let (began, cpu, runs) = (Instant::now(), one.watched().cpu()?, one.watched().runs()?);
    sleep(Duration::from_secs(if lab.quick { 10 } else { 40 }));
    let used = one.watched().cpu()?.saturating_sub(cpu).as_secs_f64();
    Ok((100.0 * used / began.elapsed().as_secs_f64(), one.watched().runs()?.mean_since(runs)? / 1e3))
}

/// Megabytes that it holds.
fn beside_ten(who: Who, pod: &Pod, lab: &Lab) -> Result<f64> {
    let receiver = taking_anything()?;
    let _programs = (0..10).map(|copy| pod.busy(&copy.to_string(), 1)).collect::<Result<Vec<_>>>()?;
    let one = One::start(who, pod, &receiver)?;
    sleep(Duration::from_secs(if lab.quick { 12 } else { 25 }));
    let memory = one.watched().memory()?;
    Ok((memory.resident + memory.maps) / 1e6)
}
