//! Lines of `maps`: those of the kernel, those of a process that means harm, and garbage.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Mappings {
    Mappings::parse(text.as_bytes()).unwrap()
}

/// Check every field of a line as the kernel writes it.
#[test]
fn a_line_has_the_fields_of_the_man_page() {
    let text = "7f0a1c000000-7f0a1c021000 r-xp 0001a000 fd:102 1835012                    /usr/lib/a b.so (deleted)\n";
    let mappings = parse(text);
    let [mapping] = mappings.list() else { panic!("{mappings:?}") };
    assert_eq!((mapping.start, mapping.end, mapping.offset), (0x7f0a_1c00_0000, 0x7f0a_1c02_1000, 0x1a000));
    assert_eq!((mapping.device, mapping.inode), (Device { major: 0xfd, minor: 0x102 }, 1_835_012));
    assert!(mapping.executable);
    assert_eq!(mapping.path(), (Path::new("/usr/lib/a b.so"), true));
    assert_eq!(mapping.offset_of(0x7f0a_1c00_0010), Some(0x1a010));
    assert_eq!(mapping.offset_of(0x7f0a_1c02_1000), None);
}

/// Check that heaps and stacks are not kept, code without a file is, and an address is found in what has it.
#[test]
fn what_has_code_or_a_file_is_kept() {
    let mappings = parse(
        "1000-2000 r--p 00000000 08:01 7 /bin/a\n\
         2000-3000 rw-p 00000000 00:00 0 [heap]\n\
         4000-5000 rwxp 00000000 00:00 0\n\
         5000-6000 r-xp 00000000 00:00 0 [vdso]\n",
    );
    let names: Vec<_> = mappings.list().iter().map(|mapping| mapping.name.to_str().unwrap()).collect();
    assert_eq!(names, ["/bin/a", "", "[vdso]"]);
    let start = |address| mappings.find(address).map(|mapping| mapping.start);
    assert_eq!(
        [0xfff, 0x1000, 0x1fff, 0x2000, 0x4800, 0x5fff, 0x6000].map(start),
        [None, Some(0x1000), Some(0x1000), None, Some(0x4000), Some(0x5000), None]
    );
}

/// Check that neighbours are one mapping only where memory, file and permission to run go on.
#[test]
fn neighbours_of_one_file_are_one() {
    let mappings = parse(
        "1000-2000 r--p 00000000 08:01 7 /bin/a\n\
         2000-3000 rw-p 00001000 08:01 7 /bin/a\n\
         3000-4000 r-xp 00002000 08:01 7 /bin/a\n\
         4000-5000 r-xp 00004000 08:01 7 /bin/a\n\
         5000-6000 r-xp 00005000 08:01 8 /bin/a\n\
         6000-7000 r-xp 00006000 08:01 8 /bin/b\n\
         8000-9000 r-xp 00007000 08:01 8 /bin/b\n",
    );
    let ranges: Vec<_> = mappings.list().iter().map(|mapping| (mapping.start, mapping.end)).collect();
    let expected =
        [(0x1000, 0x3000), (0x3000, 0x4000), (0x4000, 0x5000), (0x5000, 0x6000), (0x6000, 0x7000), (0x8000, 0x9000)];
    assert_eq!(ranges, expected);
}

/// Check that a name with line feeds cannot pass for a line, that too long a line is left out, and that others stay.
#[test]
fn hostile_names_hide_nothing() {
    let long = "x".repeat(LINE_BYTES * 2);
    let text = format!(
        "1000-2000 r-xp 00000000 08:01 7 /tmp/a\\0121000-9000 r-xp 0 08:01 9 /bin/sh\n\
         2000-3000 r-xp 00000000 08:01 7 /{long}\n\
         not a line\n\
         3000-1000 r-xp 00000000 08:01 7 /backwards\n\
         2800-4000 r-xp 00000000 08:01 9 /next\n\
         2000-2800 r-xp 00000000 08:01 9 /out of order\n"
    );
    let mappings = parse(&text);
    let ranges: Vec<_> = mappings.list().iter().map(|mapping| (mapping.start, mapping.end)).collect();
    assert_eq!(ranges, [(0x1000, 0x2000), (0x2800, 0x4000)]);
    assert_eq!(mappings.scan(), Scan { lines: 3, unclear: 3, is_cut: false, nameless: 0 });
}

/// Check that there is an end to what is kept, and that it is said.
#[test]
fn too_many_are_cut() {
    let mut text = String::new();
    for number in 1..=MOST + 5 {
        writeln!(text, "{:x}-{:x} r-xp 00000000 08:01 {number} /a", number * 0x1000, number * 0x1000 + 0x800).unwrap();
    }
    let mappings = parse(&text);
    assert_eq!((mappings.list().len(), mappings.scan().is_cut), (MOST, true));
}

/// Check that a name is kept once, wherever it comes up again, and that long ones take no more than there is room for: what has none stays a mapping
/// of a file, and is counted.
#[test]
fn names_take_bounded_memory() {
    let mut text = String::new();
    for number in 1..=20_000_u64 {
        let (start, name) =
            (number * 0x1000, if number % 2 == 0 { "shared".into() } else { format!("{number:02000}") });
        writeln!(text, "{start:x}-{:x} r-xp 00000000 08:01 {number} /{name}", start + 0x800).unwrap();
    }
    let mappings = parse(&text);
    let list = mappings.list();
    assert_eq!((list.len(), mappings.scan().is_cut), (20_000, false));
    assert!(list.iter().skip(1).step_by(2).all(|mapping| Arc::ptr_eq(&mapping.name, &list[1].name)));
    let distinct: HashSet<*const Path> = list.iter().map(|mapping| Arc::as_ptr(&mapping.name)).collect();
    let longest = list.iter().map(|mapping| mapping.name.as_os_str().len()).max();
    assert!(distinct.len() * 2001 <= MOST_NAMES && longest == Some(2001), "{} names", distinct.len());
    let nameless = list.iter().filter(|mapping| mapping.is_file() && mapping.name.as_os_str().is_empty()).count();
    assert_eq!((mappings.scan().nameless, nameless + distinct.len() - 2), (nameless, 10_000));
}

proptest! {
    /// Check that of any bytes the answer is in order, without an overlap.
    #[test]
    fn garbage_stays_in_order(text in "([0-9a-f]{1,5}-[0-9a-f]{1,5} r-?[wx]?p? 0{0,3}[0-9a-f]{0,17} 0?8:1 [0-9]{0,3} ?.{0,9}\n){0,40}", noise in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = text.into_bytes();
        bytes.extend(noise);
        let mappings = Mappings::parse(bytes.as_slice()).unwrap();
        prop_assert!(mappings.list().windows(2).all(|pair| pair[0].end <= pair[1].start));
        prop_assert!(mappings.list().iter().all(|mapping| mapping.start < mapping.end));
    }
}
