//! Finds out what a process is: the work that is done once for each program that it runs.
//!
//! In: an open `/proc/PID`. Out: a [`Target`], or `None` for what is no process to profile: threads of the kernel, those that ended. Where a process
//! gives no answer it takes as long as there is patience.

use std::sync::Arc;

use super::context::Published;
use super::resource::{Known, Pod};
use super::scout::{Scout, Seen};
use super::table::Options;
use super::target::{Candidate, Exe, Kind, Target, WhyNot};
use crate::target::{Fault, Folder, Process, Stat, State};

/// What the process in `folder` is.
///
/// # Errors
/// When it is gone.
pub(super) fn classify(
    process: Process,
    stat: &Stat,
    folder: Folder,
    (options, pod, scout): (&Options, &Pod, &Scout),
) -> Result<Option<Target>, Fault> {
    if stat.is_kernel_thread || stat.state == State::Ended {
        return Ok(None);
    }
    let answer = scout.look(process, folder).transpose()?;
    let Seen { container, environment, context, is_below, exe } = answer.unwrap_or_default();
    let (exe, trouble) = match exe {
        Some(Ok(exe)) => (exe, None),
        Some(Err(fault)) => (Exe::default(), Some(WhyNot::Unreadable(fault.to_string()))),
        None => (Exe::default(), Some(WhyNot::NoAnswer)),
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
        context: context.map(|context| Arc::new(context.kept())),
        is_below,
        profiled: Ok(()),
    };
    target.profiled = match (choose(&target, options), trouble) {
        // It could be any program: that none of them is wanted cannot be said.
        (Err(WhyNot::NotChosen(_)), Some(WhyNot::NoAnswer)) => Err(WhyNot::NoAnswer),
        (chosen, trouble) => chosen.and(trouble.map_or(Ok(()), Err)),
    };
    Ok(Some(target))
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
        None if target.is_below && !matches!(target.kind, Kind::Go(_)) => Err(WhyNot::Below),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use profiler_proto::otlp::ProcessContext;
    use profiler_proto::resource::Resource;

    use super::super::program::Program;
    use super::*;

    /// Check that Go is Go whatever it publishes, that others are known by whether they say that they profile themselves, and no more.
    #[test]
    fn the_kind_is_told_by_program_and_context() {
        let published = |attributes| Published {
            header: 0,
            time: 1,
            context: ProcessContext { attributes, ..ProcessContext::default() },
        };
        let [on, off, silent] = ["on", "off", ""].map(|cpu| match cpu {
            "" => published(Resource::new()),
            cpu => published(Resource::new().with("profiler.cpu", cpu)),
        });
        let exe = |go: Option<&str>| Exe {
            program: Some(Arc::new(Program { go: go.map(str::to_owned), ..Program::default() })),
            ..Exe::default()
        };
        let [native, go] = [exe(None), exe(Some("go1.26.1"))];
        let of_native = [Some(&on), Some(&off), Some(&silent), None].map(|context| kind(&native, context));
        assert_eq!(of_native, [Kind::Sdk, Kind::Sdk, Kind::Native, Kind::Native]);
        assert_eq!(kind(&go, Some(&on)), Kind::Go("go1.26.1".into()));
        assert_eq!(kind(&Exe::default(), None), Kind::Native);
    }
}
