//! The runtimes of futures that scenarios run on.
//!
//! In: the name of one, and what is to run on it. Out: the same, run to its end, with the means to run more beside it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use profiler_tests::Result;

/// A future of any type.
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How a runtime runs something besides the task, and waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runtime {
    /// As a task of its own; what is waited for is its end, also by a panic where the runtime keeps that to itself.
    pub(crate) spawn: fn(Boxed<()>) -> Boxed<()>,
    /// The same, which nobody waits for: a panic ends it and nothing else.
    pub(crate) detach: fn(Boxed<()>),
    /// On a thread that may wait.
    pub(crate) block: fn(Box<dyn FnOnce() + Send>) -> Boxed<()>,
    pub(crate) sleep: fn(Duration) -> Boxed<()>,
}

const TOKIO: Runtime = Runtime {
    spawn: |task| {
        let task = tokio::spawn(task);
        Box::pin(async { drop(task.await) })
    },
    detach: |task| drop(tokio::spawn(task)),
    block: |work| {
        let task = tokio::task::spawn_blocking(work);
        Box::pin(async { drop(task.await) })
    },
    sleep: |time| Box::pin(tokio::time::sleep(time)),
};

/// On as many threads as `SMOL_THREADS` says.
const SMOL: Runtime = Runtime {
    spawn: |task| Box::pin(smol::spawn(task)),
    detach: |task| smol::spawn(task).detach(),
    block: |work| Box::pin(smol::unblock(work)),
    sleep: |time| {
        Box::pin(async move {
            smol::Timer::after(time).await;
        })
    },
};

/// Runs `work` on the runtime of this name: tokio with four workers or on this thread alone, smol.
pub(crate) fn run_on<F: Future<Output = ()>>(name: &str, work: impl FnOnce(Runtime) -> F) -> Result<()> {
    match name {
        "tokio" => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build()?;
            runtime.block_on(work(TOKIO));
        }
        "tokio-current" => {
            tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(work(TOKIO));
        }
        "smol" => smol::block_on(work(SMOL)),
        other => return Err(format!("runtime={other:?} is unknown").into()),
    }
    Ok(())
}

/// Lets others run once.
pub(crate) async fn yield_now() {
    Yield(false).await;
}

struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
