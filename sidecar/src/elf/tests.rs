//! Real files of this machine against what binutils say of them, and files that are not what they should be.

use std::process::Command;

use super::*;

fn this_program() -> File {
    File::open(std::fs::File::open("/proc/self/exe").unwrap()).unwrap()
}

fn binutil(name: &str, arguments: &[&str]) -> String {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(name).args(arguments).arg(program).output().unwrap();
    assert!(output.status.success(), "{name} {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn functions_of_this_program_are_found_where_nm_says() {
    let file = this_program();
    let symbols = file.symbols().unwrap();
    let listed = binutil("nm", &["--defined-only", "--print-size"]);
    let mut at = std::collections::HashMap::new();
    for address in listed.lines().filter_map(|line| line.split(' ').next()) {
        *at.entry(address).or_insert(0) += 1;
    }
    let mut compared = 0;
    // Functions that have a size, and are alone at their address; some hundreds of them.
    for line in listed.lines().step_by(listed.lines().count().div_ceil(2_000)) {
        let words: Vec<&str> = line.split(' ').collect();
        let [address, size, "T" | "t", name] = words[..] else { continue };
        let [address, size] = [address, size].map(|number| u64::from_str_radix(number, 16).unwrap());
        if at.get(words[0]).is_some_and(|count| *count > 1) {
            continue;
        }
        let found = symbols.find(&file, address + size - 1).unwrap();
        assert_eq!((found.address, found.size), (address, size), "{name}");
        assert!(listed.contains(&found.name), "{name}");
        assert_eq!(file.address_of(file.offset_of(address).unwrap()), Some(address));
        compared += 1;
    }
    assert!(compared > 100, "{compared} functions");
    let main = symbols.address_of(&file, "main").unwrap();
    assert_eq!(symbols.find(&file, main).unwrap().name, "main");
}

#[test]
fn the_build_id_is_the_one_that_readelf_says() {
    let id = this_program().build_id().map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let notes = binutil("readelf", &["-n"]);
    let said = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).map(str::to_owned);
    assert_eq!(id, said);
}

#[test]
fn the_machine_and_the_sections_are_those_that_readelf_says() {
    let file = this_program();
    assert_eq!(file.machine(), if cfg!(target_arch = "x86_64") { Machine::X86_64 } else { Machine::Aarch64 });
    let sections = binutil("readelf", &["-SW"]);
    for name in [".text", ".dynsym", ".symtab"] {
        let line = sections.lines().find_map(|line| line.split_once(&format!("] {name} "))).unwrap().1;
        let mut words = line.split_whitespace().skip(1).map(|word| u64::from_str_radix(word, 16).unwrap());
        let section = file.section(name).unwrap();
        let ours = [section.address, section.offset, section.size];
        assert_eq!(ours, [words.next().unwrap(), words.next().unwrap(), words.next().unwrap()], "{name}");
    }
}

/// A header, `segments` after it, and a byte.
fn image(segments: &[[u64; 5]]) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[0x10..0x14].copy_from_slice(&[2, 0, 62, 0]);
    bytes[0x20] = 64;
    bytes[0x36] = 56;
    bytes[0x38..0x3a].copy_from_slice(&(segments.len() as u16).to_le_bytes());
    for [kind, offset, address, file_size, memory_size] in segments {
        let words = [*kind, *offset, *address, 0, *file_size, *memory_size, 0];
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    bytes.push(7);
    bytes
}

#[test]
fn a_file_that_is_no_elf_file_is_refused_with_what_is_wrong() {
    let refused = |bytes: Vec<u8>| File::of_bytes(bytes).unwrap_err().to_string();
    assert_eq!(refused(Vec::new()), "the ELF header at 0x0: it lies outside of the file");
    assert_eq!(refused(vec![b'x'; 64]), "the ELF header at 0x0: not an ELF file");
    let changed = |at: usize, byte: u8| {
        let mut bytes = image(&[]);
        bytes[at] = byte;
        bytes
    };
    assert_eq!(
        refused(changed(4, 1)),
        "the ELF header at 0x0: a program of 32 bits or of big-endian words, where 64 bits and little-endian are read"
    );
    assert_eq!(refused(changed(0x38, 1)), "the program headers at 0x40: it lies outside of the file");
    assert_eq!(refused(changed(0x39, 4)), "the program headers at 0x40: 1024 is more than any program has");
    let mut odd = image(&[[1, 0, 0, 1, 1]]);
    odd[0x36] = 32;
    assert_eq!(refused(odd), "the program headers at 0x40: each must have 56 bytes");
    let folder = File::open(std::fs::File::open("/").unwrap()).unwrap_err();
    assert_eq!(folder.to_string(), "the file at 0x0: not an ordinary file");
}

#[test]
fn damaged_section_headers_leave_a_file_without_sections() {
    let mut bytes = image(&[[1, 0, 0x1000, 64, 64]]);
    for (table, entry, count) in [(1 << 40, 64, 3), (u64::MAX, 64, 3), (64, 63, 3), (64, 64, 0), (8, 64, 0xffff)] {
        bytes[0x28..0x30].copy_from_slice(&u64::to_le_bytes(table));
        bytes[0x3a..0x3c].copy_from_slice(&u16::to_le_bytes(entry));
        bytes[0x3c..0x3e].copy_from_slice(&u16::to_le_bytes(count));
        let file = File::of_bytes(bytes.clone()).unwrap();
        assert_eq!((file.sections().len(), file.loaded().count()), (0, 1), "{table} {entry} {count}");
    }
}

#[test]
fn segments_beyond_the_file_or_the_address_space_hold_what_the_file_has() {
    let file =
        File::of_bytes(image(&[[1, 0, 0x1000, 1 << 40, 1 << 40], [1, u64::MAX - 1, u64::MAX - 1, 9, 9]])).unwrap();
    let size = file.size();
    assert_eq!((file.readable(0x1000), file.readable(0x1000 + size - 1)), (size, 1));
    let mut byte = [0];
    file.read(0x1000 + size - 1, &mut byte).unwrap();
    assert_eq!(byte, [7]);
    assert_eq!(file.read(0x1000 + size, &mut byte).unwrap_err().why, Why::Outside);
    assert_eq!(file.read(u64::MAX, &mut byte).unwrap_err().why, Why::Outside);
    assert_eq!(file.read(0, &mut byte).unwrap_err().why, Why::Outside);
    assert_eq!((file.offset_of(u64::MAX), file.readable(u64::MAX)), (Some(u64::MAX), 0));
}

#[test]
fn a_file_that_is_cut_short_while_it_is_read_is_an_error() {
    let path = std::env::temp_dir().join(format!("profiler-elf-{}", std::process::id()));
    let mut bytes = image(&[[1, 0, 0x1000, 1 << 20, 1 << 20]]);
    bytes.resize(1 << 20, 1);
    std::fs::write(&path, &bytes).unwrap();
    let file = File::open(std::fs::File::open(&path).unwrap()).unwrap();
    let mut some = [0; 16];
    file.read(0x1000 + 500_000, &mut some).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(file.read(0x1000 + 900_000, &mut some).unwrap_err().why, Why::Outside);
    // What was read before is still known, and small reads and large ones go on being answered.
    file.read(0x1000 + 500_000, &mut some).unwrap();
    assert_eq!(some, [1; 16]);
    assert_eq!(file.read(0x1000, &mut [0; 100_000]).unwrap_err().why, Why::Outside);
}

#[test]
fn what_is_kept_of_a_file_is_what_is_in_it() {
    let path = std::env::temp_dir().join(format!("profiler-pages-{}", std::process::id()));
    let mut bytes = image(&[]);
    bytes.extend((0..300_000u32).flat_map(u32::to_le_bytes));
    std::fs::write(&path, &bytes).unwrap();
    let file = File::open(std::fs::File::open(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut at = 1;
    for len in [1, 2, 8, 100, 8192, 20_000].into_iter().cycle().take(2000) {
        at = (at * 48_271) % (bytes.len() - len);
        let mut part = vec![0; len];
        file.read_at(at as u64, &mut part).unwrap();
        assert_eq!(part, bytes[at..at + len], "{len} bytes at {at}");
    }
}

/// A program of two segments of data that are `length` bytes long each, all of it a hole but for `word` at the end of the second.
fn mostly_hole(length: u64, word: u64) -> std::fs::File {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::from(rustix::fs::memfd_create("hole", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    let mut header = vec![0; 64];
    header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    header[0x10..0x14].copy_from_slice(&[2, 0, 62, 0]);
    header[0x20] = 64;
    header[0x36] = 56;
    header[0x38] = 2;
    for number in 0..2 {
        let mut segment = [0; 56];
        segment[..8].copy_from_slice(&[1, 0, 0, 0, 6, 0, 0, 0]);
        let offset = 4096 + number * length;
        for (at, value) in [(8, offset), (16, offset), (24, offset), (32, length), (40, length), (48, 4096)] {
            segment[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        header.extend(segment);
    }
    file.write_all_at(&header, 0).unwrap();
    file.set_len(4096 + 2 * length).unwrap();
    file.write_all_at(&word.to_le_bytes(), 4096 + 2 * length - 8).unwrap();
    file
}

/// Check that holes, which cost whoever makes them nothing, are not read through, and what stands behind them is found.
#[test]
fn a_search_goes_over_holes() {
    const LENGTH: u64 = 1 << 40;
    const WORD: u64 = 0x0123_4567_89ab_cdef;
    let file = File::open(mostly_hole(LENGTH, WORD)).unwrap();
    let pattern = Pattern { word: WORD, mask: u64::MAX, align: 16 };
    let found = |address| std::ops::ControlFlow::Break(address);
    assert_eq!(file.search(|_| true, (Pattern { align: 8, ..pattern }, OF_TABLES), found), Some(4096 + 2 * LENGTH - 8));
    assert_eq!(file.search(|_| true, (pattern, OF_TABLES), found), None::<u64>, "it stands at no multiple of 16");
    let near = Pattern { align: 8, ..pattern };
    assert_eq!(file.search(|_| true, (near, 8 << 10), found), None::<u64>, "it stands behind what may be read");
}

/// Check that a file is not read through for ever, whatever its tables ask for.
#[test]
fn what_is_read_of_a_file_from_end_to_end_is_bounded() {
    let file = File::open(mostly_hole(1 << 30, 0)).unwrap();
    let mut bytes = vec![0; 64 << 20];
    let outcomes: Vec<_> = (0..24).map(|_| file.pages.read_once(0, &mut bytes).err().map(|fault| fault.why)).collect();
    assert!(outcomes[..20].iter().all(Option::is_none), "{outcomes:?}");
    assert!(outcomes[20..].iter().all(|why| matches!(why, Some(Why::Exhausting(_)))), "{outcomes:?}");
    // What is looked up in it costs little, and goes on.
    assert!(file.pages.read(0, &mut [0; 64]).is_ok());
}
