//! The pages inside of the host's own server: a program of its own, for there is one profiler in a process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use http::Request;
use http::header::AUTHORIZATION;
use http_body_util::BodyExt;
use tower_service::Service as _;

async fn get(path: &str, token: &str) -> (u16, String) {
    let request = Request::get(path).header(AUTHORIZATION, format!("Bearer {token}")).body(()).unwrap();
    let response = profiler::serve::service().call(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Check that a running profiler answers, on whatever runtime it is asked, to those who know the token and whatever the host is called,
/// and that one that ended does not.
#[test]
fn the_running_profiler_answers_inside_of_another_server() {
    let host = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (status, why) = host.block_on(get("/stats", ""));
    assert_eq!((status, why.contains("Config::serve_within")), (503, true));
    let token = "a-token-of-the-tests";
    let profiler = profiler::start(profiler::Config::new("within").serve_within().serve_token(token)).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    // The thread that answers begins after `start` has returned.
    let (status, stats) = loop {
        let answer = host.block_on(get("http://shop.example/stats", token));
        if answer.0 != 503 || std::time::Instant::now() > deadline {
            break answer;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!((status, stats.contains("\"taken\":")), (200, true), "{stats}");
    assert_eq!(host.block_on(get("/", token)).0, 200);
    assert_eq!(host.block_on(get("/stats", "another-token-of-the-tests")).0, 401);
    profiler.shutdown(Duration::from_secs(60));
    assert_eq!(host.block_on(get("/stats", token)).0, 503);
}
