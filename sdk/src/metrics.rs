//! What the profiler says about itself, as metrics of OpenTelemetry.
//!
//! In: a meter of the program's, and snapshots of the figures. Out: what its readers collect, each time they do. Callbacks run on the
//! readers' threads: they take the locks that `stats()` takes, keep nothing of the profiler alive, and say nothing once it has ended.
//!
//! Source of the form: OpenTelemetry specification, "Metrics API"; units are UCUM's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use profiler_proto::loss::Loss;

use crate::stats::{DestinationStats, KindStats, Stats};

/// The figures as they stand; `None` once nothing runs any more.
pub(crate) type Watch = Box<dyn Fn() -> Option<Stats> + Send + Sync>;

/// Has `meter` observe all instruments.
pub(crate) fn observe(meter: &Meter, watch: Watch) {
    let snapshots = Arc::new(Snapshots { watch, last: Mutex::default() });
    for (place, instrument) in INSTRUMENTS.iter().enumerate() {
        let snapshots = Arc::clone(&snapshots);
        instrument.build(meter, move || snapshots.next(place));
    }
}

/// Snapshots for the callbacks of one meter. Each serves every instrument once, so that the figures of one collection agree and the next
/// one has new ones; and only for [`FRESH`], for two readers that collect at once take them from each other.
struct Snapshots {
    watch: Watch,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    /// The instruments that it has served, a bit each.
    served: u32,
    /// With when it was taken.
    stats: Option<(Instant, Arc<Stats>)>,
}

/// How old a snapshot may be: longer than a collection takes.
const FRESH: Duration = Duration::from_secs(1);

impl Snapshots {
    /// The snapshot for the instrument at `place`.
    fn next(&self, place: usize) -> Option<Arc<Stats>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let instrument = 1 << place;
        let is_fresh = last.stats.as_ref().is_some_and(|(taken, _)| taken.elapsed() < FRESH);
        if !is_fresh || last.served & instrument != 0 {
            *last = Last { served: 0, stats: (self.watch)().map(|stats| (Instant::now(), Arc::new(stats))) };
        }
        last.served |= instrument;
        last.stats.as_ref().map(|(_, stats)| Arc::clone(stats))
    }
}

/// One instrument, and how it is read off a snapshot.
struct Instrument {
    name: &'static str,
    unit: &'static str,
    what: &'static str,
    sort: Sort,
    read: fn(&Stats, &mut Observer<'_>),
}

#[derive(Clone, Copy)]
enum Sort {
    /// Only ever grows.
    Counter,
    /// Grows and shrinks.
    Level,
    /// Only ever grows; read in nanoseconds, told in seconds.
    Time,
}

/// Takes a figure with its attributes.
type Observer<'a> = dyn FnMut(u64, &[KeyValue]) + 'a;

/// All there are.
const INSTRUMENTS: &[Instrument] = &[
    counter("profiler.stacks.taken", "{stack}", "On-CPU stacks that fell due", |stats, observe| {
        observe(stats.account.taken, &[]);
    }),
    counter("profiler.stacks.exported", "{stack}", "On-CPU stacks that a destination accepted", |stats, observe| {
        observe(stats.account.exported, &[]);
    }),
    level("profiler.stacks.pending", "{stack}", "On-CPU stacks on their way", |stats, observe| {
        observe(stats.account.pending, &[]);
    }),
    counter("profiler.stacks.lost", "{stack}", "On-CPU stacks that will never arrive", |stats, observe| {
        stats.account.lost.iter().for_each(|(cause, n)| observe(n, &[KeyValue::new(CAUSE, cause.name())]));
    }),
    counter("profiler.stacks.degraded", "{stack}", "On-CPU stacks that are less than perfect", |stats, observe| {
        stats.degraded.iter().for_each(|(flaw, n)| observe(n, &[KeyValue::new("flaw", flaw.name())]));
    }),
    counter("profiler.profiles.offered", "{profile}", "Profiles that were handed to export", |stats, observe| {
        each_kind(stats, observe, |kind| kind.offered);
    }),
    counter("profiler.profiles.exported", "{profile}", "Profiles that a destination accepted", |stats, observe| {
        each_kind(stats, observe, |kind| kind.exported);
    }),
    level("profiler.profiles.pending", "{profile}", "Profiles on their way", |stats, observe| {
        each_kind(stats, observe, |kind| kind.pending);
    }),
    counter("profiler.profiles.lost", "{profile}", "Profiles that will never arrive", |stats, observe| {
        stats.kinds.iter().for_each(|kind| each_cause(&kind.lost, &KeyValue::new("kind", kind.name), observe));
    }),
    counter("profiler.export.delivered", "{stack}", "On-CPU stacks that the destination accepted", |stats, observe| {
        each_destination(stats, observe, |destination| destination.delivered);
    }),
    counter("profiler.export.dropped", "{stack}", "On-CPU stacks that it will never get", |stats, observe| {
        stats.destinations.iter().for_each(|destination| each_cause(&destination.dropped, &name(destination), observe));
    }),
    level("profiler.export.queued", "{stack}", "On-CPU stacks that wait for it", |stats, observe| {
        each_destination(stats, observe, |destination| destination.queued);
    }),
    level("profiler.export.queue.size", "By", "Bodies that wait for it", |stats, observe| {
        each_destination(stats, observe, |destination| destination.queued_bytes);
    }),
    level("profiler.export.spooled", "{stack}", "Those that wait for it on disk alone", |stats, observe| {
        each_destination(stats, observe, |destination| destination.spooled);
    }),
    counter("profiler.export.replayed", "{stack}", "Stacks of earlier processes that it accepted", |stats, observe| {
        each_destination(stats, observe, |destination| destination.replayed);
    }),
    level("profiler.spool.size", "By", "Bodies on disk", |stats, observe| {
        stats.spool.iter().for_each(|spool| observe(spool.bytes, &[]));
    }),
    counter("profiler.export.requests", "{request}", "Requests that came to an end", |stats, observe| {
        each_destination(stats, observe, |destination| destination.requests);
    }),
    counter("profiler.export.retries", "{request}", "Those that sent a body again", |stats, observe| {
        each_destination(stats, observe, |destination| destination.retried);
    }),
    counter("profiler.export.sent", "By", "Bodies handed to a connection, after compression", |stats, observe| {
        each_destination(stats, observe, |destination| destination.sent_bytes);
    }),
    Instrument {
        name: "profiler.export.time",
        unit: "s",
        what: "How long all requests took",
        sort: Sort::Time,
        read: |stats, observe| {
            each_destination(stats, observe, |destination| {
                u64::try_from(destination.total_latency.as_nanos()).unwrap_or(u64::MAX)
            });
        },
    },
];

const CAUSE: &str = "cause";

// A bit in `Last::served` for each.
const _: () = assert!(INSTRUMENTS.len() <= u32::BITS as usize);

type Read = fn(&Stats, &mut Observer<'_>);

const fn counter(name: &'static str, unit: &'static str, what: &'static str, read: Read) -> Instrument {
    Instrument { name, unit, what, sort: Sort::Counter, read }
}

const fn level(name: &'static str, unit: &'static str, what: &'static str, read: Read) -> Instrument {
    Instrument { name, unit, what, sort: Sort::Level, read }
}

fn each_kind(stats: &Stats, observe: &mut Observer<'_>, figure: fn(&KindStats) -> u64) {
    stats.kinds.iter().for_each(|kind| observe(figure(kind), &[KeyValue::new("kind", kind.name)]));
}

fn each_destination(stats: &Stats, observe: &mut Observer<'_>, figure: fn(&DestinationStats) -> u64) {
    stats.destinations.iter().for_each(|destination| observe(figure(destination), &[name(destination)]));
}

/// The causes that have occurred: a series of each, for each kind and each destination, would be many for nothing.
fn each_cause(lost: &Loss, of: &KeyValue, observe: &mut Observer<'_>) {
    let occurred = lost.iter().filter(|(_, n)| *n > 0);
    occurred.for_each(|(cause, n)| observe(n, &[of.clone(), KeyValue::new(CAUSE, cause.name())]));
}

fn name(destination: &DestinationStats) -> KeyValue {
    KeyValue::new("destination", destination.name.clone())
}

impl Instrument {
    /// Has `meter` observe this one in what `next` gives. The instrument itself may go: the meter has the callback.
    fn build(&'static self, meter: &Meter, next: impl Fn() -> Option<Arc<Stats>> + Send + Sync + 'static) {
        let &Self { name, unit, what, .. } = self;
        match self.sort {
            Sort::Counter => {
                let callback = move |to: &dyn AsyncInstrument<u64>| {
                    self.read(next(), |figure, attributes| to.observe(figure, attributes));
                };
                let builder = meter.u64_observable_counter(name).with_unit(unit).with_description(what);
                builder.with_callback(callback).build();
            }
            Sort::Level => {
                let callback = move |to: &dyn AsyncInstrument<i64>| {
                    let signed = |figure| i64::try_from(figure).unwrap_or(i64::MAX);
                    self.read(next(), |figure, attributes| to.observe(signed(figure), attributes));
                };
                let builder = meter.i64_observable_up_down_counter(name).with_unit(unit).with_description(what);
                builder.with_callback(callback).build();
            }
            Sort::Time => {
                let callback = move |to: &dyn AsyncInstrument<f64>| {
                    let seconds = |nanoseconds| Duration::from_nanos(nanoseconds).as_secs_f64();
                    self.read(next(), |nanoseconds, attributes| to.observe(seconds(nanoseconds), attributes));
                };
                let builder = meter.f64_observable_counter(name).with_unit(unit).with_description(what);
                builder.with_callback(callback).build();
            }
        }
    }

    fn read(&self, stats: Option<Arc<Stats>>, mut observe: impl FnMut(u64, &[KeyValue])) {
        if let Some(stats) = stats {
            (self.read)(&stats, &mut observe);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Check that all instruments of a collection are read off one snapshot, those of the next one off a new one, also where a view has
    /// taken the first away; that two collections at once leave nobody behind; and that after the end there is nothing.
    #[test]
    fn the_figures_of_a_collection_are_of_one_snapshot() {
        let taken = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&taken);
        let watch: Watch = Box::new(move || {
            let mut stats = Stats::default();
            stats.account.taken = counted.fetch_add(1, Ordering::Relaxed);
            (stats.account.taken < 5).then_some(stats)
        });
        let snapshots = Snapshots { watch, last: Mutex::default() };
        let age = || {
            let mut last = snapshots.last.lock().unwrap();
            last.stats.as_mut().unwrap().0 -= FRESH;
        };
        let collection = |places: &[usize]| {
            let stats = places.iter().map(|place| snapshots.next(*place).map(|stats| stats.account.taken));
            stats.collect::<Vec<_>>()
        };
        assert_eq!(collection(&[1, 2]), [Some(0); 2]);
        assert_eq!(collection(&[1, 2]), [Some(1); 2]);
        assert_eq!(collection(&[1, 1, 2, 2]), [Some(2), Some(3), Some(3), Some(4)]);
        age();
        assert_eq!(collection(&[1, 2]), [None; 2]);
    }

    /// Check that the page lists each instrument with its unit.
    #[test]
    fn the_page_lists_each_instrument() {
        let page = include_str!("../../docs/export.md");
        for Instrument { name, unit, .. } in INSTRUMENTS {
            let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
            assert!(row.is_some_and(|row| row.contains(&format!("| `{unit}` |"))), "{name} in {unit}");
        }
    }
}
