//! What profiles of the program `shares` say.

use std::path::Path;

use profiler_proto::ProfileSet;
use profiler_proto::model::{Location, Sample, Value};

use crate::decode;

/// Samples, by what they are of.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Of `main.heavy` or `main.light`.
    pub(crate) samples: i64,
    heavy: i64,
    /// Of these, with the label of the function that they are in.
    labelled: i64,
    /// With a label of the other one.
    mislabelled: i64,
    /// With the function that is inlined as the leaf, in the function that it is inlined into.
    inlined: i64,
    /// Whose root is `runtime.main`, through `main.under`.
    whole: i64,
    /// `service.name`, each once.
    pub(crate) services: Vec<String>,
}

impl Shares {
    /// Those of all pprof files in a folder, from the first on in which all have labels: samples before it may have been taken before the
    /// kernel side was told where these are.
    pub(crate) fn of_files(folder: &Path) -> Self {
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let written = paths.filter(|path| path.extension().is_some_and(|extension| extension == "gz"));
        let mut sets: Vec<ProfileSet> = written.map(|path| decode(&std::fs::read(path).unwrap())).collect();
        sets.sort_by_key(|set| set.profiles.first().map(|profile| profile.time_unix_nanos));
        let mut shares = Self::default();
        for set in &sets {
            let mut one = Self::default();
            one.add(set);
            if shares.samples > 0 || one.labelled == one.samples {
                shares.add(set);
            }
        }
        shares
    }

    pub(crate) fn add(&mut self, set: &ProfileSet) {
        let service = service(set);
        if !service.is_empty() && !self.services.contains(&service) {
            self.services.push(service);
        }
        let profile = set.profiles.iter().find(|profile| profile.kind.is_cpu(&set.dictionary));
        profile.iter().flat_map(|profile| &profile.samples).for_each(|sample| self.add_sample(set, sample));
    }

    fn add_sample(&mut self, set: &ProfileSet, sample: &Sample) {
        let stack = set.dictionary.stacks.get(sample.stack).unwrap();
        let places: Vec<&Location> =
            stack.locations.iter().map(|location| set.dictionary.locations.get(*location).unwrap()).collect();
        let name = |line: &profiler_proto::model::Line| {
            let function = set.dictionary.functions.get(line.function).unwrap();
            set.dictionary.strings.text(function.name).to_owned()
        };
        let names: Vec<Vec<String>> = places.iter().map(|place| place.lines.iter().map(name).collect()).collect();
        let all: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
        let (own, other) = match () {
            () if all.contains(&"main.heavy") => ("/heavy", "/light"),
            () if all.contains(&"main.light") => ("/light", "/heavy"),
            () => return,
        };
        self.samples += sample.value;
        self.heavy += if own == "/heavy" { sample.value } else { 0 };
        match set.dictionary.value_of(sample.attributes, "endpoint") {
            Some(Value::String(label)) if **label == *own => self.labelled += sample.value,
            Some(Value::String(label)) if **label == *other => self.mislabelled += sample.value,
            _ => {}
        }
        // Where the kernel was interrupted, its frames stand before.
        let inlined = |place: &Vec<String>| matches!(&place[..], [leaf, into] if leaf == "main.mix" && ["main.heavy", "main.light"].contains(&into.as_str()));
        self.inlined += if names.iter().any(inlined) { sample.value } else { 0 };
        let whole = all.contains(&"main.under") && all.contains(&"runtime/pprof.Do") && all.contains(&"runtime.main");
        self.whole += if whole { sample.value } else { 0 };
    }

    pub(crate) fn has_no_labels(&self) -> bool {
        self.labelled + self.mislabelled == 0
    }

    /// Three quarters in `main.heavy`, within six standard errors; labels on at least this part; none on the wrong ones; inlined leaves;
    /// whole stacks.
    pub(crate) fn assert_as_built(&self, labelled: f64) {
        let samples = self.samples as f64;
        let share = self.heavy as f64 / samples;
        let error = (0.75 * 0.25 / samples).sqrt();
        // One turn of a function, or slice of the scheduler, holds several samples, so that they are not independent: half as much again as four.
        assert!((share - 0.75).abs() < 6.0 * error, "{share} {self:?}");
        assert!(self.labelled as f64 >= labelled * samples, "{self:?}");
        assert_eq!(self.mislabelled, 0, "{self:?}");
        assert!(self.inlined > self.samples / 10, "{self:?}");
        assert!(self.whole as f64 >= 0.99 * samples, "{self:?}");
    }
}

/// `service.name`: as a comment, for that is where pprof has the resource.
pub(crate) fn service(set: &ProfileSet) -> String {
    let comments = set.dictionary.attributes.entries();
    let texts = comments.flat_map(|(_, attribute)| match &attribute.value {
        Value::String(text) => vec![text.to_string()],
        Value::List(texts) => texts.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    });
    texts.filter_map(|text| text.strip_prefix("service.name=").map(str::to_owned)).next().unwrap_or_default()
}
