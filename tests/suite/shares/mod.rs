//! The main claim: CPU time burnt 60/30/10 in three functions under three tags comes out as that, by function and by tag,
//! whichever way the profile is read.
//!
//! Every share is compared with what the functions really used, within 5 standard errors of a share of as many samples as
//! there were (`profiler_tests::statistics`). Two threads at 250 Hz: the finest period that a kernel with a tick of 4 ms
//! can keep. The work goes on until whoever reads has seen 6,250 samples, however busy the machine is.

mod page;
mod pprof;

use profiler_tests::process::Running;
use profiler_tests::receiver::{Protocol, Receiver};
use profiler_tests::statistics::{STANDARD_ERRORS, deviation};
use profiler_tests::tally::Tally;
use profiler_tests::workload::PARTS;

use crate::scenario::{assert_lawful, command, sending, start, turn};

/// The least number of samples that a comparison is made with.
const SAMPLES: f64 = 6250.0;

/// What one way of reading a profile says of the parts of the workload.
struct Reading {
    /// How it was read.
    way: &'static str,
    /// Weight below each part's function.
    functions: Vec<f64>,
    /// Weight under each part's tag.
    tags: Vec<f64>,
    /// How many stacks that stands for.
    stacks: f64,
}

impl Reading {
    fn of(tally: &Tally) -> Self {
        Self {
            way: "OTLP",
            functions: PARTS.iter().map(|part| tally.below(part.function) as f64).collect(),
            tags: PARTS.iter().map(|part| tally.tagged("endpoint", part.tag) as f64).collect(),
            stacks: tally.stacks as f64,
        }
    }

    /// Checks every share, by function and by tag, against the true one.
    #[track_caller]
    fn assert_is(&self, truth: &[f64]) {
        assert!(self.stacks >= SAMPLES, "{}: {} samples are too few", self.way, self.stacks);
        for (index, part) in PARTS.iter().enumerate() {
            for (name, weights) in [(part.function, &self.functions), (part.tag, &self.tags)] {
                let (own, all, true_share) = (weights[index], weights.iter().sum(), truth[index]);
                let off = deviation(own, all, true_share, self.stacks);
                let share = own / all;
                let what =
                    format!("{}: {name} has {share:.4}, not {true_share:.4}: {off:.1} standard errors", self.way);
                assert!(off.abs() <= STANDARD_ERRORS, "{what}");
            }
        }
    }
}

/// The scenario, and where it serves its profiles.
fn started(receiver: &Receiver) -> (Running, String) {
    let mut child = start(sending(&mut command("shares", &["threads=2", "rate=250"]), receiver, Protocol::Grpc));
    let address = child.json().unwrap()["serve"].as_str().unwrap().to_owned();
    (child, address)
}

/// Tells the scenario that it is enough; the true shares.
fn ended(mut child: Running) -> Vec<f64> {
    child.say("enough").unwrap();
    let outcome = child.finish().unwrap().json().unwrap();
    let used: Vec<f64> = outcome["used"].as_array().unwrap().iter().map(|used| used.as_f64().unwrap()).collect();
    used.iter().map(|part| part / used.iter().sum::<f64>()).collect()
}

/// Check the shares in the OTLP requests and in what `go tool pprof` reads from `/debug/pprof/profile`.
#[test]
fn shares_are_right_in_otlp_and_in_pprof() {
    let _turn = turn();
    let receiver = Receiver::start().unwrap();
    let (child, address) = started(&receiver);
    let pprof = pprof::read(&address);
    let truth = ended(child);
    assert_lawful(&receiver);
    Reading::of(&receiver.accepted()).assert_is(&truth);
    pprof.assert_is(&truth);
}

/// Check the shares in the table and the header of the page, in a browser.
#[test]
fn shares_are_right_in_the_table_of_the_page() {
    let _turn = turn();
    let receiver = Receiver::start().unwrap();
    let (child, address) = started(&receiver);
    let page = page::read(&address);
    let truth = ended(child);
    page.assert_is(&truth);
}
