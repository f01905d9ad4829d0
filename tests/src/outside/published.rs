//! The process context of another process.
//!
//! In: `/proc/PID/maps` and `/proc/PID/mem`. Out: what the process says of itself, whole, however often it changes that
//! meanwhile.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use profiler_proto::Limits;
use profiler_proto::model::Value;
use profiler_proto::otlp::ProcessContext;

use crate::Result;

const NAMES: [&str; 3] = ["[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]", "/memfd:OTEL_CTX"];
/// Readers of the specification take no more.
const LARGEST: u32 = 64 << 10;
/// How often a context may change while it is read.
const TRIES: usize = 1000;

/// The memory of another process.
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    /// Of the process `pid`, which must be one that the caller may trace.
    ///
    /// # Errors
    /// When it may not, or there is none.
    pub fn of(pid: u32) -> Result<Self> {
        Ok(Self(File::open(format!("/proc/{pid}/mem"))?))
    }

    /// Fills `into` from `address` on.
    ///
    /// # Errors
    /// When there is nothing.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<()> {
        self.0
            .read_exact_at(into, address)
            .map_err(|error| format!("{} bytes at {address:#x}: {error}", into.len()).into())
    }

    /// The eight bytes at `address`.
    ///
    /// # Errors
    /// When there is nothing.
    pub fn word(&self, address: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// What a process publishes, at one time.
#[derive(Debug, Clone)]
pub struct Published {
    /// When; another time for every change.
    pub at: u64,
    /// Bytes of the message.
    pub size: u32,
    /// The message.
    pub context: ProcessContext,
}

impl Published {
    /// What the process `pid` publishes now; `None`: nothing.
    ///
    /// # Errors
    /// When it cannot be read, or breaks a rule.
    pub fn of(pid: u32, memory: &Memory) -> Result<Option<Self>> {
        let Some(header) = header(pid, memory)? else { return Ok(None) };
        for _ in 0..TRIES {
            let before = memory.word(header + 16)?;
            let mut size = [0; 4];
            memory.read(header + 12, &mut size)?;
            let (size, payload) = (u32::from_ne_bytes(size), memory.word(header + 24)?);
            if before == 0 || size > LARGEST {
                continue;
            }
            let mut bytes = vec![0; size as usize];
            memory.read(payload, &mut bytes)?;
            if memory.word(header + 16)? == before {
                let context = ProcessContext::decode_bytes(&bytes, &Limits::default())?;
                return Ok(Some(Self { at: before, size, context }));
            }
        }
        Err("the context never stands still".into())
    }

    /// A further attribute that is a text.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.context.attributes.get(key).and_then(Value::as_str)
    }

    /// Distance of a thread's pointer to its record from the thread pointer.
    #[must_use]
    pub fn tls_offset(&self) -> Option<i64> {
        self.context.attributes.get("profiler.thread_context.tls_offset").and_then(Value::as_int)
    }

    /// The keys by their numbers.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let keys = match self.context.attributes.get("threadlocal.attribute_key_map") {
            Some(Value::List(keys)) => &keys[..],
            _ => &[],
        };
        keys.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }
}

/// Where the header is. Mappings of the name without its signature and version are somebody else's.
fn header(pid: u32, memory: &Memory) -> Result<Option<u64>> {
    for line in fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
        let name = line.splitn(6, ' ').nth(5).map_or("", str::trim_start);
        if !NAMES.iter().any(|known| name.starts_with(known)) {
            continue;
        }
        let start = line.split('-').next().ok_or("a mapping without a start")?;
        let start = u64::from_str_radix(start, 16)?;
        let mut head = [0; 12];
        memory.read(start, &mut head)?;
        if head[..8] == *b"OTEL_CTX" && head[8..] == 2_u32.to_ne_bytes() {
            return Ok(Some(start));
        }
    }
    Ok(None)
}
