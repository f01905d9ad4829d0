//! Thread contexts that a process publishes.

use profiler_sidecar::bpf::Knowledge;
use profiler_sidecar::sample::Span;

use crate::programs::{Talk, context};
use crate::recorder::{Recorder, few};

#[test]
fn a_published_thread_context_is_read() {
    let Some((mut recorder, program)) = Recorder::usual_with(|| context(300)) else { return };
    let mut program = Talk::start(program);
    let pid = program.pid();
    let offset = recorder.line(&program).parse().unwrap();
    let knowledge = Knowledge { context_offset: Some(offset), ..Knowledge::default() };
    recorder.sampler.tell(pid, &knowledge).unwrap();
    let number = recorder.sampler.programs().unwrap().of(pid).unwrap().unwrap();
    program.go();
    recorder.until_exit(pid);
    program.child.wait().unwrap();
    let samples = recorder.samples_of(pid);
    let trace_id = std::array::from_fn(|at| at as u8 + 1);
    let span = Span { trace_id, span_id: std::array::from_fn(|at| at as u8 + 21) };
    let attributes = [(1, b"abc".to_vec()), (7, b"xy".to_vec())];
    // A thread that names itself goes through the same tracepoint as one that becomes another program. Whatever it does between its new name and
    // its end, which is in the kernel, it does in the context.
    let renamed: Vec<_> = samples.iter().filter(|sample| sample.comm.text() == "renamed").collect();
    assert!(renamed.iter().all(|sample| sample.program == number), "{number}: {renamed:?}");
    let of_user: Vec<_> = renamed.iter().filter(|sample| !sample.in_kernel).collect();
    let whole = of_user.iter().filter(|sample| sample.span == Some(span) && sample.attributes == attributes).count();
    assert!(whole > 30 && of_user.len() - whole <= few(of_user.len()), "{whole} of {}", of_user.len());
}
