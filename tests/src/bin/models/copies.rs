//! Models of the heap's entries: what a profile copies while a hook writes is whole, and what stays is in the copy, once.
//!
//! In: the checker's schedule. Out: assertions that hold in every one. A lock of the checker's stands for that of the chains, under which hooks write.

use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::block::Block;
use crate::entries::Entries;

/// A block whose parts all follow from one number.
fn block(number: u32) -> Block {
    let word = u64::from(number);
    Block::new(number, [word, word], word, word, number)
}

/// Two blocks.
fn entries() -> Arc<(Entries, Mutex<()>)> {
    let entries = Entries::new(2);
    for place in [0, 1] {
        // Within the bound there is memory, or the model shows nothing.
        assert!(entries.make(place).is_ok());
        entries.put(place, u64::from(place) + 1, &block(place + 1), 0);
    }
    Arc::new((entries, Mutex::new(())))
}

/// The sites of a copy, of which each block is whole.
fn copied((entries, lock): &(Entries, Mutex<()>)) -> Vec<u32> {
    let mut sites = Vec::new();
    let alone = |read: &mut dyn FnMut()| {
        let kept_out = lock.lock();
        read();
        drop(kept_out);
    };
    entries.read(alone, |seen| {
        assert_eq!(*seen, block(seen.site), "half a block");
        sites.push(seen.site);
    });
    sites
}

/// Another block takes the place of the second one, while the first one stays.
pub(crate) fn while_a_hook_writes() {
    let shared = entries();
    let hook = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let (entries, lock) = &*shared;
            let locked = lock.lock();
            entries.free(1, 0);
            entries.put(1, 3, &block(3), 0);
            drop(locked);
        })
    };
    let sites = copied(&shared);
    assert!(sites == [1] || sites == [1, 2] || sites == [1, 3], "{sites:?}");
    assert!(hook.join().is_ok());
    assert_eq!(copied(&shared), [1, 3]);
}
