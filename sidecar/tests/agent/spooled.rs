//! What is sampled while nobody takes it outlives the agent (`PROFILER_SPOOL_DIR`).

use std::net::TcpListener;
use std::time::Duration;

use crate::early::until;
use crate::process::{Running, agent, go_program};
use crate::received::Received;
use crate::{folder, is_root, stats};

/// Check that samples of an agent that could send nothing, and ended, are sent by the next one, each once.
#[test]
fn samples_of_an_agent_that_ended_are_sent_by_the_next_one() {
    if !is_root() {
        return;
    }
    let spool = folder("spool");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let start = |pid: u32| {
        let mut command = agent(&["run", "--rate-hz", "499", "--interval", "1s", "--runtime-interval", "off"]);
        command.args(["--pid", &pid.to_string()]).env("PROFILER_SPOOL_DIR", &spool);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"));
        Running::agent(command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"))
    };
    let program = go_program("shares");
    let run = start(program.pid());
    let page = run.address_after("http://");
    let taken = || stats(&page)["taken"].as_i64().unwrap();
    until(&run, || taken() > 500);
    drop(program);
    let mut before = 0;
    until(&run, || {
        std::thread::sleep(Duration::from_secs(2));
        std::mem::replace(&mut before, taken()) == before
    });
    let (taken, told) = (before, stats(&page));
    assert_eq!((told["exported"].as_i64(), told["pending"].as_i64()), (Some(0), Some(taken)), "{told}");
    run.signal("-TERM");
    assert_eq!(run.address_after(" kept for the next start, to "), "otlp-grpc");
    assert_eq!(run.ended(), Some(0));

    let received = Received::at(&address);
    // Which samples nothing itself.
    let run = start(4_194_303);
    until(&run, || received.count() >= taken);
    assert_eq!(run.end(), Some(0));
    assert_eq!(received.count(), taken);
    std::fs::remove_dir_all(spool).unwrap();
}
