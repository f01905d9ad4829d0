//! The tasks of one connection, which end with it.
//!
//! In: what serves the connection, from us and from hyper. Out: tasks on the runtime at hand, stopped as soon as [`Tasks`] is dropped: none waits
//! for a peer that reads no more. Runs on the exporting thread's runtime.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::rt::Executor;
use tokio::task::AbortHandle;

/// Stops its tasks when it is dropped.
#[derive(Debug)]
pub(super) struct Tasks(Spawner);

/// Spawns tasks for one connection, for as long as it is there.
#[derive(Debug, Clone)]
pub(super) struct Spawner(Arc<Mutex<State>>);

#[derive(Debug)]
enum State {
    /// These tasks were spawned, and some may have ended.
    Running(Vec<AbortHandle>),
    /// The connection has gone: what comes now is not begun.
    Ended,
}

impl Tasks {
    pub(super) fn new() -> Self {
        Self(Spawner(Arc::new(Mutex::new(State::Running(Vec::new())))))
    }

    /// What spawns tasks that end with these.
    pub(super) fn spawner(&self) -> Spawner {
        self.0.clone()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut *self.0.state(), State::Ended);
        if let State::Running(handles) = state {
            handles.iter().for_each(AbortHandle::abort);
        }
    }
}

impl Spawner {
    fn state(&self) -> MutexGuard<'_, State> {
        // Handles are kept or forgotten in one step: what a poisoned lock guards is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> Executor<F> for Spawner
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, task: F) {
        if let State::Running(handles) = &mut *self.state() {
            handles.retain(|handle| !handle.is_finished());
            handles.push(tokio::spawn(task).abort_handle());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::runtime::Handle;

    use super::*;

    /// Waits until so many tasks are left.
    async fn until_left(count: usize) {
        while Handle::current().metrics().num_alive_tasks() != count {
            tokio::task::yield_now().await;
        }
    }

    /// Check that tasks end with their connection, also those that are spawned by one that ends.
    #[tokio::test]
    async fn tasks_end_with_their_connection() {
        let tasks = Tasks::new();
        let spawner = tasks.spawner();
        spawner.execute(pending::<()>());
        spawner.execute(pending::<()>());
        until_left(2).await;
        drop(tasks);
        spawner.execute(pending::<()>());
        until_left(0).await;
    }

    /// Check that those that have ended are forgotten, so that a connection with many requests does not grow.
    #[tokio::test]
    async fn tasks_that_have_ended_are_forgotten() {
        let tasks = Tasks::new();
        let spawner = tasks.spawner();
        spawner.execute(pending::<()>());
        for _ in 0..100 {
            spawner.execute(ready(()));
            until_left(1).await;
        }
        let State::Running(handles) = &*spawner.state() else { panic!("the connection is there") };
        assert_eq!(handles.len(), 2, "the one that runs and the last one");
    }
}
