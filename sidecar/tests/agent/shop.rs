//! The program `tests/go/shop` at work, and what it knows of itself.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::DEADLINE;
use crate::process::Running;
use crate::received::Taken;

/// At work.
pub(crate) struct Shop {
    running: Running,
    asked: u32,
}

/// What it says at its end.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// CPU time that the process had used before it was this program, and at the end of its work.
    pub(crate) began_nanos: f64,
    pub(crate) used_nanos: f64,
    /// CPU time under labels, by endpoint.
    spent_nanos: BTreeMap<String, f64>,
    /// Endpoint, trace, span.
    spans: Vec<[String; 3]>,
}

impl Shop {
    pub(crate) fn start(command: &mut Command) -> Self {
        let running = Running::program(command);
        running.address_after("ready");
        Self { running, asked: 0 }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// CPU time of the process until now.
    pub(crate) fn used(&mut self) -> Duration {
        self.asked += 1;
        let (question, answer) = (format!("at {}", self.asked), format!("at {} ", self.asked));
        self.running.ask(&question, &answer);
        Duration::from_nanos(self.running.address_after(&answer).parse().unwrap())
    }

    /// Waits until it has used so much CPU time.
    pub(crate) fn until_used(&mut self, enough: Duration) {
        let until = Instant::now() + DEADLINE;
        while self.used() < enough {
            assert!(Instant::now() < until, "{}", self.running.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends its work; the process is there until this is dropped.
    pub(crate) fn end(&mut self) -> Told {
        self.running.ask("end", "ended");
        let mut told = Told::default();
        for line in self.running.log().lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["began", nanos] => told.began_nanos = nanos.parse().unwrap(),
                ["used", nanos] => told.used_nanos = nanos.parse().unwrap(),
                ["spent", endpoint, nanos] => _ = told.spent_nanos.insert(endpoint.to_owned(), nanos.parse().unwrap()),
                ["span", endpoint, trace, span] => told.spans.push([endpoint, trace, span].map(str::to_owned)),
                _ => {}
            }
        }
        told
    }
}

impl Told {
    /// Of its CPU time, as its samples have it.
    pub(crate) fn complete(&self, taken: &[Taken]) -> f64 {
        taken.iter().map(|sample| sample.nanos).sum::<f64>() / (self.used_nanos - self.began_nanos)
    }

    /// Of its CPU time since the process had used so much, as samples have it that were taken in turns which began since then.
    pub(crate) fn complete_since(&self, used: Duration, taken: &[Taken]) -> f64 {
        const TENTH_NANOS: u128 = 100_000_000;
        let first = used.as_nanos().div_ceil(TENTH_NANOS);
        let is_since = |sample: &&Taken| label(sample, "tenth").parse::<u128>().is_ok_and(|tenth| tenth >= first);
        let nanos: f64 = taken.iter().filter(is_since).map(|sample| sample.nanos).sum();
        nanos / (self.used_nanos - (first * TENTH_NANOS) as f64)
    }

    /// Checks shares of CPU time, within four standard errors, and that of all samples of a function 999 in 1000 have the labels and one of the spans
    /// under which it runs, and none those of the other one.
    pub(crate) fn check(&self, taken: &[Taken]) {
        let under =
            |endpoint: &str| taken.iter().filter(|sample| label(sample, "endpoint") == endpoint).collect::<Vec<_>>();
        let nanos = |samples: &[&Taken]| samples.iter().map(|sample| sample.nanos).sum::<f64>();
        let counted: i64 =
            taken.iter().filter(|sample| !label(sample, "endpoint").is_empty()).map(|sample| sample.count).sum();
        let (total, sampled) = (
            self.spent_nanos.values().sum::<f64>(),
            self.spent_nanos.keys().map(|endpoint| nanos(&under(endpoint))).sum::<f64>(),
        );
        assert_eq!(self.spent_nanos.len(), 2, "{self:?}");
        for (endpoint, spent) in &self.spent_nanos {
            let (share, truth) = (nanos(&under(endpoint)) / sampled, spent / total);
            let error = (truth * (1.0 - truth) / counted as f64).sqrt();
            assert!((share - truth).abs() <= 4.0 * error, "{endpoint} {share:.4}, it was {truth:.4} ± {error:.4}");
        }
        for (function, endpoint) in [("main.heavy", "/heavy"), ("main.light", "/light")] {
            let of: Vec<&Taken> = taken.iter().filter(|sample| sample.has(function)).collect();
            let count = |is: &dyn Fn(&Taken) -> bool| {
                of.iter().filter(|sample| is(sample)).map(|sample| sample.count).sum::<i64>()
            };
            let all = count(&|_| true);
            let right = count(&|sample| {
                label(sample, "endpoint") == endpoint
                    && !label(sample, "worker").is_empty()
                    && self.is_span_of(sample, endpoint)
            });
            let wrong = count(&|sample| !["", endpoint].contains(&label(sample, "endpoint")));
            assert!(
                all > 100 && wrong == 0 && (all - right) * 1000 <= all,
                "{function}: of {all} samples {right} have its labels, {wrong} others'"
            );
        }
    }

    /// Whether a sample has a span of this endpoint as its link, and no more as a label.
    fn is_span_of(&self, sample: &Taken, endpoint: &str) -> bool {
        let (trace, span) = (sample.link.trace().unwrap_or_default(), sample.link.span().unwrap_or_default());
        let is_known = self.spans.iter().any(|known| *known == [endpoint, &trace, &span]);
        is_known && label(sample, "trace_id").is_empty() && label(sample, "span_id").is_empty()
    }
}

fn label<'a>(sample: &'a Taken, key: &str) -> &'a str {
    sample.labels.get(key).map_or("", String::as_str)
}
