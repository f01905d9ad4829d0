//! A backend that moves to another address: its name tells where it is, and is asked again for each new connection.
//!
//! The names are real ones, of a file `/etc/hosts` that only this test sees: it runs once more in a mount namespace of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use profiler::export::Otlp;
use profiler_proto::loss::Cause;

use super::grpc_peer::GrpcPeer;
use super::http_peer::{HttpPeer, Reaction};
use super::profiles::{set, stacks};
use super::rig::Rig;

/// Tells the test in the namespace where its file of names is.
const HOSTS: &str = "PROFILER_TEST_HOSTS";
const NAME: &str = "collector.profiler.test";

/// The backend is at `address` from now on.
fn move_to(hosts: &Path, address: SocketAddr) {
    std::fs::write(hosts, format!("127.0.0.1 localhost\n{} {NAME}\n", address.ip())).unwrap();
}

/// Where it is before, and where it is after it has moved.
fn places(port: u16) -> [SocketAddr; 2] {
    [[127, 0, 0, 1], [127, 0, 0, 2]].map(|address| SocketAddr::from((address, port)))
}

/// Check that a backend that moved is found by its name, over HTTP and gRPC: nothing is lost, and the old place, where something listens
/// still, is not asked again.
#[test]
fn a_backend_that_moves_is_followed() {
    if let Some(hosts) = std::env::var_os(HOSTS).map(PathBuf::from) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(async {
            over_http(&hosts).await;
            over_grpc(&hosts).await;
        });
    }
    let hosts = std::env::temp_dir().join(format!("profiler-hosts-{}", std::process::id()));
    std::fs::write(&hosts, "").unwrap();
    let within = |command: &[&str]| {
        let script = r#"mount --bind "$0" /etc/hosts && exec "$@""#;
        let mut unshare = Command::new("unshare");
        unshare.args(["-m", "sh", "-c", script]).arg(&hosts).args(command).env(HOSTS, &hosts);
        unshare.output()
    };
    if within(&["true"]).is_ok_and(|output| output.status.success()) {
        let this = std::env::current_exe().unwrap();
        let name = "moved::a_backend_that_moves_is_followed";
        let output = within(&[this.to_str().unwrap(), "--exact", name, "--nocapture", "--test-threads=1"]).unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    } else {
        eprintln!("NOT RUN: a_backend_that_moves_is_followed: needs `unshare -m` and the right to mount");
    }
    std::fs::remove_file(&hosts).unwrap();
}

async fn over_http(hosts: &Path) {
    let first = HttpPeer::start([Reaction::answer(200, b""), Reaction::Close]).await;
    let port = first.url().rsplit_once(':').unwrap().1.parse().unwrap();
    let [before, after] = places(port);
    let second = HttpPeer::start_at(after, []).await;
    move_to(hosts, before);
    let rig = Rig::to([Otlp::http(format!("http://{NAME}:{port}"))]);
    rig.offer(&set(10));
    rig.settle().await;
    move_to(hosts, after);
    rig.offer(&set(20));
    rig.settle().await;
    rig.assert_settled(30, 0, Cause::Unreachable);
    let came: [Vec<u64>; 2] =
        [&first, &second].map(|peer| peer.requests().iter().map(|request| stacks(&request.message())).collect());
    assert_eq!(came, [vec![10, 20], vec![20]], "the old one ended under the second");
}

async fn over_grpc(hosts: &Path) {
    let first = GrpcPeer::start([]).await;
    let port = first.url().rsplit_once(':').unwrap().1.parse().unwrap();
    let [before, after] = places(port);
    let second = GrpcPeer::start_at(after, []).await;
    move_to(hosts, before);
    let rig = Rig::to([Otlp::grpc(format!("http://{NAME}:{port}"))]);
    rig.offer(&set(10));
    rig.settle().await;
    move_to(hosts, after);
    first.stop().await;
    rig.offer(&set(20));
    rig.settle().await;
    rig.assert_settled(30, 0, Cause::Unreachable);
    assert_eq!(second.calls().iter().map(|call| stacks(&call.message)).collect::<Vec<_>>(), [20]);
}
