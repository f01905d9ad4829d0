//! What the agent says of itself at `/stats` and on the page.
//!
//! In: the ledger, what the sampling thread published, the receiver's figures. Out: one snapshot, with a section for what only the agent has.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use profiler::{EngineStats, Figure, Stats, StatsSection};

use super::captures::Figures;
use super::pulls::is_captured;
use super::source::{Handle, View, is_sampled};
use super::{instruments, pulls};
use crate::discover::Target;
use crate::naming;
use crate::receive::Intake;

/// Most processes that have a section of their own.
const MOST: usize = 64;

pub(super) fn stats(handle: &Handle, view: &View) -> Stats {
    let mut stats = Stats::of_ledger(&handle.ledger);
    stats.sampling = view.sampling;
    stats.from_outside = true;
    stats.rate_hz = view.rate_hz();
    stats.engine = engine(view);
    stats.destinations = handle.exporter.get().map(|exporter| exporter.destinations()).unwrap_or_default();
    stats.spool = handle.exporter.get().and_then(|exporter| exporter.spool());
    let naming = view.figures.naming;
    stats.symbols.resolved = naming.frames.saturating_sub(naming.unnamed);
    stats.symbols.unresolved = naming.unnamed;
    stats.sections = vec![kernel(view), stacks(view), processes(view), budget(view)];
    stats.sections.push(captures(&handle.captures));
    stats.sections.push(pulls(&handle.pulls));
    stats.sections.extend(handle.intake.get().map(|intake| received(intake)));
    stats.sections.extend(handle.captures.programs().values().filter_map(instruments::section));
    stats.sections.extend(stacks_by_process(view));
    stats
}

fn engine(view: &View) -> EngineStats {
    let mut engine = EngineStats::default();
    match view.sampling {
        true => engine.name = "ebpf".to_owned(),
        false => engine.refused = vec![("ebpf".to_owned(), "see the log, and `profiler-sidecar doctor`".to_owned())],
    }
    engine
}

fn kernel(view: &View) -> StatsSection {
    let kernel = view.figures.kernel;
    StatsSection::new("kernel")
        .with("seen", kernel.seen)
        .with("sent", kernel.sent)
        .with("ring_full", kernel.ring_full)
        .with("excluded", kernel.excluded)
        .with("foreign_pid_namespace", kernel.foreign_pidns)
        .with("outside", kernel.outside)
        .with("events", kernel.events)
        .with("events_lost", kernel.events_lost)
        .with("without_goroutine", kernel.no_goroutine)
}

fn stacks(view: &View) -> StatsSection {
    let (figures, naming) = (view.figures, view.figures.naming);
    StatsSection::new("stacks")
        .with("sampled", figures.sampled)
        .with("goroutines_unknown", figures.goroutines_unknown)
        .with("left_out", figures.left_out)
        .with("gone", figures.gone)
        .with("unreadable", figures.unreadable)
        .with("whole", naming.whole)
        .with("mended", naming.mended)
        .with("unmended", naming.unmended)
        .with("closed", naming.closed)
        .with("replaced", naming.replaced)
        .with("unanswered", naming.unanswered)
        .with("unmapped", naming.unmapped)
        .with("mappings_left_out", naming.left_out)
        .with("names_bytes", figures.names_bytes)
}

/// How many stacks of each process are whole, of those processes that have most.
fn stacks_by_process(view: &View) -> Vec<StatsSection> {
    let named = |target: &Arc<Target>| Some((Arc::clone(target), *view.stacks.get(&target.process)?));
    let mut all: Vec<(Arc<Target>, naming::Stats)> = view.targets.iter().filter_map(named).collect();
    all.retain(|(_, stats)| stats.stacks > 0);
    all.sort_by_key(|(target, stats)| (Reverse(stats.stacks), target.process));
    let section = |(target, stats): &(Arc<Target>, naming::Stats)| {
        let pid = target.process.pid();
        StatsSection::new(format!("stacks_{pid}"))
            .with("service.name", target.service.clone())
            .with("process.pid", u64::from(pid))
            .with("stacks", stats.stacks)
            .with("whole", stats.whole)
            .with("whole_share", Figure::Number(stats.whole as f64 / stats.stacks as f64))
    };
    all.iter().take(MOST).map(section).collect()
}

fn processes(view: &View) -> StatsSection {
    let is_sampled = |target: &Arc<Target>| view.sampling && is_sampled(target);
    // Of those that are not sampled, what a Go runtime keeps is profiled, or nothing.
    let count = |is: &dyn Fn(&Arc<Target>) -> bool| view.targets.iter().filter(|target| is(target)).count() as u64;
    StatsSection::new("processes")
        .with("known", view.targets.len() as u64)
        .with("profiled", count(&|target| is_sampled(target) || is_captured(target)))
        .with("sampled", count(&is_sampled))
        .with("crowded", view.figures.crowded)
}

fn budget(view: &View) -> StatsSection {
    let section =
        StatsSection::new("self").with("privilege", view.tier.to_string()).with("wanted_hz", u64::from(view.wanted_hz));
    match view.judgement {
        Some(judgement) => section
            .with("cpu_percent", judgement.cpu_percent)
            .with("sampling_percent", judgement.sampling_percent)
            .with("serving_percent", judgement.serving_percent)
            .with("resident_bytes", judgement.resident)
            .with("held_bytes", judgement.held)
            .with("last", judgement.to_string()),
        None => section,
    }
}

fn captures(figures: &Figures) -> StatsSection {
    StatsSection::new("captures")
        .with("sets", figures.sets.load(Ordering::Relaxed))
        .with("refused", figures.refused.load(Ordering::Relaxed))
        .with("missing", figures.missing.load(Ordering::Relaxed))
        .with("partial", figures.partial.load(Ordering::Relaxed))
        .with("without_answer", figures.without_answer.load(Ordering::Relaxed))
        .with("beyond", figures.beyond.load(Ordering::Relaxed))
        .with("metrics_sent", figures.metrics_sent.load(Ordering::Relaxed))
        .with("metrics_failed", figures.metrics_failed.load(Ordering::Relaxed))
        .with("metrics_postponed", figures.metrics_postponed.load(Ordering::Relaxed))
}

fn pulls(figures: &pulls::Figures) -> StatsSection {
    StatsSection::new("pulls")
        .with("endpoints", figures.endpoints.load(Ordering::Relaxed))
        .with("sets", figures.sets.load(Ordering::Relaxed))
        .with("failed", figures.failed.load(Ordering::Relaxed))
        .with("from_outside", figures.from_outside.load(Ordering::Relaxed))
}

fn received(intake: &Intake) -> StatsSection {
    let figures = intake.figures();
    StatsSection::new("received")
        .with("requests", figures.accepted.load(Ordering::Relaxed))
        .with("refused", figures.refused.load(Ordering::Relaxed))
        .with("postponed", figures.postponed.load(Ordering::Relaxed))
        .with("closed_idle", figures.closed_idle.load(Ordering::Relaxed))
        .with("profiles", figures.profiles.load(Ordering::Relaxed))
        .with("rejected_profiles", figures.rejected_profiles.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use profiler::Ledger;

    use super::*;
    use crate::config::{CommandLine, Config};
    use crate::discover::Kind;
    use crate::privilege::Tier;
    use crate::target::Process;

    /// Check that where CPU time is not sampled, native programs do not count as profiled, and Go programs do, for what their runtimes keep.
    #[test]
    fn who_is_not_sampled_is_profiled_only_if_it_is_read() {
        let config = Config::new(CommandLine::default(), &|_| None).unwrap();
        let (handle, _inbox) = Handle::new(Arc::<Ledger>::default(), &config, (Tier::NoEbpf, config.rate_hz));
        let target = |(pid, kind)| Arc::new(Target::bare(Process::new(pid, 1), kind));
        let targets = [(1, Kind::Native), (2, Kind::Go("go1.26.1".into()))].map(target).to_vec();
        handle.publish(targets, Default::default(), Default::default());
        for (samples, profiled, sampled) in [(false, 1, 0), (true, 2, 2)] {
            handle.sampling(samples);
            let sections = profiler::serve::Source::stats(&handle).sections;
            let section = sections.into_iter().find(|section| section.name == "processes").unwrap();
            let expected = StatsSection::new("processes").with("known", 2).with("profiled", profiled);
            assert_eq!(section, expected.with("sampled", sampled).with("crowded", 0));
        }
    }
}
