//! The line of `/proc/PID/stat`: since when a process runs, which state it is in, and where its program and its variables lie.
//!
//! In: the bytes of the file. Out: [`Stat`], or `None` where they are not such a line. The name in it is the process's choice:
//! parentheses, spaces and line feeds included.
//!
//! Source: proc_pid_stat(5); fs/proc/array.c, `do_task_stat`. Fields are numbered as the man page does, from 1.

/// What we need of the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Field 2, `comm`: the name of the main thread, at most 15 bytes of a process's choice.
    pub comm: String,
    /// Field 3.
    pub state: State,
    /// Field 4: the parent's pid.
    pub parent: u32,
    /// Field 9: `PF_KTHREAD`, a thread of the kernel's own.
    pub is_kernel_thread: bool,
    /// Field 20: its threads.
    pub threads: u64,
    /// Field 22: ticks of `_SC_CLK_TCK` from boot to its start.
    pub start_time: u64,
    /// Fields 26 and 28: where code and stack begin. Another program has them elsewhere, as addresses are random. Both say
    /// nothing (0 or 1) about a process that we may not look at.
    pub layout: (u64, u64),
    /// Fields 50 and 51: where the variables begin, and end, with which the program was started. Both are 0 of a process that we may not
    /// look at.
    pub environment: (u64, u64),
}

/// Field 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It can run, or waits for something.
    Alive,
    /// It ended, all its threads, and waits to be asked for its outcome (`Z`, `X`).
    Ended,
}

/// include/linux/sched.h, `PF_KTHREAD`.
const KERNEL_THREAD: u64 = 0x0020_0000;

impl Stat {
    /// Reads the line.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let open = bytes.iter().position(|byte| *byte == b'(')?;
        let close = bytes.iter().rposition(|byte| *byte == b')')?;
        let comm = String::from_utf8_lossy(bytes.get(open + 1..close)?).into_owned();
        let rest = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().take(49).collect();
        // The first of `fields` is field 3.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let threads = number(20)?;
        let state = match *fields.first()? {
            // The state is that of the main thread, which may end before the others.
            "Z" | "X" | "x" if threads <= 1 => State::Ended,
            _ => State::Alive,
        };
        Some(Self {
            comm,
            state,
            parent: u32::try_from(number(4)?).ok()?,
            is_kernel_thread: number(9)? & KERNEL_THREAD != 0,
            threads,
            start_time: number(22)?,
            layout: (number(26)?, number(28)?),
            environment: (number(50).unwrap_or(0), number(51).unwrap_or(0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REST: &str = "S 41 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 98765 1000 200 18446744073709551615 4096 8192 140000 0 \
                        0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 9000 9100 9200 140100 140200 140200 140300 0";

    /// Check that the fields are those of the man page, whatever a process calls itself.
    #[test]
    fn a_name_cannot_pass_for_fields() {
        for name in ["cat", "a b", "(sd-pam)", ") R 1 1 1 1", "x\ny", ""] {
            let stat = Stat::parse(format!("42 ({name}) {REST}\n").as_bytes()).unwrap();
            let expected = Stat {
                comm: name.to_owned(),
                state: State::Alive,
                parent: 41,
                is_kernel_thread: false,
                threads: 3,
                start_time: 98765,
                layout: (4096, 140_000),
                environment: (140_200, 140_300),
            };
            assert_eq!(stat, expected);
        }
        let kernel = format!("2 (kthreadd) {}", REST.replace("4194560", "2129984"));
        assert!(Stat::parse(kernel.as_bytes()).unwrap().is_kernel_thread);
        let ended = format!("2 (x) {}", REST.replacen('S', "Z", 1));
        assert_eq!(Stat::parse(ended.as_bytes()).unwrap().state, State::Alive, "two threads run on");
        assert_eq!(Stat::parse(ended.replace("20 0 3", "20 0 1").as_bytes()).unwrap().state, State::Ended);
    }

    proptest! {
        /// Check that no bytes are too strange.
        #[test]
        fn garbage_is_no_line(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Stat::parse(&bytes);
        }
    }
}
