//! What the kernel says of itself and of us: version, BTF, capabilities, settings, namespaces.
//!
//! In: small files of `/proc` and `/sys`, below a root that a test chooses. Out: one [`Check`] each. Nothing is tried here but reading.
//!
//! Source: capabilities(7), proc(5), proc_sys_kernel(5), pid_namespaces(7), Documentation/admin-guide/LSM/Yama.rst.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use super::check::Check;
use crate::privilege::{Capability, Missing, Privilege, Set, WANTED, granted_by};
use crate::target::numbers;

/// The kernel that the eBPF side is made for.
const FLOOR: (u32, u32) = (5, 15);
/// Bytes of `/proc/kallsyms` among which one address is not zero, where addresses are shown: few of the first symbols lie at zero.
const FIRST_SYMBOLS: u64 = 64 << 10;

/// The files.
#[derive(Debug, Clone)]
pub struct System {
    root: PathBuf,
    pid: u32,
}

impl System {
    /// Those of this machine.
    #[must_use]
    pub fn here() -> Self {
        Self { root: "/".into(), pid: std::process::id() }
    }

    /// Those below `root`, as process `pid` sees them.
    #[must_use]
    pub fn at(root: &Path, pid: u32) -> Self {
        Self { root: root.to_owned(), pid }
    }

    /// All checks, in the order in which they matter.
    #[must_use]
    pub fn checks(&self) -> Vec<Check> {
        let mut checks = vec![self.kernel(), self.btf()];
        checks.extend(self.lockdown());
        checks.extend(self.capabilities());
        checks.extend([self.paranoid(), self.ticks(), self.pointers()].into_iter().flatten());
        checks.extend([self.yama(), self.confinement()].into_iter().flatten());
        checks.extend([self.seccomp(), self.proc_mount(), self.pid_namespace(), self.cgroup()].into_iter().flatten());
        checks
    }

    fn text(&self, path: &str) -> Option<String> {
        let bytes = std::fs::read(self.root.join(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\0', ' ']).to_owned())
    }

    fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.trim().parse().ok()
    }

    fn kernel(&self) -> Check {
        const NAME: &str = "kernel";
        let Some(release) = self.text("proc/sys/kernel/osrelease") else {
            return Check::lacks(NAME, "its version is not to be read", "mount /proc");
        };
        let mut numbers = release.split(['.', '-', '+']).map(|part| part.parse::<u32>().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if version >= FLOOR {
            return Check::works(NAME, release);
        }
        let (major, minor) = FLOOR;
        let found = format!("{release}, older than {major}.{minor}: what samples CPU time may not load");
        Check::lacks(NAME, found, format!("use Linux {major}.{minor} or newer"))
    }

    fn btf(&self) -> Check {
        const NAME: &str = "BTF";
        match std::fs::metadata(self.root.join("sys/kernel/btf/vmlinux")) {
            Ok(file) => Check::works(NAME, format!("/sys/kernel/btf/vmlinux, {} KiB", file.len() >> 10)),
            Err(_) => Check::lacks(
                NAME,
                "there is no /sys/kernel/btf/vmlinux: offsets in the kernel's structures are not known",
                "use a kernel with CONFIG_DEBUG_INFO_BTF=y, and mount /sys",
            ),
        }
    }

    fn lockdown(&self) -> Option<Check> {
        let modes = self.text("sys/kernel/security/lockdown")?;
        modes.contains("[confidentiality]").then(|| {
            let found = "lockdown is in force for confidentiality: eBPF may not read memory";
            Check::fails("lockdown", found, "boot with lockdown=integrity, or without")
        })
    }

    fn status(&self, key: &str) -> Option<String> {
        let status = self.text("proc/self/status")?;
        status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(|value| value.trim().to_owned())
    }

    /// What the calling thread may do.
    fn effective(&self) -> Set {
        Set::of(self.status("CapEff").and_then(|set| u64::from_str_radix(&set, 16).ok()).unwrap_or(0))
    }

    fn has(&self, capability: Capability) -> bool {
        Privilege::of(self.effective()).has(capability)
    }

    fn capabilities(&self) -> Vec<Check> {
        let check = |capability: Capability| {
            let (name, missing) = (capability.name(), Missing(capability));
            match capability {
                _ if self.has(capability) => Check::works(name, "there"),
                Capability::Bpf | Capability::Perfmon => Check::fails(name, missing.lost(), granted_by(name)),
                _ => Check::lacks(name, missing.lost(), granted_by(name)),
            }
        };
        let restore = Capability::CheckpointRestore;
        let lost = || format!("not there: {}", Missing(restore).lost());
        // It is not asked for.
        let restore = Check::works(restore.name(), if self.has(restore) { "there".to_owned() } else { lost() });
        WANTED.into_iter().map(check).chain([restore]).collect()
    }

    fn paranoid(&self) -> Option<Check> {
        const NAME: &str = "perf_event_paranoid";
        let level = self.number("proc/sys/kernel/perf_event_paranoid")?;
        if level > 2 && self.has(Capability::Perfmon) && !self.effective().has(Capability::SysAdmin) {
            // Kernels that have such levels ask for it, most of them; whether this one does, the attempt says.
            let found = format!("{level}, beyond 2: kernels of some distributions ask for CAP_SYS_ADMIN then");
            return Some(Check::works(NAME, format!("{found}; the attempt to sample shows whether this one does")));
        }
        if self.has(Capability::Perfmon) {
            return Some(Check::works(NAME, format!("{level}, which CAP_PERFMON outweighs")));
        }
        Some(Check::fails(NAME, format!("{level}: no clock on whole processors"), "add CAP_PERFMON"))
    }

    /// How many ticks a second the kernel lets through. Where that is no more than its own ticks, newer ones hold back each of ours until the next of theirs: that time is told by none.
    ///
    /// Source: kernel/events/core.c, `__perf_event_account_interrupt`.
    fn ticks(&self) -> Option<Check> {
        const NAME: &str = "perf_event_max_sample_rate";
        /// The highest `CONFIG_HZ`.
        const OWN: i64 = 1000;
        let highest = self.number("proc/sys/kernel/perf_event_max_sample_rate")?;
        if highest > OWN {
            return Some(Check::works(NAME, format!("{highest} ticks a second")));
        }
        let found =
            format!("{highest} ticks a second: the kernel may hold back ours, and less CPU time be told than was used");
        Some(Check::lacks(NAME, found, "sysctl kernel.perf_event_max_sample_rate=100000 on the node"))
    }

    fn pointers(&self) -> Option<Check> {
        const NAME: &str = "kptr_restrict";
        let level = self.number("proc/sys/kernel/kptr_restrict")?;
        let remedy = "sysctl kernel.kptr_restrict=1 on the node";
        Some(match level {
            2.. => Check::lacks(NAME, format!("{level}: functions of the kernel have no names"), remedy),
            1 if !self.has(Capability::Syslog) => {
                Check::lacks(NAME, "1: functions of the kernel have no names", "add CAP_SYSLOG")
            }
            _ => self.symbols().unwrap_or_else(|| Check::works(NAME, level.to_string())),
        })
    }

    /// What keeps the kernel's names from us, though the level does not: the file may be hidden, and shows zeros for further reasons.
    fn symbols(&self) -> Option<Check> {
        const NAME: &str = "kallsyms";
        let file = match File::open(self.root.join("proc/kallsyms")) {
            Ok(file) => file,
            Err(error) => {
                let found = format!("/proc/kallsyms: {error}: functions of the kernel have no names");
                let remedy = "take away what hides it, as ProtectKernelTunables= of systemd does";
                return Some(Check::lacks(NAME, found, remedy));
            }
        };
        let mut lines = BufReader::new(file.take(FIRST_SYMBOLS)).lines().map_while(Result::ok);
        let has_address = |line: String| line.bytes().take_while(u8::is_ascii_hexdigit).any(|digit| digit != b'0');
        if lines.any(has_address) {
            return None;
        }
        let found = "/proc/kallsyms shows no addresses: functions of the kernel have no names";
        let remedy = if self.has(Capability::Syslog) {
            "take away what hides it, as ProtectKernelTunables= of systemd does"
        } else {
            "add CAP_SYSLOG"
        };
        Some(Check::lacks(NAME, found, remedy))
    }

    fn yama(&self) -> Option<Check> {
        const NAME: &str = "ptrace_scope";
        let scope = self.number("proc/sys/kernel/yama/ptrace_scope")?;
        Some(match scope {
            3.. => Check::lacks(
                NAME,
                "3: nobody reads others' memory: no heap, no goroutines",
                "set kernel.yama.ptrace_scope=1 and boot",
            ),
            1.. if !self.has(Capability::SysPtrace) => Check::lacks(
                NAME,
                format!("{scope}: others' memory is closed to us: no heap, no goroutines"),
                "add CAP_SYS_PTRACE",
            ),
            _ => Check::works(NAME, scope.to_string()),
        })
    }

    fn confinement(&self) -> Option<Check> {
        let label = self.text("proc/self/attr/current").filter(|label| !label.is_empty() && label != "unconfined")?;
        let found = format!("{label}: what it forbids, the attempts and the processes below show");
        Some(Check::works("AppArmor, SELinux", found))
    }

    fn seccomp(&self) -> Option<Check> {
        let filtered = self.status("Seccomp")? == "2";
        let found =
            if filtered { "a filter is in force; the attempt to sample shows whether it permits that" } else { "none" };
        Some(Check::works("seccomp", found))
    }

    fn proc_mount(&self) -> Option<Check> {
        const NAME: &str = "/proc";
        if numbers::are_foreign(&self.root, self.pid) {
            return Some(Check::fails(NAME, numbers::FOREIGN, numbers::REMEDY));
        }
        let mounts = self.text("proc/self/mountinfo")?;
        let of_proc = |line: &&str| line.split(' ').nth(4) == Some("/proc");
        let options = mounts.lines().rfind(of_proc).unwrap_or_default();
        let hides = options.split([' ', ',']).find(|option| option.starts_with("hidepid="));
        Some(match hides.filter(|option| !["hidepid=0", "hidepid=off"].contains(option)) {
            Some(option) if !self.has(Capability::SysPtrace) => Check::lacks(
                NAME,
                format!("{option}: processes of other users are not seen"),
                "add CAP_SYS_PTRACE, or mount it without",
            ),
            Some(option) => Check::works(NAME, format!("{option}, which CAP_SYS_PTRACE outweighs")),
            None => Check::works(NAME, "all processes of the pid namespace are seen"),
        })
    }

    fn pid_namespace(&self) -> Option<Check> {
        let link = std::fs::read_link(self.root.join("proc/self/ns/pid")).ok()?;
        let is_initial = numbers::leads_to_initial(link.as_os_str().as_encoded_bytes());
        let whose =
            if is_initial { "the machine's: all its processes are ours to see" } else { "one of its own, as in a pod" };
        Some(Check::works("pid namespace", format!("{}, {whose}", link.display())))
    }

    fn cgroup(&self) -> Option<Check> {
        let text = self.text("proc/self/cgroup")?;
        let own = text.lines().find(|line| line.starts_with("0::")).or(text.lines().next())?;
        Some(Check::works("cgroup", own))
    }
}
