//! A program alone on a processor, so that ticks and CPU time can be compared whatever else the machine does.
//!
//! Both agree on average only where slices of the scheduler begin and end at any time. Beside programs that wake by a clock they do not: ticks then hit
//! one of two more often than its time, 0.96 to 1.5 of it were seen, with none lost. In slices of a tenth of a second (`SCHED_RR`, sched(7)), which
//! no ordinary process can end, that is less than a hundredth.

use std::process::Command;

/// `command` before all ordinary processes, and before those that are ahead of these by less; as it is where that is not allowed (`CAP_SYS_NICE`), which is said.
pub(crate) fn ahead(by: u32, command: &Command) -> Command {
    let by = by.to_string();
    let first = ["--rr", &by];
    if Command::new("chrt").args(first).arg("true").output().is_ok_and(|ran| ran.status.success()) {
        return behind("chrt", &first, command);
    }
    eprintln!("no SCHED_RR here: ticks are compared with CPU time beside all that runs");
    behind("env", &[], command)
}

/// `command` on the last processor alone.
pub(crate) fn pinned(command: &Command) -> Command {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    behind("taskset", &["--cpu-list", allowed.rsplit([',', '-']).next().unwrap()], command)
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
