//! What listens where, looked at once for all that ask at about the same time, as endpoints do that are asked at one pace.
//!
//! In: the processes that are known. Out: a [`Sight`] that is no older than the question. Tables of sockets are read on a thread of the runtime's; on a machine with many
//! connections that takes its time.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::discover::Target;
use crate::pull::listening::Listeners;
use crate::target::Process;

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Sight {
    /// The processes that were known.
    pub(super) targets: Vec<Arc<Target>>,
    /// What listens, and which of them has it.
    pub(super) listeners: Listeners,
}

/// The last look, and when it began.
#[derive(Debug, Default)]
pub(super) struct Sights(Mutex<Option<(Instant, Arc<Sight>)>>);

impl Sights {
    /// Looks, unless somebody else began to behind this question.
    pub(super) async fn look(&self, targets: impl FnOnce() -> Vec<Arc<Target>>) -> Arc<Sight> {
        let asked = Instant::now();
        let mut last = self.0.lock().await;
        if let Some((_, sight)) = last.as_ref().filter(|(began, _)| *began > asked) {
            return Arc::clone(sight);
        }
        let (began, targets) = (Instant::now(), targets());
        let processes: Vec<Process> = targets.iter().map(|target| target.process).collect();
        let listeners = match processes[..] {
            [] => Listeners::default(),
            _ => tokio::task::spawn_blocking(move || Listeners::of(&processes)).await.unwrap_or_default(),
        };
        let sight = Arc::new(Sight { targets, listeners });
        *last = Some((began, Arc::clone(&sight)));
        sight
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::discover::Kind;

    /// Check that of those that ask while one looks, one more looks, for all of them; and that whoever asks behind a look gets another one.
    #[test]
    fn those_that_ask_at_once_share_a_look() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (sights, looks) = (Sights::default(), Cell::new(0));
            let own = Arc::new(Target::bare(Process::find(std::process::id()).unwrap(), Kind::Native));
            let look = || {
                sights.look(|| {
                    looks.set(looks.get() + 1);
                    vec![Arc::clone(&own)]
                })
            };
            let (first, second, third, fourth) = tokio::join!(look(), look(), look(), look());
            assert_eq!((looks.get(), first.targets.len()), (2, 1));
            assert!(!Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&second, &third) && Arc::ptr_eq(&third, &fourth));
            drop(look().await);
            assert_eq!(looks.get(), 3);
        });
    }
}
