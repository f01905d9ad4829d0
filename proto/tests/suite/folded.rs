//! Folded stacks there and back.

use profiler_proto::folded::{self, Tags};
use profiler_proto::{Limits, ProfileSet};
use proptest::prelude::*;

use crate::sample::checkout;

fn decoded(text: &str) -> ProfileSet {
    folded::decode(text.as_bytes(), &Limits::default()).unwrap()
}

fn encoded(set: &ProfileSet, tags: Tags) -> String {
    folded::encode(&set.profiles[0], &set.dictionary, tags)
}

/// Check that inlined functions are frames, and tags are kept on request.
#[test]
fn a_line_holds_stack_and_tags() {
    assert_eq!(
        encoded(&checkout(), Tags::Left),
        "checkout::main;checkout::handle;checkout::price 5\n\
         checkout::main;checkout::handle;checkout::price;core::slice::sort 4\n"
    );
    let tagged = encoded(&checkout(), Tags::Kept);
    assert!(tagged.starts_with("{endpoint=/orders,thread.id=7};checkout::main;"), "{tagged}");
}

/// Check that frames without a name show where they are.
#[test]
fn unnamed_frames_show_their_place() {
    let mut set = checkout();
    let mut leaf = set.dictionary.locations.iter().last().unwrap().clone();
    leaf.lines = [].into();
    let mapped = set.dictionary.locations.intern(leaf.clone());
    leaf.mapping = Default::default();
    let unmapped = set.dictionary.locations.intern(leaf);
    let stack = profiler_proto::model::Stack { locations: [mapped, unmapped].into() };
    set.profiles[0].samples.truncate(1);
    set.profiles[0].samples[0].stack = set.dictionary.stacks.intern(stack);
    assert_eq!(encoded(&set, Tags::Left), "0x50000300;checkout+0x1300 5\n");
}

/// Check that separators within names and tags come back as they were.
#[test]
fn separators_come_back() {
    let line = "{k=\\x2c\\x3d\\x7d};{closure}\\x3b a\\x0ab;C:\\x5cx 3\n";
    let set = decoded(line);
    assert_eq!(encoded(&set, Tags::Kept), line);
    let names: Vec<_> = set.dictionary.functions.iter().map(|f| set.dictionary.strings.text(f.name)).collect();
    assert_eq!(names, ["", "C:\\x", "{closure}; a\nb"]);
    let tags: Vec<_> = set.dictionary.attributes_of(set.profiles[0].samples[0].attributes).collect();
    assert_eq!(tags, [("k", &",=}".into())]);
}

/// Check that lines of other tools are read: no order, repeated stacks, a root that begins with a brace.
#[test]
fn foreign_lines_are_read() {
    let set = decoded("b;c 1\r\n\n{main};a 2\nb;c 4\n");
    assert_eq!(encoded(&set, Tags::Kept), "\\x7bmain};a 2\nb;c 5\n");
}

/// Check that bad lines are named.
#[test]
fn bad_lines_are_named() {
    let error = |text: &[u8]| folded::decode(text, &Limits::default()).unwrap_err().to_string();
    assert_eq!(error(b"a 1\nb"), "line 2: no space before a value");
    assert_eq!(error(b"a;b x"), "line 1: the last word is not an integer");
    assert!(error(b"a\xff 1").starts_with("not valid folded stacks: invalid utf-8"));
    let limits = Limits { memory: 1_000, ..Limits::default() };
    let error = folded::decode("a;a;a;a;a;a;a;a 1".as_bytes(), &limits).unwrap_err().to_string();
    assert_eq!(error, "bytes of decoded content go beyond the limit of 1000");
}

proptest! {
    /// Check that any names and tags come back.
    #[test]
    fn any_line_comes_back(frames in prop::collection::vec("\\PC{1,9}|[;\\\\{} \n]{1,4}", 1..5), key in "\\PC{1,4}", tag in "\\PC*", value in 1..i64::MAX) {
        let mut set = decoded("x 1");
        let d = &mut set.dictionary;
        let locations = frames.iter().map(|name| {
            let name = d.strings.intern_str(name);
            let function = d.functions.intern(profiler_proto::model::Function { name, ..Default::default() });
            let line = profiler_proto::model::Line { function, ..Default::default() };
            d.locations.intern(profiler_proto::model::Location { lines: [line].into(), ..Default::default() })
        }).collect();
        let tags = d.attribute(&key, tag);
        let sample = profiler_proto::Sample {
            stack: d.stacks.intern(profiler_proto::model::Stack { locations }),
            attributes: d.attribute_set([tags]),
            value,
            ..Default::default()
        };
        set.profiles[0].samples = vec![sample];
        prop_assert_eq!(decoded(&encoded(&set, Tags::Kept)), set.compacted());
    }

    /// Check that any text is decoded or refused, and that what was decoded stays the same from then on.
    #[test]
    fn any_text_is_decoded_or_refused(text in "([{};= \\\\a-c0-9\n]|\\PC)*") {
        if let Ok(set) = folded::decode(text.as_bytes(), &Limits::default()) {
            let once = encoded(&set, Tags::Kept);
            prop_assert_eq!(encoded(&decoded(&once), Tags::Kept), once);
        }
    }
}

/// Check that a text beyond its bound is none, that one at its bound is whole, and that the bound is one for memory, too: a frame of a long name in a deep stack.
#[test]
fn a_text_beyond_its_bound_is_none() {
    let within = |text: &str, most| {
        let set = folded::decode(text.as_bytes(), &Limits::default()).unwrap();
        folded::encode_within(&set.profiles[0], &set.dictionary, Tags::Kept, most)
    };
    // "a;b", "c" and "{k=v};c" are eleven bytes.
    let text = "a;b 1\nc 2\n{k=v};c 3\n";
    assert!(within(text, 10).is_none() && within(text, 11).is_some_and(|lines| lines.len() == text.len()));
    let deep = format!("{} 1\n", vec!["x".repeat(10_000); 1_000].join(";"));
    assert_eq!(within(&deep, 1 << 20), None);
}
