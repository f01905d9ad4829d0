//! What an agent exports: OTLP over gRPC to the sidecar's own receiver, in this process.
//!
//! In: an address to listen at. Out: each set with when it came, and samples of CPU time as tests compare them. A thread of its own takes requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use profiler_proto::model::{Link, Sample, Value};
use profiler_proto::{Profile, ProfileSet};
use profiler_sidecar::receive::{Bounds, Intake, bind};

/// A set, with when it came.
pub(crate) type Arrived = (SystemTime, ProfileSet);

/// A receiver that takes what comes until the process ends.
pub(crate) struct Received {
    address: SocketAddr,
    sets: Arc<Mutex<Vec<Arrived>>>,
}

impl Received {
    pub(crate) fn at(address: &str) -> Self {
        let bound = bind(address.parse().unwrap()).unwrap();
        let (address, sets) = (bound.local_addr(), Arc::<Mutex<Vec<Arrived>>>::default());
        let (sink, bounds) = (Arc::clone(&sets), Bounds::default());
        let sink = Box::new(move |set| sink.lock().unwrap().push((SystemTime::now(), set)));
        let intake = Arc::new(Intake::new(sink, bounds.content));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::spawn(move || runtime.block_on(bound.run(intake, bounds)));
        Self { address, sets }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What `read` makes of all that came until now.
    pub(crate) fn all<T>(&self, read: impl FnOnce(&[Arrived]) -> T) -> T {
        read(&self.sets.lock().unwrap())
    }

    /// Samples of CPU time until now, of all processes.
    pub(crate) fn count(&self) -> i64 {
        let of_set = |set: &ProfileSet| of_cpu(set).map(|(_, sample)| sample.value).sum::<i64>();
        self.all(|sets| sets.iter().map(|(_, set)| of_set(set)).sum())
    }

    /// Samples of CPU time of the program that is called so, by process.
    pub(crate) fn of_program(&self, name: &str) -> BTreeMap<u32, Vec<Taken>> {
        let mut taken = BTreeMap::<u32, Vec<Taken>>::new();
        self.all(|sets| {
            for (_, set) in sets.iter().filter(|(_, set)| text(set, "process.executable.name") == name) {
                taken.entry(pid(set)).or_default().extend(samples(set));
            }
        });
        taken
    }
}

/// A sample of CPU time.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) count: i64,
    pub(crate) nanos: f64,
    /// Leaf first.
    pub(crate) names: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) link: Link,
}

impl Taken {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }
}

/// All samples of CPU time in a set.
pub(crate) fn samples(set: &ProfileSet) -> impl Iterator<Item = Taken> {
    of_cpu(set).map(|(profile, sample)| taken(set, profile, sample))
}

/// The process that a set is of; 0 if it says none.
pub(crate) fn pid(set: &ProfileSet) -> u32 {
    match set.resource.get("process.pid") {
        Some(Value::Int(pid)) => u32::try_from(*pid).unwrap(),
        _ => 0,
    }
}

/// An attribute of the process that a set is of; empty if there is none.
pub(crate) fn text<'a>(set: &'a ProfileSet, key: &str) -> &'a str {
    set.resource.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn of_cpu(set: &ProfileSet) -> impl Iterator<Item = (&Profile, &Sample)> {
    let profiles = set.profiles.iter().filter(|profile| profile.kind.is_cpu(&set.dictionary));
    profiles.flat_map(|profile| profile.samples.iter().map(move |sample| (profile, sample)))
}

fn taken(set: &ProfileSet, profile: &Profile, sample: &Sample) -> Taken {
    let dictionary = &set.dictionary;
    let stack = dictionary.stacks.get(sample.stack).unwrap();
    let places = stack.locations.iter().flat_map(|location| dictionary.locations.get(*location).unwrap().lines.iter());
    let name = |line: &profiler_proto::model::Line| dictionary.functions.get(line.function).unwrap().name;
    let labels = dictionary.attributes_of(sample.attributes);
    Taken {
        count: sample.value,
        nanos: sample.value as f64 * profile.kind.period as f64,
        names: places.map(|line| dictionary.strings.text(name(line)).to_owned()).collect(),
        labels: labels.filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned()))).collect(),
        link: dictionary.links.get(sample.link).copied().unwrap_or_default(),
    }
}
