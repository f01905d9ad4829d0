//! A request: 10,000 samples of the shop in 10 s, as gzip OTLP, without and with tags and a span for each of the shop's requests.
//!
//! The shop serves for longer than a window at 2 kHz; of the window with the most samples 10,000 are drawn, each as likely as any other. *Bytes*
//! are those of the encoded request; *for each link*, what the same samples without their spans lack, over the spans that are different; *beyond 60 KB*, what
//! is more than that, over the same.
//! *Time* is CPU time of the thread that offers the set to an exporter: dividing, encoding, compressing, queueing; the median. *Memory* is what
//! the allocator gave out more at the peak of that, compared with the request before compression and after.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use profiler::Ledger;
use profiler::export::{Exporter, Limits, Otlp, resolve};
use profiler_proto::loss::stacks_of;
use profiler_proto::model::LinkId;
use profiler_proto::{ProfileSet, Sample, otlp};
use profiler_tests::Result;
use profiler_tests::clock::thread_cpu;
use profiler_tests::receiver::Receiver;
use profiler_tests::statistics::median;
use profiler_tests::workload::Random;

use super::{add, load, shop};
use crate::allocated::peak_of;
use crate::lab::Lab;
use crate::report::Report;
use crate::shop::Serving;

/// Bytes that a request without spans may have.
const BUDGET: f64 = 60e3;
/// Samples of a request.
const SAMPLES: u64 = 10_000;
/// So that a window has more of them, on one processor too.
const RATE_HZ: u32 = 2000;

pub(super) fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    for (spans, described) in [(false, ""), (true, ", tags and a span per request")] {
        // As the profiler makes it: without what nothing refers to.
        let set = drawn(window(lab, spans)?).compacted();
        let samples: i64 = set.profiles[0].samples.iter().map(|sample| sample.value).sum();
        let (plain, bytes) = encoded(&set)?;
        let what = format!("{samples} samples of the shop{described}");
        add(report, format!("gzip OTLP, {what}"), "KB", 1, bytes as f64 / 1e3);
        let links: HashSet<LinkId> = set.profiles[0].samples.iter().map(|sample| sample.link).collect();
        let links = links.into_iter().filter(|link| *link != LinkId::default()).count();
        if links > 0 {
            let (_, without) = encoded(&without_links(&set))?;
            add(report, format!("gzip OTLP without its links, {what}"), "KB", 1, without as f64 / 1e3);
            add(
                report,
                format!("gzip OTLP for each of {links} links"),
                "B",
                1,
                (bytes - without) as f64 / links as f64,
            );
            let beyond = bytes as f64 - BUDGET;
            add(report, format!("gzip OTLP beyond 60 KB, for each of {links} links"), "B", 1, beyond / links as f64);
        }
        let (milliseconds, peak) = offered(&Arc::new(set), if lab.quick { 5 } else { 51 })?;
        add(report, format!("CPU of encoding, {what}"), "ms", 2, milliseconds);
        add(report, format!("peak memory ÷ request, {what}"), "", 2, peak as f64 / plain as f64);
        add(report, format!("peak memory ÷ request as gzip, {what}"), "", 2, peak as f64 / bytes as f64);
    }
    Ok(())
}

/// The window of a shop under load that has most samples.
fn window(lab: &Lab, spans: bool) -> Result<ProfileSet> {
    let receiver = Receiver::start()?;
    let shop = shop(lab, Serving { rate_hz: RATE_HZ, spans }, &receiver.endpoint())?;
    load(lab, &shop, Duration::from_secs(if lab.quick { 11 } else { 22 }))?;
    shop.program.finish()?.json()?;
    let sets = receiver.bodies().into_iter().flat_map(|body| body.profiles);
    let on_cpu = sets.filter(|set| set.profiles.len() == 1 && set.profiles[0].kind.is_cpu(&set.dictionary));
    let most = on_cpu.max_by_key(|set| stacks_of(&set.profiles[0], &set.dictionary));
    Ok(most.ok_or("no profile of CPU time arrived")?)
}

/// So many samples of `set`, each as likely as any other; all of them where there are no more.
fn drawn(mut set: ProfileSet) -> ProfileSet {
    let mut random = Random::new(SAMPLES);
    let samples = &mut set.profiles[0].samples;
    let mut left: u64 = samples.iter().map(|sample| sample.value.unsigned_abs()).sum();
    let mut wanted = SAMPLES.min(left);
    for sample in samples.iter_mut() {
        let mut kept = 0;
        for _ in 0..sample.value {
            // Selection sampling: Knuth, The Art of Computer Programming, volume 2, 3.4.2, algorithm S.
            if random.below(left) < wanted {
                (kept, wanted) = (kept + 1, wanted - 1);
            }
            left -= 1;
        }
        sample.value = kept;
    }
    samples.retain(|sample| sample.value > 0);
    set
}

/// The same without spans: what differed by them alone is one.
fn without_links(set: &ProfileSet) -> ProfileSet {
    let mut set = set.clone();
    let mut merged: BTreeMap<_, Sample> = BTreeMap::new();
    for sample in std::mem::take(&mut set.profiles[0].samples) {
        let bare = Sample { link: LinkId::default(), value: 0, ..sample };
        merged.entry((sample.stack, sample.attributes)).or_insert(bare).value += sample.value;
    }
    set.profiles[0].samples = merged.into_values().collect();
    set
}

/// Bytes of the request, and of that as gzip, written as it is sent.
fn encoded(set: &ProfileSet) -> Result<(usize, usize)> {
    let compact = set.compacted();
    let request = otlp::Request::of(&compact);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::new(5));
    request.write(&mut gzip)?;
    Ok((request.bytes(), gzip.finish()?.len()))
}

/// CPU time in milliseconds to make `set` ready to be sent, and what that takes of memory at its peak.
fn offered(set: &Arc<ProfileSet>, rounds: u32) -> Result<(f64, usize)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _inside = runtime.enter();
    // Nothing is sent: nobody drives the runtime.
    let targets = resolve(vec![Otlp::grpc("http://127.0.0.1:9").into()], &|_| None)?;
    let exporter = Exporter::start(targets, Arc::new(Ledger::default()), Limits::default())?;
    exporter.offer(Arc::clone(set));
    let ((), peak) = peak_of(|| exporter.offer(Arc::clone(set)));
    let time = |_| {
        let before = thread_cpu();
        exporter.offer(Arc::clone(set));
        (thread_cpu() - before).as_secs_f64() * 1e3
    };
    Ok((median(&(0..rounds).map(time).collect::<Vec<_>>()), peak))
}
