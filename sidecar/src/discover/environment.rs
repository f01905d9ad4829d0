//! The variables with which a process was started.
//!
//! In: `/proc/PID/environ`, or the same bytes in the memory of the process: the file is its owner's alone, whom `CAP_SYS_PTRACE` does not stand for.
//! Out: single values by name. What is there can be secret: it is read, asked for the names that documentation lists, and forgotten. A process
//! can write over it, so it is words, not facts. Reading can wait for the process: see [`Memory`].
//!
//! Source: proc_pid_environ(5): `NAME=value`, each with a zero behind; fs/proc/base.c, `environ_read`: from `env_start` to `env_end`.

use crate::target::{Fault, Folder, Memory, stat};

/// Most bytes that are read; variables behind them are not seen. The kernel takes 128 KiB for one variable (`MAX_ARG_STRLEN`).
const MOST: usize = 512 << 10;

/// The variables of a process.
#[derive(Clone, Default)]
pub struct Environment {
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Environment {
    /// Without the values.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Environment({} bytes)", self.bytes.len())
    }
}

impl Environment {
    /// Reads those of the process that `folder` is of.
    ///
    /// # Errors
    /// When the process is gone, or does not let us.
    pub fn read(folder: &Folder, memory: Memory) -> Result<Self, Fault> {
        let (bytes, is_cut) = match folder.read("environ", MOST) {
            Err(Fault::Refused { .. }) => Self::in_memory(folder, memory)?,
            outcome => outcome?,
        };
        Ok(Self::parse(bytes, is_cut))
    }

    /// What the file would show, and whether there was more.
    fn in_memory(folder: &Folder, memory: Memory) -> Result<(Vec<u8>, bool), Fault> {
        let (start, end) = stat(folder)?.environment;
        let length = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(MOST)];
        let read = memory.read(start, &mut bytes)?;
        bytes.truncate(read);
        // Another program, or another process of this number, has its variables elsewhere or is not the folder's.
        if stat(folder)?.environment != (start, end) {
            return Err(Fault::Unclear { pid: folder.pid(), what: "environment".into() });
        }
        Ok((bytes, read < length))
    }

    /// Those in `bytes`; the last one is left out where there were more bytes.
    #[must_use]
    pub fn parse(mut bytes: Vec<u8>, is_cut: bool) -> Self {
        if is_cut {
            bytes.truncate(bytes.iter().rposition(|byte| *byte == 0).unwrap_or(0));
        }
        Self { bytes }
    }

    /// Those of this process.
    #[must_use]
    pub fn own() -> Self {
        let mut bytes = Vec::new();
        for (name, value) in std::env::vars_os() {
            bytes.extend(name.as_encoded_bytes());
            bytes.push(b'=');
            bytes.extend(value.as_encoded_bytes());
            bytes.push(0);
        }
        Self { bytes }
    }

    /// The value of the first variable of this name, without white space around it. Empty is the same as unset, as OpenTelemetry says, and
    /// so is what is not UTF-8.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        let value = self
            .bytes
            .split(|byte| *byte == 0)
            .find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        Some(std::str::from_utf8(value).ok()?.trim()).filter(|value| !value.is_empty())
    }

    /// The first of several variables that is set.
    #[must_use]
    pub fn first(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.value(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names match as a whole, the first of a name counts, and nothing odd is taken for a value.
    #[test]
    fn values_are_found_by_their_whole_name() {
        let text = b"POD=a\0K8S_POD=b\0POD_NAME= c d \0EMPTY=\0POD=second\0=x\0odd\0BAD=\xff\0LAST=cut";
        let whole = Environment::parse(text.to_vec(), false);
        let of = |name| whole.value(name);
        assert_eq!((of("POD"), of("POD_NAME"), of("EMPTY")), (Some("a"), Some("c d"), None));
        assert_eq!((of("odd"), of("BAD"), of("K8S"), of("LAST")), (None, None, None, Some("cut")));
        assert_eq!(whole.first(&["EMPTY", "NONE", "POD_NAME"]), Some("c d"));
        assert_eq!(Environment::parse(text.to_vec(), true).value("LAST"), None);
        assert_eq!(Environment::parse(b"A=1".to_vec(), true).value("A"), None);
    }

    /// Check that values, which may be secrets, are not in what is logged.
    #[test]
    fn values_are_not_shown() {
        assert_eq!(format!("{:?}", Environment::parse(b"KEY=secret".to_vec(), false)), "Environment(10 bytes)");
    }
}
