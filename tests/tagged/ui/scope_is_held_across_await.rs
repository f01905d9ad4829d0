//! A task that holds a scope cannot move to another thread.

use std::future::Future;

async fn work() {}

async fn holds_a_scope() {
    let _scope = profiler::tag!("endpoint" => "/orders");
    work().await;
}

fn spawn(_: impl Future<Output = ()> + Send + 'static) {}

fn main() {
    spawn(holds_a_scope());
}
