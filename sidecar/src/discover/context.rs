//! What a process publishes of itself for readers outside: OpenTelemetry's process context.
//!
//! In: the mappings and the memory of a process. Out: [`Published`]: its resource, whether it profiles itself, how the contexts of its
//! threads are read. It changes while it is read: what is taken was whole at one moment. Everything in it is the process's choice:
//! sizes are bounded before anything is read or allocated. Reading can wait for the process: see [`Memory`].
//!
//! Source: OTEP 4719 "Process Context", OTEP 4947 "Thread Context"; `docs/design/0009-the-published-context.md` for `profiler.*`.

use profiler_proto::Limits;
use profiler_proto::model::Value;
use profiler_proto::otlp::ProcessContext;
use profiler_proto::resource::Resource;

use crate::target::{Fault, Folder, Line, Mappings, Memory};

const NAMES: [&[u8]; 3] = [b"[anon_shmem:OTEL_CTX]", b"[anon:OTEL_CTX]", b"/memfd:OTEL_CTX"];
const SIGNATURE: &[u8] = b"OTEL_CTX";
const VERSION: u32 = 2;
/// Most bytes of a payload: what readers take, as OpenTelemetry's own does.
const MOST: usize = 64 << 10;
/// What is asked for of it.
const CPU: &str = "profiler.cpu";
const SCHEMA: &str = "threadlocal.schema_version";
const TLS_OFFSET: &str = "profiler.thread_context.tls_offset";
const KEYS: &str = "threadlocal.attribute_key_map";
/// Most bytes of a value that is kept, and of all keys together.
const LONGEST: usize = 64;
const MOST_KEYS_BYTES: usize = 8 << 10;
/// How often a reading may be disturbed by a change before it is left for later.
const TRIES: usize = 8;

/// What a process publishes.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// Where its header lies.
    pub header: u64,
    /// When it was published; another time for each change.
    pub time: u64,
    /// What it says.
    pub context: ProcessContext,
}

impl Published {
    /// What the process publishes now; `None`: nothing, or it is just being changed.
    ///
    /// # Errors
    /// When the process is gone, or does not let us.
    pub fn read(folder: &Folder, memory: Memory) -> Result<Option<Self>, Fault> {
        let mut found = None;
        Mappings::each(folder, |line| {
            if is_context(line) {
                found = Some(line.start);
            }
            found.is_none()
        })?;
        Ok(found.and_then(|header| Self::at(header, memory)))
    }

    /// What the header at this address leads to.
    #[must_use]
    pub fn at(header: u64, memory: Memory) -> Option<Self> {
        (0..TRIES).find_map(|_| Self::attempt(header, memory))
    }

    /// When what lies at `header` was published; `None`: there is nothing, or it is being changed.
    #[must_use]
    pub fn time_at(header: u64, memory: Memory) -> Option<u64> {
        Header::read(header, memory).map(|header| header.time)
    }

    fn attempt(at: u64, memory: Memory) -> Option<Self> {
        let before = Header::read(at, memory)?;
        let mut payload = vec![0; before.size];
        memory.read_exact(before.payload, &mut payload).ok()?;
        if Header::read(at, memory)? != before {
            return None;
        }
        let limits = Limits { bytes: MOST, memory: 16 * MOST, depth: 8 };
        let context = ProcessContext::decode_bytes(&payload, &limits).ok()?;
        Some(Self { header: at, time: before.time, context })
    }

    /// Whether the process takes CPU samples of itself; `None`: it does not say.
    #[must_use]
    pub fn profiles_cpu(&self) -> Option<bool> {
        match self.context.attributes.get(CPU)?.as_str()? {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        }
    }

    /// Signed bytes from a thread's pointer to the word that points to its record, where the record is laid out as we know it.
    #[must_use]
    pub fn thread_offset(&self) -> Option<i64> {
        let attributes = &self.context.attributes;
        let schema = attributes.get(SCHEMA)?.as_str()?;
        let known = schema == "tlsdesc_v1_dev";
        known.then(|| attributes.get(TLS_OFFSET)?.as_int())?
    }

    /// What of it is asked for as long as the process lives, within bounds: it may say a megabyte, and so may thousands of others. Keys beyond are no tags.
    #[must_use]
    pub(super) fn kept(self) -> Self {
        let mut attributes = Resource::new();
        for key in [CPU, SCHEMA, TLS_OFFSET] {
            let value = self
                .context
                .attributes
                .get(key)
                .filter(|value| value.as_str().is_none_or(|text| text.len() <= LONGEST));
            if let Some(value @ (Value::String(_) | Value::Int(_))) = value {
                attributes.set(key, value.clone());
            }
        }
        let mut room = MOST_KEYS_BYTES;
        let keys = self.keys().into_iter().map_while(|key| {
            room = room.checked_sub(key.len())?;
            Some(Value::from(key))
        });
        let keys: Box<[Value]> = keys.collect();
        if !keys.is_empty() {
            attributes.set(KEYS, Value::List(keys));
        }
        Self { context: ProcessContext { resource: Resource::new(), attributes }, ..self }
    }

    /// The keys of thread contexts, by number.
    #[must_use]
    pub fn keys(&self) -> Vec<&str> {
        match self.context.attributes.get(KEYS) {
            Some(Value::List(keys)) => keys.iter().take(256).map(|key| key.as_str().unwrap_or_default()).collect(),
            _ => Vec::new(),
        }
    }
}

fn is_context(line: &Line<'_>) -> bool {
    line.readable && !line.executable && NAMES.iter().any(|name| line.name.starts_with(name))
}

/// 32 bytes: signature, u32 version, u32 size, u64 time, u64 address of the payload.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    size: usize,
    time: u64,
    payload: u64,
}

impl Header {
    fn read(at: u64, memory: Memory) -> Option<Self> {
        let mut bytes = [0; 32];
        memory.read_exact(at, &mut bytes).ok()?;
        let (signature, rest) = bytes.split_first_chunk::<8>()?;
        let (version, rest) = rest.split_first_chunk::<4>()?;
        let (size, rest) = rest.split_first_chunk::<4>()?;
        let (time, rest) = rest.split_first_chunk::<8>()?;
        let (payload, _) = rest.split_first_chunk::<8>()?;
        let size = usize::try_from(u32::from_ne_bytes(*size)).ok()?;
        let header = Self { size, time: u64::from_ne_bytes(*time), payload: u64::from_ne_bytes(*payload) };
        let is_ours = signature == SIGNATURE && u32::from_ne_bytes(*version) == VERSION;
        (is_ours && header.time != 0 && size <= MOST).then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that of what a process publishes the keys of its tags stay, as many as have room, and what says how to read it, and nothing else.
    #[test]
    fn what_is_kept_has_a_bound() {
        let keys: Vec<Value> = (0..300).map(|number| Value::from(format!("{number:0>100}"))).collect();
        let attributes = Resource::new().with(KEYS, Value::List(keys.into())).with(CPU, "on").with(TLS_OFFSET, -88);
        let attributes = attributes.with(SCHEMA, "x".repeat(LONGEST + 1)).with("other", "x".repeat(60_000));
        let context = ProcessContext { resource: Resource::new().with("a", "b"), attributes };
        let kept = Published { header: 1, time: 2, context }.kept();
        assert_eq!((kept.profiles_cpu(), kept.keys().len()), (Some(true), MOST_KEYS_BYTES / 100));
        assert_eq!(kept.context.attributes.get(TLS_OFFSET), Some(&Value::from(-88)));
        assert_eq!((kept.context.attributes.attributes().len(), kept.context.resource.attributes().len()), (3, 0));
        assert_eq!((kept.header, kept.time), (1, 2));
    }
}
