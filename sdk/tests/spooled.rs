//! The spool of a whole profiler: what one could not send before its end, the next one sends, and says so.

#![cfg(all(feature = "export", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::time::{Duration, Instant};

use profiler::export::Otlp;
use profiler::proto::loss::Cause;
use profiler::{Config, Profiler, Stats};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps a core busy until `condition` holds of the figures.
fn until(profiler: &Profiler, what: &str, condition: impl Fn(&Stats) -> bool) -> Stats {
    let (start, mut sum) = (Instant::now(), 0_u64);
    loop {
        sum = std::hint::black_box((0..1_000_000).fold(sum, |sum, number| sum.wrapping_mul(31).wrapping_add(number)));
        let stats = profiler.stats();
        if condition(&stats) {
            return stats;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}: {stats:?}");
    }
}

/// Answers each request at `port` with success, for ever.
fn serve(port: TcpSocket) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = port.listen(64).unwrap();
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                while stream.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
                    if let Some(end) = whole(&bytes) {
                        bytes.drain(..end);
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                    }
                }
            });
        }
    });
}

/// Where the first request ends, if it is whole.
fn whole(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
    let (_, length) = text.split_once("content-length: ")?;
    let end = head + length.lines().next()?.parse::<usize>().ok()?;
    (bytes.len() >= end).then_some(end)
}

/// Check that a profiler leaves in its folder what it could not send, and that the next one sends it beside its own, with accounts that
/// balance by themselves.
#[test]
fn a_profiler_sends_what_the_one_before_left() {
    let folder = std::env::temp_dir().join(format!("profiler-spooled-{}", std::process::id()));
    // Nobody else gets the port while it is bound; until it is listened at, who connects is refused.
    let port = TcpSocket::new_v4().unwrap();
    port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = port.local_addr().unwrap();
    let config = || {
        let otlp = Otlp::http(format!("http://{address}")).timeout(Duration::from_secs(30));
        Config::new("shop").interval(Duration::from_millis(100)).spool(&folder).export(otlp)
    };
    let first = profiler::start(config()).unwrap();
    let stats = until(&first, "something is on disk", |stats| {
        stats.spool.as_ref().is_some_and(|spool| spool.appended >= 2) && stats.destinations[0].queued > 0
    });
    assert_eq!(
        stats.spool.as_ref().map(|spool| (spool.folder.clone(), spool.trouble.clone())),
        Some((folder.display().to_string(), None))
    );
    let queued = stats.destinations[0].queued;
    assert!(stats.account.balances() && stats.account.exported == 0, "{stats:?}");
    first.shutdown(Duration::from_secs(2));

    std::thread::spawn(move || serve(port));
    let second = profiler::start(config()).unwrap();
    let stats =
        until(&second, "both arrive", |stats| stats.destinations[0].replayed >= queued && stats.account.exported > 0);
    assert!(stats.account.balances() && lost_on_the_way(&stats) == 0, "{stats:?}");
    assert!(
        stats.account.exported <= stats.account.taken && stats.destinations[0].replay_dropped.total() == 0,
        "{stats:?}"
    );
    second.shutdown(PATIENCE);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Stacks that were lost behind the sampler: what threads leave untold when they end is not the spool's.
fn lost_on_the_way(stats: &Stats) -> u64 {
    let causes = [Cause::QueueFull, Cause::SpoolFull, Cause::SpoolDamaged, Cause::TooLarge, Cause::Unreachable];
    causes.into_iter().map(|cause| stats.account.lost.count(cause)).sum()
}
