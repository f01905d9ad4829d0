//! Models of the pool: one holder a scratch, counts that agree with the records to the sample, and nothing freed that a
//! handler may still use.
//!
//! In: the checker's schedule. Out: assertions that hold in every one. The closing side does what `Sampler` does.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;
use profiler_proto::loss::Cause;

use crate::atomic::Ordering;
use crate::pool::Pool;
use crate::ring::Ring;

/// Working memory in which the checker sees two holders at once.
type Work = UnsafeCell<u64>;

fn pool(size: usize) -> Arc<Pool<Work>> {
    Arc::new(Pool::new((0..size).map(|_| UnsafeCell::new(0)), size))
}

/// A handler: takes a scratch, works in it, counts one.
fn handle(pool: &Pool<Work>, hint: u64, write: impl FnOnce(u8) -> bool) {
    let Some(mut held) = pool.hold(hint) else { return };
    held.count_taken(1);
    // SAFETY: not needed by the checker, which fails where the access is not exclusive: that is what is tried.
    held.work().with_mut(|work| unsafe { *work += 1 });
    if !write(held.epoch()) {
        held.count_ring_full();
    }
}

/// Two handlers on one scratch, while an epoch is closed.
pub(crate) fn one_holder() {
    let pool = pool(1);
    let handlers: Vec<_> = (0..2)
        .map(|_| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || handle(&pool, 0, |_| true))
        })
        .collect();
    let mut taken = close(&pool);
    assert!(handlers.into_iter().all(|handler| handler.join().is_ok()));
    taken += close(&pool);
    assert_eq!(taken, 2, "a sample was counted twice or not at all");
}

fn close(pool: &Pool<Work>) -> u64 {
    let epoch = pool.begin_close();
    while !pool.is_over(epoch) {
        thread::yield_now();
    }
    pool.close(epoch).taken
}

/// Handlers that write records, in a ring with room for one at a time.
pub(crate) fn account() {
    #[expect(clippy::unwrap_used, reason = "a model without its ring shows nothing")]
    let (pool, ring) = (pool(2), Arc::new(Ring::new(2).unwrap()));
    let handlers: Vec<_> = (0..2)
        .map(|hint| {
            let (pool, ring) = (Arc::clone(&pool), Arc::clone(&ring));
            thread::spawn(move || handle(&pool, hint, |epoch| ring.write(&[&[epoch.into()]]).is_ok()))
        })
        .collect();
    let mut waiting = [0; 2];
    let mut taken = close_with_records(&pool, &ring, &mut waiting);
    assert!(handlers.into_iter().all(|handler| handler.join().is_ok()));
    for _ in 0..2 {
        taken += close_with_records(&pool, &ring, &mut waiting);
    }
    assert_eq!(taken, 2, "a sample was counted twice or not at all");
}

/// Closes an epoch as `Sampler::drain` does; what was taken in it, which must be what it wrote and lost.
fn close_with_records(pool: &Pool<Work>, ring: &Ring, waiting: &mut [u64; 2]) -> u64 {
    let epoch = pool.begin_close();
    let mut buffer = Vec::new();
    loop {
        let over = pool.is_over(epoch);
        let end = ring.head();
        while ring.tail() < end
            && ring.read(&mut buffer, |words| waiting[words.first().map_or(0, |epoch| *epoch as usize)] += 1).is_some()
        {
        }
        if over && ring.tail() >= end {
            break;
        }
        thread::yield_now();
    }
    let closed = pool.close(epoch);
    let written = std::mem::take(&mut waiting[usize::from(epoch)]);
    assert_eq!(closed.taken, written + closed.lost.total(), "an epoch does not add up");
    assert_eq!(closed.lost.total(), closed.lost.count(Cause::RingFull) + closed.lost.count(Cause::NoScratch));
    closed.taken
}

/// What handlers read through a pointer, as the unwinder: replaced while an epoch is under way, freed two epochs later.
pub(crate) fn replacement() {
    let pool = pool(2);
    let (in_force, values) = (Arc::new(AtomicUsize::new(0)), Arc::new([UnsafeCell::new(1), UnsafeCell::new(1)]));
    let handlers: Vec<_> = (0..2)
        .map(|hint| {
            let (pool, in_force, values) = (Arc::clone(&pool), Arc::clone(&in_force), Arc::clone(&values));
            thread::spawn(move || {
                let Some(_held) = pool.hold(hint) else { return };
                // As in `AtomicU32`: a `SeqCst` load is a read-modify-write here.
                let index = in_force.fetch_add(0, Ordering::SeqCst);
                // SAFETY: as in `handle`: the checker fails where the value is freed meanwhile.
                values[index].with(|value| assert_eq!(unsafe { *value }, 1));
            })
        })
        .collect();
    let epoch = pool.begin_close();
    in_force.swap(1, Ordering::SeqCst);
    while !pool.is_over(epoch) {
        thread::yield_now();
    }
    pool.close(epoch);
    close(&pool);
    // SAFETY: as above; writing stands for freeing.
    values[0].with_mut(|value| unsafe { *value = 0 });
    assert!(handlers.into_iter().all(|handler| handler.join().is_ok()));
}
