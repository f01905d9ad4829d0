//! A program alone on a processor, so that ticks and CPU time can be compared whatever else the machine does.
//!
//! Both agree on average only where slices of the scheduler begin and end at any time. Beside programs that wake by a clock they do not: ticks then hit
//! one of two more often than its time, 0.96 to 1.5 of it were seen, with none lost. In slices of a tenth of a second (`SCHED_RR`, sched(7)), which
//! no ordinary process can end, that is less than a hundredth.

use std::process::Command;
use std::sync::LazyLock;

/// Found out once, with a process that an agent may well see: whoever calls `ahead` beside one has done so before it began.
static IS_ALLOWED: LazyLock<bool> = LazyLock::new(|| {
    let allowed = Command::new("chrt").args(["-r", "1", "true"]).output().is_ok_and(|ran| ran.status.success());
    if !allowed {
        eprintln!("no SCHED_RR here: ticks are compared with CPU time beside all that runs");
    }
    allowed
});

/// `command` before all ordinary processes, and before those that are ahead of these by less; as it is where that is not allowed (`CAP_SYS_NICE`), which is said.
pub(crate) fn ahead(by: u32, command: &Command) -> Command {
    if *IS_ALLOWED {
        return behind("chrt", &["-r", &by.to_string()], command);
    }
    behind("env", &[], command)
}

/// `command` on the last processor alone.
pub(crate) fn pinned(command: &Command) -> Command {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    behind("taskset", &["-c", allowed.rsplit([',', '-']).next().unwrap()], command)
}

/// `program` with `arguments`, which becomes `command`.
fn behind(program: &str, arguments: &[&str], command: &Command) -> Command {
    let mut outer = Command::new(program);
    outer.args(arguments).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}
