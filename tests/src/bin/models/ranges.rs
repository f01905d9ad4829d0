//! A model of the bounds of a stack: what is read belongs together.
//!
//! In: the checker's schedule. Out: assertions that hold in every one.

use loom::sync::Arc;
use loom::thread;

use crate::bounds::Bounds;

/// A handler reads, each time on a stack of its own, while one range takes the place of another.
pub(crate) fn replaced() {
    let bounds = Arc::new(Bounds::default());
    bounds.set(&(300..400));
    let writer = {
        let bounds = Arc::clone(&bounds);
        thread::spawn(move || {
            bounds.set(&(100..200));
            bounds.set(&(500..600));
        })
    };
    for sp in [350, 150, 550] {
        let end = sp / 100 * 100 + 100;
        assert!(bounds.above(sp).is_none_or(|range| range == (sp..end)), "the bounds of two stacks are mixed");
    }
    assert!(writer.join().is_ok());
    assert_eq!((bounds.above(550), bounds.above(150)), (Some(550..600), None));
}
