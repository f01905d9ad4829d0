//! What this process tells readers on the same machine, the sidecar and other profilers: who it is, whether it samples
//! itself, and how to read what its threads are working for. That is OpenTelemetry's process context.
//!
//! In: the profile's resource, whether samples are taken, the keys of tags. Out: a mapping named `OTEL_CTX` ([`region`]).
//! Begun by `start`, changed on the `profiler` thread. Whatever fails here is a note in the statistics, and nothing else.
//!
//! Source: OTEP 4719 "Process Context", OTEP 4947 "Thread Context".

mod region;

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use profiler_proto::model::Value;
use profiler_proto::otlp::ProcessContext;
use profiler_proto::resource::Resource;

#[cfg(feature = "heap")]
pub(crate) use self::region::memory_file;
use self::region::{AREA, Region};
use crate::context::{address, keys};

/// Most bytes of the resource. Readers take 64 KiB in all; what is left is for the attributes, the longest of which lists
/// the keys.
const RESOURCE_BYTES: usize = 32 << 10;
/// Most bytes that a key takes beside its own text.
const KEY_BYTES: usize = 8;
/// Most bytes of all other attributes.
const OTHER_BYTES: usize = 1024;

/// What is published. Taken back when dropped.
#[derive(Debug)]
pub(crate) struct Publication {
    resource: Resource,
    /// `None`: nothing is published.
    region: Option<Region>,
    /// What the region says now.
    said: Option<Said>,
    notes: Vec<String>,
}

/// What changes while a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Said {
    sampling: bool,
    keys: usize,
}

impl Publication {
    /// Makes ready to publish, unless somebody else in this process does: there is one process context. `memfd`: the system
    /// call `memfd_create` may be tried. Called by `start`, so that a filter of system calls that comes later finds it done.
    pub(crate) fn begin(resource: &Resource, memfd: bool) -> Self {
        let (resource, left_out) = within(resource, RESOURCE_BYTES);
        let mut this = Self { resource, region: None, said: None, notes: Vec::new() };
        match is_taken() {
            Ok(false) => match Region::map(memfd) {
                Ok(region) => this.region = Some(region),
                Err(error) => this.give_up(&format!("no memory for it: {error}")),
            },
            Ok(true) => this.give_up("another library of this process publishes one already"),
            Err(error) => {
                this.give_up(&format!("/proc/thread-self/maps cannot be read, which would tell of others: {error}"));
            }
        }
        if left_out > 0 {
            let note = "attributes of the resource are not in the process context: it has no more room";
            this.notes.push(format!("{left_out} {note}"));
        }
        this
    }

    /// Says whether samples are taken, and the keys that there are by now. Costs nothing where neither changed.
    pub(crate) fn say(&mut self, sampling: bool) {
        let Some(region) = &mut self.region else { return };
        let now = Said { sampling, keys: keys::count() };
        if self.said == Some(now) {
            return;
        }
        let context = ProcessContext { resource: self.resource.clone(), attributes: attributes(now) };
        match region.put(&context.encode_to_vec()) {
            Ok(()) => self.said = Some(now),
            Err(error) => self.give_up(&error.to_string()),
        }
    }

    /// What is not as it could be.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    fn give_up(&mut self, why: &str) {
        tracing::info!(why, "no process context is published");
        self.notes.push(format!("no process context is published: {why}"));
        self.region = None;
    }
}

/// Whether there is a process context already, of whoever else. Source: OTEP 4719, "Reading Protocol".
fn is_taken() -> io::Result<bool> {
    const NAMES: [&str; 3] = ["[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]", "/memfd:OTEL_CTX"];
    let mut maps = BufReader::new(File::open("/proc/thread-self/maps")?);
    let mut line = Vec::new();
    while maps.read_until(b'\n', &mut line)? > 0 {
        // Behind five fields and the spaces that align it; none of these has one of the characters that a name begins with.
        let name = line.iter().position(|byte| matches!(byte, b'[' | b'/')).map(|at| &line[at..]);
        if name.is_some_and(|name| NAMES.iter().any(|known| name.starts_with(known.as_bytes()))) {
            return Ok(true);
        }
        line.clear();
    }
    Ok(false)
}

/// The resource in at most `room` bytes, `service.name` first, then in order; and how many attributes are left out. What
/// is there is whole.
fn within(resource: &Resource, mut room: usize) -> (Resource, usize) {
    let (mut kept, mut left_out) = (Resource::new(), 0);
    let is_name = |key: &str| key == "service.name";
    let (names, others) = resource.attributes().iter().partition::<Vec<_>, _>(|(key, _)| is_name(key));
    for (key, value) in names.into_iter().chain(others) {
        let alone = Resource::new().with(key.as_str(), value.clone());
        let size = ProcessContext { resource: alone, ..ProcessContext::default() }.encode_to_vec().len();
        match room.checked_sub(size) {
            Some(rest) => {
                room = rest;
                kept.set(key.as_str(), value.clone());
            }
            None => left_out += 1,
        }
    }
    (kept, left_out)
}

/// What readers need to know beside the resource.
fn attributes(Said { sampling, keys }: Said) -> Resource {
    let texts = (0..=keys).map_while(|number| keys::text(u8::try_from(number).ok()?));
    let attributes = Resource::new()
        .with("profiler.cpu", if sampling { "on" } else { "off" })
        .with("threadlocal.schema_version", "tlsdesc_v1_dev")
        .with("threadlocal.attribute_key_map", Value::List(texts.map(Value::from).collect()));
    match address::distance() {
        Some(distance) => attributes.with("profiler.thread_context.tls_offset", distance as i64),
        None => attributes,
    }
}

const _: () = assert!(
    RESOURCE_BYTES + keys::MAX_KEYS * (crate::context::tags::MAX_KEY + KEY_BYTES) + OTHER_BYTES <= AREA,
    "all keys and the resource fit"
);

#[cfg(test)]
mod tests {
    use profiler_proto::Limits;

    use super::*;

    /// Check that a resource of any size is cut between attributes, and that the service's name stays.
    #[test]
    fn a_large_resource_is_cut_between_attributes() {
        let long = "x".repeat(10 << 10);
        let mut resource = Resource::new();
        (0..8).for_each(|number| resource.set(format!("note.{number}"), long.as_str()));
        resource.set("service.name", "checkout");
        let (kept, left_out) = within(&resource, RESOURCE_BYTES);
        assert_eq!((kept.service_name(), kept.attributes().len(), left_out), (Some("checkout"), 4, 5));
        let bytes = ProcessContext { resource: kept, ..ProcessContext::default() }.encode_to_vec();
        assert!(bytes.len() <= RESOURCE_BYTES, "{}", bytes.len());
    }

    fn publish(resource: &Resource, memfd: bool) -> Publication {
        let mut publication = Publication::begin(resource, memfd);
        publication.say(true);
        publication
    }

    /// Check that a process publishes once, that whoever comes second is told so, and that what is published says what it
    /// must and goes when its publisher goes. Without a file it is published where the kernel gives mappings names.
    #[test]
    fn there_is_one_process_context() {
        let _turn = region::tests::turn();
        address::prepare().unwrap();
        let resource = Resource::new().with("service.name", "checkout");
        for memfd in [true, false] {
            let mut first = publish(&resource, memfd);
            let is_due = memfd || region::kernel_has_names();
            assert_eq!(is_taken().unwrap(), is_due, "memfd: {memfd}");
            if !is_due {
                assert!(first.notes()[0].contains("the kernel gives mappings no names"), "{:?}", first.notes());
                continue;
            }
            assert_eq!(first.notes(), &[] as &[String]);
            let second = publish(&resource, memfd);
            assert!(second.notes()[0].contains("another library"), "{:?}", second.notes());
            let number = keys::number("published").unwrap();
            first.say(false);
            let context =
                ProcessContext::decode_bytes(first.region.as_ref().unwrap().payload(), &Limits::default()).unwrap();
            assert_eq!(context.resource, resource);
            let text = |key| context.attributes.get(key).and_then(Value::as_str);
            assert_eq!(
                (text("profiler.cpu"), text("threadlocal.schema_version")),
                (Some("off"), Some("tlsdesc_v1_dev"))
            );
            let Some(Value::List(map)) = context.attributes.get("threadlocal.attribute_key_map") else { panic!() };
            let named = |number: u8| map[usize::from(number)].as_str();
            assert_eq!((named(0), named(number)), (Some("profiler.tags"), Some("published")));
            let offset = context.attributes.get("profiler.thread_context.tls_offset").and_then(Value::as_int);
            assert_eq!(offset, address::distance().map(|distance| distance as i64));
            drop((first, second));
            assert!(!is_taken().unwrap());
        }
    }
}
