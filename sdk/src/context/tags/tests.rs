//! Sets of tags: how texts are normalized and cut, what has no room, which scopes are in force, and what becomes of those around a panic.

use super::*;

fn in_force() -> Vec<(&'static str, String)> {
    let mut texts: Vec<_> = texts(Tags::current().as_bytes()).collect();
    texts.sort();
    texts
}

fn pair(key: &'static str, value: &str) -> (&'static str, String) {
    (key, value.to_owned())
}

/// Check that scopes merge, that the inner one wins, and that leaving restores what was.
#[test]
fn scopes_nest() {
    let _outer = crate::tag!("endpoint" => "/orders", "method" => "GET");
    {
        let _inner = crate::tag!("method" => "POST", "user" => 7);
        assert_eq!(in_force(), [pair("endpoint", "/orders"), pair("method", "POST"), pair("user", "7")]);
    }
    assert_eq!(in_force(), [pair("endpoint", "/orders"), pair("method", "GET")]);
    let doubled = with_tags(crate::tags!("user" => 8), || in_force().len());
    assert_eq!((doubled, in_force().len()), (3, 2));
}

/// Check that a scope that outlives an outer one, or ends before an inner one, takes with it only what it brought.
#[test]
fn scopes_end_in_any_order() {
    let outer = crate::tag!("a" => 1, "b" => 1);
    let inner = crate::tag!("b" => 2);
    drop(outer);
    assert_eq!(in_force(), [pair("b", "2")]);
    let last = crate::tag!("c" => 3);
    drop(inner);
    assert_eq!(in_force(), [pair("c", "3")]);
    drop(last);
    assert_eq!(in_force(), []);
}

/// Check that a panic restores the outer tags.
#[test]
fn a_panic_leaves_its_scope() {
    let caught = std::panic::catch_unwind(|| with_tags(crate::tags!("a" => 1), || panic!("expected by the test")));
    assert!(caught.is_err());
    assert_eq!(in_force(), []);
}

/// Check that empty keys, control characters and long texts follow the written rules.
#[test]
fn odd_texts_are_normalized() {
    let (before, altered) = (counts::left_out_here(), counts::altered_here());
    let long = "é".repeat(500_000);
    let tags = crate::tags!("" => 1, "a\nb" => "c\td\u{85}é\u{7f}", "twice" => 1, "twice" => 2, "long" => long);
    let texts: Vec<_> = texts(tags.as_bytes()).collect();
    let value = |key: &str| texts.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str());
    assert_eq!((value("a b"), value("twice")), (Some("c d é "), Some("2")));
    assert_eq!((texts.len(), value("long").map(str::len)), (3, Some(254)));
    // The one without a key is left out; the one with control characters and the long one are altered.
    assert_eq!((counts::left_out_here(), counts::altered_here()), (before + 1, altered + 2));
}

/// Check that a key of a megabyte is cut at a character, that a path that is no text is one, and that both are counted.
#[test]
#[cfg(unix)]
fn long_keys_and_paths_are_normalized() {
    use std::os::unix::ffi::OsStrExt;
    let altered = counts::altered_here();
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(b"/caf\xff\xfe/\xe2\x82/\x01"));
    let long: &'static str = format!("k{}", "é".repeat(500_000)).leak();
    let tags = crate::tags!(long => 1, "path" => path.display());
    let expected = [pair("path", "/caf\u{fffd}\u{fffd}/\u{fffd}/ "), (&long[..63], "1".to_owned())];
    assert_eq!(texts(tags.as_bytes()).collect::<Vec<_>>(), expected);
    assert_eq!(counts::altered_here(), altered + 2);
    // What is as it was is not.
    drop(crate::tags!("plain" => "x".repeat(MAX_VALUE), "k".repeat(MAX_KEY).leak() => "é\u{a0}"));
    assert_eq!(counts::altered_here(), altered + 2);
}

/// Check that a value that relies on its writing is written, however long it is, and nothing behind the cut.
#[test]
fn a_value_may_rely_on_its_writing() {
    struct Relies;
    impl Display for Relies {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str(&"x".repeat(MAX_VALUE - 1)).unwrap();
            formatter.write_str("é").unwrap();
            formatter.write_str("y").unwrap();
            Ok(())
        }
    }
    let tags = crate::tags!("long" => Relies);
    assert_eq!(texts(tags.as_bytes()).collect::<Vec<_>>(), [pair("long", &"x".repeat(MAX_VALUE - 1))]);
}

/// A value that writes `text`, and then fails, or panics.
struct Fails {
    text: &'static str,
    panics: bool,
}

impl Display for Fails {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text)?;
        assert!(!self.panics, "expected by the test");
        Err(fmt::Error)
    }
}

/// Check that a value that fails to show itself is what it showed until then, and that the tags beside it are there.
#[test]
fn a_value_that_fails_is_what_it_was_until_then() {
    let tags = crate::tags!("a" => 1, "half" => Fails { text: "half", panics: false }, "none" => Fails { text: "", panics: false });
    assert_eq!(texts(tags.as_bytes()).collect::<Vec<_>>(), [pair("none", ""), pair("half", "half"), pair("a", "1")]);
}

/// Check that a value that panics while it shows itself puts nothing in force, and that all goes on as before.
#[test]
fn a_value_that_panics_changes_nothing() {
    let _outer = crate::tag!("k" => "outer");
    let broken = || Fails { text: "half", panics: true };
    let caught = [
        std::panic::catch_unwind(|| drop(crate::tag!("a" => 1, "k" => broken()))),
        std::panic::catch_unwind(|| drop(crate::tags!("k" => broken(), "a" => 1))),
    ];
    assert!(caught.iter().all(Result::is_err));
    assert_eq!(in_force(), [pair("k", "outer")]);
    let _inner = crate::tag!("a" => 2);
    assert_eq!(in_force(), [pair("a", "2"), pair("k", "outer")]);
}

/// Check that tags that panic when they go, having been entered, are not in force behind it.
#[test]
fn what_panics_when_it_goes_is_not_left_in_force() {
    struct Bomb(Tags);
    impl Borrow<Tags> for Bomb {
        fn borrow(&self) -> &Tags {
            &self.0
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("expected by the test");
        }
    }
    let bomb = || Bomb(crate::tags!("k" => 1));
    let caught = [
        std::panic::catch_unwind(|| drop(Scope::enter(bomb()))),
        std::panic::catch_unwind(|| with_tags(bomb(), || ())),
    ];
    assert!(caught.iter().all(Result::is_err));
    assert_eq!(in_force(), []);
}

/// Check that of very many tags, as many as have room are kept, and the others are counted.
#[test]
fn what_has_no_room_is_counted() {
    let before = counts::left_out_here();
    let values: Vec<String> = (0..1000).map(|number| format!("value {number}")).collect();
    let tags = Tags::new(values.iter().map(|value| ("many", value as &dyn Display)));
    assert_eq!(texts(tags.as_bytes()).collect::<Vec<_>>(), [pair("many", "value 999")]);
    let wide = "x".repeat(MAX_VALUE);
    let tags = crate::tags!("w1" => wide, "w2" => wide, "w3" => wide);
    assert_eq!(texts(tags.as_bytes()).collect::<Vec<_>>(), [pair("w3", &wide), pair("w2", &wide), pair("w1", "")]);
    assert_eq!(counts::left_out_here(), before + 1);
}

/// Check that a value without room is not replaced by another one of its key, whether that came before it or from outside.
#[test]
fn no_other_value_stands_for_one_without_room() {
    let _outer = crate::tag!("k" => "outer");
    let (long, wide) = ("x".repeat(200), "x".repeat(MAX_VALUE));
    let _inner = crate::tag!("k" => "old", "k" => long, "a" => wide, "b" => wide);
    assert_eq!(in_force(), [pair("a", &wide), pair("b", &wide), pair("k", "")]);
}

/// Check that the tags in force can be carried to another thread.
#[test]
fn tags_are_carried_to_another_thread() {
    let _scope = crate::tag!("endpoint" => "/orders");
    let tags = Tags::current();
    // Those of another work, which waits on that thread, are none of its own.
    let there = std::thread::spawn(move || with_tags(crate::tags!("tenant" => 7), || with_tags(tags, in_force)));
    assert_eq!(there.join().unwrap(), [pair("endpoint", "/orders")]);
    assert_eq!(format!("{:?}", Tags::current()), r#"{"endpoint": "/orders"}"#);
}
