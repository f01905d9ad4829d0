//! Thread contexts that a process publishes.

use profiler_sidecar::sample::Span;

use crate::programs::{Talk, context};
use crate::recorder::Recorder;

#[test]
fn a_published_thread_context_is_read() {
    let Some((mut recorder, program)) = Recorder::usual_with(|| context(300)) else { return };
    let mut program = Talk::start(program);
    let pid = program.pid();
    let offset = recorder.line(&program).parse().unwrap();
    recorder.sampler.set_thread_context(pid, offset).unwrap();
    let number = recorder.sampler.programs().unwrap().of(pid).unwrap().unwrap();
    recorder.drain();
    let early = recorder.samples_of(pid).len();
    program.go();
    recorder.until_exit(pid);
    program.child.wait().unwrap();
    let samples = recorder.samples_of(pid).split_off(early);
    let trace_id = std::array::from_fn(|at| at as u8 + 1);
    let span = Span { trace_id, span_id: std::array::from_fn(|at| at as u8 + 21) };
    let attributes = [(1, b"abc".to_vec()), (7, b"xy".to_vec())];
    let whole = samples.iter().filter(|sample| sample.span == Some(span) && sample.attributes == attributes).count();
    assert!(whole > 100 && whole * 100 >= samples.len() * 97, "{whole} of {}", samples.len());
    // A thread that names itself goes through the same tracepoint as one that becomes another program.
    assert!(samples.iter().any(|sample| sample.comm == "renamed"), "{:?}", samples.last());
    assert!(samples.iter().all(|sample| sample.program == number), "{number}: {samples:?}");
}
