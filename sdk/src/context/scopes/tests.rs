//! Scopes entered and left, and spans shown: what is in force then, which record it stands in, and how many there are.

use super::super::records::Span;
use super::*;

#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
mod listed;

/// What is in force, sorted.
fn tags(in_force: &InForce) -> Vec<(u8, u8)> {
    let list = |record: &Record| pairs(record.tags()).map(|(key, value)| (key, value[0])).collect();
    let mut tags: Vec<_> = in_force.look(list).unwrap_or_default();
    tags.sort_unstable();
    tags
}

/// The first byte of the id of the span in force; 0: none.
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
fn span(in_force: &InForce) -> u8 {
    in_force.look(|record| record.span.span_id[0]).unwrap_or(0)
}

/// Check that scopes left in order restore what was, and that those left out of order take only what they brought.
#[test]
fn scopes_take_with_them_what_they_brought() {
    let (mut scopes, in_force) = (Scopes::new(), InForce::nothing());
    let outer = scopes.enter(&in_force, &[1, 1, 10, 2, 1, 10], false);
    let middle = scopes.enter(&in_force, &[2, 1, 20], false);
    let inner = scopes.enter(&in_force, &[3, 1, 30], false);
    assert_eq!(tags(&in_force), [(1, 10), (2, 20), (3, 30)]);
    scopes.leave(&in_force, outer);
    assert_eq!(tags(&in_force), [(2, 20), (3, 30)]);
    scopes.leave(&in_force, inner);
    assert_eq!(tags(&in_force), [(2, 20)]);
    let next = scopes.enter(&in_force, &[4, 1, 40], false);
    scopes.leave(&in_force, middle);
    assert_eq!(tags(&in_force), [(4, 40)]);
    scopes.leave(&in_force, next);
    assert!(in_force.get().is_null());
    assert_eq!(scopes.top, 0);
}

/// Check that tags that replace all others hide outer ones for as long as they are in force, but not those of spans, and that inner ones go
/// on top of them.
#[test]
fn tags_replace_all_others() {
    let (mut scopes, in_force) = (Scopes::new(), InForce::nothing());
    let taken = |scopes: &Scopes| {
        let mut bytes = [0; MAX_TAG_BYTES];
        let length = scopes.of_scopes(&mut bytes);
        bytes[..length].to_vec()
    };
    let outer = scopes.enter(&in_force, &[1, 1, 10], false);
    let empty = scopes.enter(&in_force, &[], true);
    assert_eq!((tags(&in_force), taken(&scopes)), (vec![], vec![]));
    let inner = scopes.enter(&in_force, &[2, 1, 20], false);
    assert_eq!((tags(&in_force), taken(&scopes)), (vec![(2, 20)], vec![2, 1, 20]));
    #[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
    {
        scopes.show(&in_force, Source::OpenTelemetry, &[9, 1, 90], None);
        assert_eq!(tags(&in_force), [(2, 20), (9, 90)]);
        scopes.show(&in_force, Source::OpenTelemetry, &[], None);
    }
    // Out of order: what was hidden is seen again.
    scopes.leave(&in_force, empty);
    assert_eq!(tags(&in_force), [(1, 10), (2, 20)]);
    let all = scopes.enter(&in_force, &[3, 1, 30], true);
    assert_eq!(tags(&in_force), [(3, 30)]);
    scopes.leave(&in_force, all);
    scopes.leave(&in_force, inner);
    assert_eq!(tags(&in_force), [(1, 10)]);
    scopes.leave(&in_force, outer);
    assert!(in_force.get().is_null());
}

/// Check that of tags without room none is taken elsewhere for one of another value: not that of a span that is current there.
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
#[test]
fn a_tag_without_room_is_nowhere_that_of_a_span() {
    let tag = |key: u8, length: u8| [vec![key, length], vec![b'x'; length.into()]].concat();
    let value = |in_force: &InForce, key| {
        let of_key = |record: &Record| pairs(record.tags()).find(|pair| pair.0 == key).map(|pair| pair.1.to_vec());
        in_force.look(of_key).flatten()
    };
    let (mut scopes, in_force) = (Scopes::new(), InForce::nothing());
    scopes.enter(&in_force, &tag(7, 200), false);
    scopes.enter(&in_force, &[tag(8, 255), tag(9, 255)].concat(), false);
    assert_eq!(value(&in_force, 7), Some(vec![]));
    let mut bytes = [0; MAX_TAG_BYTES];
    let length = scopes.of_scopes(&mut bytes);
    let (mut there, in_force) = (Scopes::new(), InForce::nothing());
    there.show(&in_force, Source::OpenTelemetry, &[7, 1, 70, 6, 1, 60], None);
    assert_eq!(value(&in_force, 7), Some(vec![70]));
    there.enter(&in_force, &bytes[..length], true);
    assert_eq!((value(&in_force, 7), value(&in_force, 6)), (Some(vec![]), Some(vec![60])));
}

/// Check that no change writes the record that is in force before it.
#[test]
fn a_change_leaves_the_old_record_alone() {
    let (mut scopes, in_force) = (Scopes::new(), InForce::nothing());
    let mut change = |work: &dyn Fn(&mut Scopes)| {
        let old = in_force.get();
        let before = in_force.look(|record| *record);
        work(&mut scopes);
        assert_ne!(old, in_force.get());
        // SAFETY: null, or a record of the scopes of the test, which change nothing meanwhile and free it with themselves only.
        assert_eq!(before, unsafe { old.as_ref() }.copied());
    };
    change(&|scopes| assert_eq!(scopes.enter(&in_force, &[1, 1, 10], false), 1));
    change(&|scopes| assert_eq!(scopes.enter(&in_force, &[2, 1, 20], false), 2));
    change(&|scopes| assert_eq!(scopes.enter(&in_force, &[3, 1, 30], false), 3));
    change(&|scopes| scopes.leave(&in_force, 1));
    #[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
    for (tags, byte) in [(&[] as &[u8], 1), (&[1, 1, 11], 1), (&[1, 1, 12], 2), (&[], 0)] {
        let span = Span { trace_id: [byte; 16], span_id: [byte; 8] };
        change(&|scopes| scopes.show(&in_force, Source::OpenTelemetry, tags, Some(Linked::new(span, 1))));
    }
    change(&|scopes| scopes.leave(&in_force, 3));
    change(&|scopes| scopes.leave(&in_force, 2));
    for value in 0..=255 {
        change(&|scopes| assert_ne!(scopes.enter(&in_force, &[1, 1, value], false), BEYOND));
    }
    change(&|scopes| assert_eq!(scopes.enter(&in_force, &[1, 1, 0], false), BEYOND));
    change(&|scopes| scopes.leave(&in_force, BEYOND));
}

/// Check that forgotten scopes are bounded.
#[test]
fn forgotten_scopes_are_bounded() {
    let (mut scopes, in_force) = (Scopes::new(), InForce::nothing());
    let kept = (0..1000).filter(|_| scopes.enter(&in_force, &[1, 0], false) != BEYOND).count();
    assert_eq!(kept, MAX_SCOPES);
    scopes.leave(&in_force, 1000);
    scopes.leave(&in_force, 1);
    scopes.leave(&in_force, BEYOND);
    assert_eq!((scopes.top, scopes.levels.len()), (MAX_SCOPES, MAX_SCOPES + 2));
    // There is room again, but not above those that share a level.
    assert_eq!(scopes.enter(&in_force, &[1, 0], false), BEYOND);
    assert_eq!(tags(&in_force), [(keys::OF_TAGS, b'o')]);
    (0..1000).for_each(|_| scopes.leave(&in_force, BEYOND));
    assert_eq!((scopes.top, scopes.levels.len()), (MAX_SCOPES - 1, MAX_SCOPES + 1));
    assert_eq!(scopes.enter(&in_force, &[1, 1, 7], false), MAX_SCOPES as u32 + 1);
    assert_eq!(tags(&in_force), [(1, 7)]);
}

/// Check that a scope that takes the place of another one, again and again, takes no more room than two.
#[test]
fn a_scope_that_is_replaced_takes_no_room() {
    let (mut scopes, in_force) = (Scopes::new(), InForce::nothing());
    let outer = scopes.enter(&in_force, &[1, 1, 10], false);
    let mut scope = scopes.enter(&in_force, &[2, 1, 0], false);
    for turn in 0..=255 {
        let next = scopes.enter(&in_force, &[2, 1, turn], false);
        scopes.leave(&in_force, scope);
        scope = next;
        assert_eq!(tags(&in_force), [(1, 10), (2, turn)]);
    }
    assert!(scopes.levels.len() <= 5, "{}", scopes.levels.len());
    scopes.leave(&in_force, outer);
    assert_eq!(tags(&in_force), [(2, 255)]);
    scopes.leave(&in_force, scope);
    assert_eq!((scopes.top, in_force.get().is_null()), (0, true));
}
