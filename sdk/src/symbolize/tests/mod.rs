//! Tests of symbolizing: real files, compared with what binutils say about them.
//!
//! In: programs built here with gcc, rustc and objcopy ([`build`]), and this test itself. Out: failures. Runs under
//! `cargo test`; the files are in a folder of their own below the system's for temporary files.

mod build;
mod file_id;
mod hostile;
mod memory;
mod oracle;
mod split;

use super::*;

/// Runs what never waits for anything but its next turn.
pub(super) fn run<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = work.as_mut().poll(&mut context) {
            return value;
        }
    }
}

/// Learns the names of these addresses, as if they were a window's.
pub(super) fn learn(symbolizer: &mut Symbolizer, addresses: &[u64], modules: &Modules) {
    run(symbolizer.learn(&[(addresses.to_vec(), modules)]));
}

fn symbolizer() -> Symbolizer {
    Symbolizer::new(Some(Folders::new(&|_| None)))
}

fn symbol_of(address: u64) -> Arc<Symbol> {
    let (mut symbolizer, modules) = (symbolizer(), Modules::read(&Modules::default()));
    learn(&mut symbolizer, &[address], &modules);
    symbolizer.symbol(address, &modules)
}

/// Check that a function of this test has its name, file and language.
#[test]
fn own_functions_have_names_and_lines() {
    let symbol = symbol_of(own_functions_have_names_and_lines as *const () as u64 + 4);
    let frame = symbol.frames.last().unwrap();
    assert_eq!(&*frame.name, "profiler::symbolize::tests::own_functions_have_names_and_lines");
    assert!(frame.file.ends_with("symbolize/tests/mod.rs") && frame.line > 0, "{frame:?}");
    assert_eq!(symbol.language, Language::Rust);
}

/// Check that it is told whether the program has line tables, from the first window on.
#[test]
fn the_presence_of_lines_is_told() {
    let (mut symbolizer, modules) = (symbolizer(), Modules::read(&Modules::default()));
    assert_eq!(symbolizer.stats.lines, None);
    learn(&mut symbolizer, &[], &modules);
    assert_eq!(symbolizer.stats.lines, Some(true), "tests are built with line tables");
}

/// Check that a program whose own symbols were stripped says so.
#[test]
fn a_stripped_program_is_told_of() {
    const VARIABLE: &str = "PROFILER_TEST_STRIPPED";
    if std::env::var_os(VARIABLE).is_none() {
        let (name, folder) = ("symbolize::tests::a_stripped_program_is_told_of", build::Folder::new());
        let stripped = folder.0.join("stripped");
        build::objcopy(&["--strip-all"], &[&std::env::current_exe().unwrap(), &stripped]);
        build::tool(std::process::Command::new(stripped).args(["--exact", name]).env(VARIABLE, "1"));
        return;
    }
    let (mut symbolizer, modules) = (symbolizer(), Modules::read(&Modules::default()));
    let address = a_stripped_program_is_told_of as *const () as u64;
    learn(&mut symbolizer, &[address, libc::getpid as *const () as u64], &modules);
    assert!(symbolizer.symbol(address, &modules).frames[0].name.contains("+0x"));
    let [note] = &symbolizer.stats.notes[..] else { panic!("{:?}", symbolizer.stats.notes) };
    assert!(note.contains("/stripped: it was stripped"), "{note}");
}

/// Check that names that cannot be found for want of a descriptor are found by a later window.
#[test]
fn a_want_of_descriptors_does_not_last() {
    const VARIABLE: &str = "PROFILER_TEST_DESCRIPTORS";
    if std::env::var_os(VARIABLE).is_none() {
        let name = "symbolize::tests::a_want_of_descriptors_does_not_last";
        let script = format!("ulimit -n 64; exec \"$0\" --exact {name} --test-threads=1");
        let mut child = std::process::Command::new("sh");
        build::tool(child.arg("-c").arg(script).arg(std::env::current_exe().unwrap()).env(VARIABLE, "1"));
        return;
    }
    let (mut symbolizer, modules) = (symbolizer(), Modules::read(&Modules::default()));
    let address = libc::getpid as *const () as u64;
    let files: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    learn(&mut symbolizer, &[address], &modules);
    assert!(symbolizer.symbol(address, &modules).frames[0].name.contains("+0x") && symbolizer.stats.unresolved == 0);
    let [note] = &symbolizer.stats.notes[..] else { panic!("{:?}", symbolizer.stats.notes) };
    assert!(note.contains("are tried again") && note.contains("Too many open files"), "{note}");
    drop(files);
    learn(&mut symbolizer, &[address], &modules);
    assert!(symbolizer.symbol(address, &modules).frames[0].name.contains("getpid") && symbolizer.stats.resolved == 1);
}

/// Check that functions of the C library and of the vDSO are named.
#[test]
fn libraries_and_the_vdso_have_names() {
    assert!(symbol_of(libc::getpid as *const () as u64).frames[0].name.contains("getpid"));
    let modules = Modules::read(&Modules::default());
    let vdso = modules.iter().find(|module| module.name == "[vdso]").unwrap();
    let mut symbolizer = symbolizer();
    let addresses: Vec<u64> = vdso.code.clone().step_by(16).collect();
    learn(&mut symbolizer, &addresses, &modules);
    let mut names = addresses.iter().map(|address| symbolizer.symbol(*address, &modules));
    assert!(names.any(|symbol| symbol.frames[0].name.contains("clock_gettime")));
}

/// Check that calls into libraries, which linkers put behind functions without a size, are in none of these.
#[test]
fn what_the_linker_made_is_in_no_function() {
    let folder = build::Folder::new();
    let library = folder.c("code.so", &[]);
    let (init, plt) = (build::section(&library, ".init"), build::section(&library, ".plt"));
    let wanted: Vec<u64> = [init.start].into_iter().chain(plt.step_by(4)).collect();
    let symbols = build::symbols(build::loaded(&library), &Folders::new(&|_| None), &wanted);
    assert_eq!(&*symbols[0].frames[0].name, "_init");
    assert!(symbols.len() > 4, "no calls into libraries");
    for (symbol, address) in symbols.iter().zip(&wanted).skip(1) {
        assert_eq!(*symbol.frames[0].name, *format!("code.so+{address:#x}"));
    }
}

/// The name of a module's file: the C library's is that of the program where that is static.
fn file_name(module: &Module) -> &str {
    module.name.rsplit('/').next().unwrap()
}

/// Check that an address without a symbol is named by its file, one without a file by itself.
#[test]
fn unresolved_addresses_are_named() {
    let modules = Modules::read(&Modules::default());
    let libc = modules.find(libc::getpid as *const () as u64).unwrap();
    let name = unresolved(Some(libc), 0x28b0, &Position::default()).frames[0].name.clone();
    assert_eq!(*name, *format!("{}+0x28b0", file_name(libc)));
    assert_eq!(&*symbol_of(8).frames[0].name, "[unknown]+0x8");
}

/// Check that nothing is read when names are not wanted: frames have the file's name and an offset.
#[test]
fn turned_off_addresses_have_numbers() {
    let modules = Modules::read(&Modules::default());
    let address = libc::getpid as *const () as u64;
    let mut symbolizer = Symbolizer::new(None);
    learn(&mut symbolizer, &[address], &modules);
    let name = symbolizer.symbol(address, &modules).frames[0].name.clone();
    let offset = address - modules.find(address).unwrap().bias;
    assert_eq!(*name, *format!("{}+{offset:#x}", file_name(modules.find(address).unwrap())));
    assert_eq!(symbolizer.stats, crate::stats::SymbolStats::default());
}

/// Check that what is known survives when some other library comes or goes, and that what has no build id does not when
/// one goes, for another may have taken its place.
#[test]
fn names_survive_other_libraries() {
    let folder = build::Folder::new();
    for (flags, survives) in [(&[][..], true), (&["-Wl,--build-id=none"], false)] {
        let library = folder.c("code.so", flags);
        let (_, start, _) = *build::functions(&library).iter().find(|(name, _, _)| name == "outer").unwrap();
        let before = build::loaded(&library);
        let (address, range) = (start + before.bias, before.range.clone());
        let mut after =
            Modules::only(crate::unwind::modules::Module { range, bias: before.bias, ..build::loaded(&library) });
        let mut symbolizer = symbolizer();
        learn(&mut symbolizer, &[address], &Modules::only(before));
        after.changes = (7, 3);
        // Nothing is left to find the name with.
        std::fs::remove_file(&library).unwrap();
        learn(&mut symbolizer, &[address], &after);
        assert_eq!(&*symbolizer.symbol(address, &after).frames[0].name == "outer", survives);
        assert_eq!(symbolizer.stats.resolved, 1);
    }
}
