//! A busy Go program outside of the pod (`tests/go/stranger`), and what tells that somebody looks at it.
//!
//! In: nothing of the pod. Out: whether its file was opened and by whom, as the kernel says (fanotify(7)); whether the page was touched on which the text of its
//! label lies alone, as the page tables say: an eBPF program that reads labels touches it, and whoever reads its memory from outside. Needs root.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::DEADLINE;
use crate::early::build;
use crate::process::{Running, quiet};

/// What everything of it has in its name: file, process, service, label; and its functions.
pub(super) const NAMES: [&str; 2] = ["the-stranger", "main.strange"];

/// At work.
pub(super) struct Stranger {
    running: Running,
    page: String,
    forgotten: u32,
}

impl Stranger {
    pub(super) fn start(folder: &Path) -> Self {
        let program = folder.join(NAMES[0]);
        build("stranger", "go1.22.12", &program);
        let mut command = Command::new(program);
        quiet(command.env("OTEL_SERVICE_NAME", NAMES[0]));
        let running = Running::program(&mut command);
        let page = running.address_after("ready ");
        Self { running, page, forgotten: 0 }
    }

    pub(super) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Has the page count as not touched until the next time.
    pub(super) fn forget(&mut self) {
        // Source: proc_pid_clear_refs(5). The page tables' marks go; the program sees to it that no processor goes by those that it remembers.
        std::fs::write(format!("/proc/{}/clear_refs", self.pid()), "1").unwrap();
        self.forgotten += 1;
        let word = format!("forgotten-{}", self.forgotten);
        self.running.ask(&word, &word);
    }

    /// Whether the page was touched since.
    pub(super) fn is_touched(&self) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{}/smaps", self.pid())).unwrap();
        let mut lines = maps.lines().skip_while(|line| !line.starts_with(&format!("{}-", self.page)));
        // Source: proc_pid_smaps(5).
        let referenced = lines.find_map(|line| line.strip_prefix("Referenced:")).unwrap().trim();
        assert!(["0 kB", "4 kB"].contains(&referenced), "not one page: {referenced}");
        referenced != "0 kB"
    }

    /// Who opened its file since it began.
    pub(super) fn openers(&self) -> Vec<u32> {
        self.running.log().lines().filter_map(|line| line.strip_prefix("opened ")?.parse().ok()).collect()
    }

    /// Checks that for a second of its CPU time nobody touches the page while only who is in the pid namespace `pod` could. Agents of other tests that look at
    /// all processes can, so that a look beside them says nothing.
    pub(super) fn assert_untouched(&mut self, pod: &Path) {
        let until = Instant::now() + 4 * DEADLINE;
        loop {
            self.forget();
            let (began, mut others) = (self.used(), false);
            while self.used() < began + Duration::from_secs(1) {
                assert!(Instant::now() < until, "the stranger is not busy");
                others |= is_looked_at(pod);
                std::thread::sleep(Duration::from_millis(20));
            }
            if !self.is_touched() {
                return;
            }
            assert!(
                others || is_looked_at(pod),
                "the stranger's memory is read, and nobody outside of the pod does so"
            );
            assert!(Instant::now() < until, "others look at all processes all the time");
        }
    }

    /// CPU time of its process until now: user and system, in hundredths of a second (proc_pid_stat(5)).
    fn used(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let ticks: u64 = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
        Duration::from_millis(10 * ticks)
    }
}

/// Whether an agent is at work outside of the pid namespace `pod` that reads labels of processes which nobody named to it.
fn is_looked_at(pod: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let is_such = |process: PathBuf| {
        let line = std::fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        let words: Vec<&str> = line.split('\0').collect();
        let is_run = words.iter().any(|word| word.ends_with("profiler-sidecar")) && words.contains(&"run");
        is_run && !words.contains(&"--pid") && namespace(&process).is_some_and(|namespace| namespace != pod)
    };
    processes.into_iter().any(is_such)
}

/// The pid namespace of a process, as a link; `None` if it is gone.
pub(super) fn namespace(process: &Path) -> Option<PathBuf> {
    std::fs::read_link(process.join("ns/pid")).ok()
}
