//! Finds out what a process is: the work that is done once for each program that it runs.
//!
//! In: an open `/proc/PID`. Out: a [`Target`], or `None` for what is no process to profile: threads of the kernel, those that ended. Takes
//! about a millisecond for a program that was not seen before, a tenth of it otherwise; can wait for the process (see
//! [`Files`](crate::target::Files), [`Memory`](crate::target::Memory)).

use std::sync::Arc;

use super::container::Container;
use super::context::Published;
use super::environment::Environment;
use super::program::Programs;
use super::resource::{Known, Pod};
use super::table::Options;
use super::target::{Candidate, Exe, Kind, Target, WhyNot};
use crate::target::{Fault, Files, Folder, Process, Stat, State};

/// What the process in `folder` is.
///
/// # Errors
/// When it is gone.
pub(super) fn classify(
    process: Process,
    stat: &Stat,
    folder: Folder,
    (options, pod, programs): (&Options, &Pod, &mut Programs),
) -> Result<Option<Target>, Fault> {
    if stat.is_kernel_thread || stat.state == State::Ended {
        return Ok(None);
    }
    let container = Container::read(&folder);
    let environment = readable(Environment::read(&folder))?.unwrap_or_default();
    let context = readable(Published::read(&folder, process.memory()))?.flatten();
    let (exe, refused) = match program(folder, programs) {
        Ok(exe) => (exe, None),
        Err(fault) if fault.is_gone() => return Err(fault),
        Err(fault) => (Exe::default(), Some(fault)),
    };
    let known = Known {
        process,
        comm: &stat.comm,
        exe: &exe,
        container: &container,
        environment: &environment,
        context: context.as_ref(),
        pod,
    };
    let (service, resource) = known.resource();
    let mut target = Target {
        process,
        comm: stat.comm.clone(),
        kind: kind(&exe, context.as_ref()),
        exe,
        container_id: container.id,
        service,
        resource,
        context: context.map(Arc::new),
        profiled: Ok(()),
    };
    target.profiled = match refused {
        Some(fault) => choose(&target, options).and(Err(WhyNot::Unreadable(fault.to_string()))),
        None => choose(&target, options),
    };
    Ok(Some(target))
}

/// What may be missing; only that the process is gone is an error.
fn readable<T>(outcome: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.is_gone() => Err(fault),
        Err(_) => Ok(None),
    }
}

fn program(folder: Folder, programs: &mut Programs) -> Result<Exe, Fault> {
    let files = Files::new(folder);
    let (path, is_deleted) = files.exe_path()?;
    let (file, identity) = files.exe()?;
    let program = programs.look_into(identity, file);
    Ok(Exe { path, is_deleted, identity: Some(identity), program: Some(program) })
}

fn kind(exe: &Exe, context: Option<&Published>) -> Kind {
    match exe.program.as_ref().and_then(|program| program.go.clone()) {
        Some(version) => Kind::Go(version),
        None if context.is_some_and(|context| context.profiles_cpu().is_some()) => Kind::Sdk,
        None => Kind::Native,
    }
}

/// Whether the settings and the process itself want it profiled.
fn choose(target: &Target, options: &Options) -> Result<(), WhyNot> {
    if target.process.pid() == std::process::id() {
        return Err(WhyNot::Ourselves);
    }
    let exe = target.exe.path.to_string_lossy();
    let candidate = Candidate {
        pid: target.process.pid(),
        exe: &exe,
        service: &target.service,
        container: target.container_id.as_deref().unwrap_or_default(),
    };
    (options.choose)(&candidate).map_err(WhyNot::NotChosen)?;
    if !options.sdk_too && target.context.as_ref().is_some_and(|context| context.profiles_cpu() == Some(true)) {
        return Err(WhyNot::ProfilesItself);
    }
    match target.exe.program.as_ref().and_then(|program| program.foreign.clone()) {
        Some(foreign) => Err(WhyNot::OtherMachine(foreign)),
        None => Ok(()),
    }
}
