//! Names of addresses in processes that run, against what the tools of their languages say and what the processes say themselves.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use profiler_sidecar::naming::{BuildId, Kernel, Kind, Location, Namer};
use profiler_sidecar::sample::{End, Goroutine, Registers, Sample};
use profiler_sidecar::target::Process;

use super::build::{Running, c, go, library, place, run, versions};

/// The frames of one address, as an interrupted instruction's.
fn at(namer: &mut Namer, process: Process, address: u64) -> std::sync::Arc<Location> {
    let sample = Sample { user: vec![address], ..Sample::default() };
    std::sync::Arc::clone(&namer.name(process, &sample, Instant::now()).frames[0])
}

fn names(stack: &[std::sync::Arc<Location>]) -> Vec<&str> {
    stack.iter().map(|location| location.function()).collect()
}

/// Check that in a Go program, whether it lies where it was linked or elsewhere, with symbols or without, an address has the function, file and
/// line that `go tool addr2line` says of the program that was linked alike with symbols.
#[test]
fn go_functions_are_what_gos_own_tool_says() {
    for (arguments, shift) in [(&["-ldflags=-s -w"][..], false), (&["-buildmode=pie"][..], true)] {
        let version = versions()[1];
        let program = go(version, arguments);
        let mut running = Running::start(Command::new(&program).arg("wait"));
        // The process prints where its function `framed` is.
        let framed = running.address();
        let mut namer = Namer::default();
        let location = at(&mut namer, running.process(), framed);
        assert_eq!((location.function(), location.kind), ("main.framed", Kind::Go), "{arguments:?}");
        assert!(location.lines[0].function.file.ends_with("subject/main.go"), "{location:?}");
        let module = location.module.as_ref().unwrap();
        assert_eq!(Path::new(&*module.path), program);
        assert!(module.build_ids.iter().any(|(kind, id)| *kind == BuildId::Go && id.contains('/')), "{module:?}");
        let linked = if shift { linked_address(&program) } else { framed };
        let tool = Command::new("go")
            .args(["tool", "addr2line"])
            .arg(go(version, if shift { arguments } else { &[] }))
            .stdin_text(&format!("{linked:#x}\n"));
        let line = format!("{}\n{}:{}\n", location.function(), location.lines[0].function.file, location.lines[0].line);
        assert_eq!(tool, line);
        assert_eq!(namer.stats().unnamed, 0);
    }
}

/// Where the linker put `main.framed`.
fn linked_address(program: &Path) -> u64 {
    let table = run(Command::new("go").args(["tool", "nm"]).arg(program));
    let line = table.lines().find(|line| line.ends_with(" main.framed")).unwrap();
    u64::from_str_radix(line.split_whitespace().next().unwrap(), 16).unwrap()
}

trait WithInput {
    fn stdin_text(&mut self, text: &str) -> String;
}

impl WithInput for Command {
    /// Runs it with this input; gives what it wrote.
    fn stdin_text(&mut self, text: &str) -> String {
        let piped = std::process::Stdio::piped;
        let mut child = self.stdin(piped()).stdout(piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    }
}

/// Check that C functions, hidden ones too, those of a library without its own symbol table, code without a file and memory without anything
/// are told apart, and that what has no name is named by where it is.
#[test]
fn native_code_is_named_as_far_as_it_can_be() {
    let program = c("subject.c", &["-O1", "-fomit-frame-pointer"]);
    let mut running = Running::start(&mut Command::new(&program));
    let [inner, outer, qsort, anonymous, last] = [(); 5].map(|()| running.address());
    let (mut namer, process) = (Namer::default(), running.process());
    let mut name = |address| at(&mut namer, process, address).function().to_owned();
    assert_eq!([name(inner), name(outer), name(qsort)], ["inner", "outer", "qsort"]);
    assert_eq!([name(anonymous + 0x10), name(0x10)], ["[anon]+0x10", "[unknown]+0x10"]);
    let location = at(&mut namer, process, inner);
    assert_eq!((location.kind, location.module.as_ref().unwrap().build_ids[0].0), (Kind::Native, BuildId::Gnu));
    // What `abort` would return to is not of the function any more, the call is.
    let table = run(Command::new("nm").arg("-S").arg(&program));
    let size = table.lines().find(|line| line.ends_with(" T last")).and_then(|line| line.split(' ').nth(1)).unwrap();
    let behind = last + u64::from_str_radix(size, 16).unwrap();
    let sample = Sample { user: vec![inner, behind], ..Sample::default() };
    assert_eq!(names(&namer.name(process, &sample, Instant::now()).frames), ["inner", "last"]);
    assert_eq!(at(&mut namer, process, anonymous).module.as_ref().unwrap().build_ids.len(), 0);
}

/// Check that a stripped program's functions are named by file and address, as `objdump` counts addresses, and that the build is named by a hash of
/// the file where the linker wrote none.
#[test]
fn what_has_no_symbols_is_named_by_file_and_address() {
    let whole = c("subject.c", &["-O1", "-Wl,--build-id=none"]);
    let stripped = c("subject.c", &["-O1", "-s", "-Wl,--build-id=none"]);
    let mut running = Running::start(&mut Command::new(&stripped));
    let inner = running.address();
    let table = run(Command::new("nm").arg(&whole));
    let linked = table.lines().find(|line| line.ends_with(" t inner")).and_then(|line| line.split(' ').next()).unwrap();
    let location = at(&mut Namer::default(), running.process(), inner);
    let file = stripped.file_name().unwrap().to_string_lossy();
    assert_eq!(location.function(), format!("{file}+{:#x}", u64::from_str_radix(linked, 16).unwrap()));
    assert_eq!(location.module.as_ref().unwrap().build_ids[0].0, BuildId::Hash);
}

/// Check that functions of a stripped program have the names that were split off, by the link in the program and by its build id in the process's
/// own root, and that a file which does not belong to the program is not taken.
#[test]
fn symbols_that_were_split_off_are_found() {
    let folder = place("split");
    // Whatever is left there of an earlier run.
    let _gone = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let whole = c("subject.c", &["-O1", "-g"]);
    let other = c("subject.c", &["-O2", "-g"]);
    let objcopy = |arguments: &[&str], from: &Path, to: &Path| {
        run(Command::new("objcopy").args(arguments).arg(from).arg(to));
    };
    let (link, linked, bare) = (folder.join("linked.debug"), folder.join("linked"), folder.join("bare"));
    objcopy(&["--only-keep-debug"], &whole, &link);
    run(Command::new("strip").args(["-R", ".note.gnu.build-id", "-o"]).arg(&linked).arg(&whole));
    run(Command::new("objcopy").arg(format!("--add-gnu-debuglink={}", link.display())).arg(&linked));
    objcopy(&["--strip-all"], &whole, &bare);
    let named_by = |namer: &mut Namer, command: &mut Command| {
        let mut running = Running::start(command);
        let inner = running.address();
        at(namer, running.process(), inner).function().to_owned()
    };
    let named = |command: &mut Command| named_by(&mut Namer::default(), command);
    assert_eq!(named(&mut Command::new(&linked)), "inner");
    objcopy(&["--only-keep-debug"], &other, &link);
    assert!(named(&mut Command::new(&linked)).starts_with("linked+0x"), "a file of another build");
    assert!(named(&mut Command::new(&bare)).starts_with("bare+0x"));
    let id = elf(&whole).build_id().unwrap().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let script = "
        set -e
        mount --make-rprivate /
        mkdir -p /usr/lib/debug
        mount -t tmpfs none /usr/lib/debug
        mkdir -p /usr/lib/debug/.build-id/$1
        objcopy --only-keep-debug $3 /usr/lib/debug/.build-id/$1/$2.debug
        exec $0";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(&bare).args([&id[..2], &id[2..]]).arg(&whole);
    let allowed = Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).status();
    match allowed.is_ok_and(|status| status.success()) {
        // The same file, whose symbols are in one root and not in the other.
        true => {
            let mut namer = Namer::default();
            let [outside, inside] =
                [Command::new(&bare), command].map(|mut command| named_by(&mut namer, &mut command));
            assert!(outside.starts_with("bare+0x") && inside == "inner", "{outside}, {inside}");
        }
        false => println!("left out: mounts are not permitted here"),
    }
}

fn elf(path: &Path) -> profiler_sidecar::elf::File {
    profiler_sidecar::elf::File::open(std::fs::File::open(path).unwrap()).unwrap()
}

/// Check that programs which lld linked, of which no segment begins where GNU ld has it, have their names.
#[test]
fn programs_of_another_linker_have_their_names() {
    let linker = rust_lld();
    let program = c("subject.c", &["-O1", "-fuse-ld=lld", &format!("-B{}", linker.display())]);
    let file = elf(&program);
    let code = file.loaded().find(|segment| segment.executable).unwrap();
    assert!(code.offset % 4096 != 0 && code.offset != code.address, "as lld does: {code:?}");
    let mut running = Running::start(&mut Command::new(&program));
    let [inner, outer, ..] = [(); 5].map(|()| running.address());
    let (mut namer, process) = (Namer::default(), running.process());
    let mut name = |address| at(&mut namer, process, address).function().to_owned();
    assert_eq!([name(inner), name(outer)], ["inner", "outer"]);
    // What a mapping as a whole says of the load bias.
    let mappings = process.mappings().unwrap();
    let mapping = mappings.find(inner).unwrap();
    let bias = mapping.start.wrapping_sub(file.mapped_address_of(mapping.offset, true).unwrap());
    let table = run(Command::new("nm").arg(&program));
    let linked = table.lines().find(|line| line.ends_with(" t inner")).and_then(|line| line.split(' ').next()).unwrap();
    assert_eq!(inner.wrapping_sub(bias), u64::from_str_radix(linked, 16).unwrap());
}

/// The folder with the `ld.lld` that comes with Rust.
fn rust_lld() -> std::path::PathBuf {
    let root = run(Command::new("rustc").args(["--print", "sysroot"]));
    let target = format!("lib/rustlib/{}-unknown-linux-gnu/bin/gcc-ld", std::env::consts::ARCH);
    Path::new(root.trim()).join(target)
}

#[test]
fn names_of_other_languages_are_demangled() {
    let program = c("subject.cc", &["-O1"]);
    let mut running = Running::start(&mut Command::new(&program));
    let total = running.address();
    let mut namer = Namer::default();
    let location = at(&mut namer, running.process(), total);
    assert_eq!((location.function(), location.kind), ("shop::Cart::total(int) const", Kind::Native));
    assert_eq!(&*location.lines[0].function.system_name, "_ZNK4shop4Cart5totalEi");
    let own = Process::find(std::process::id()).unwrap();
    let rust = at(&mut namer, own, linked_address as fn(&Path) -> u64 as usize as u64);
    assert_eq!((rust.function(), rust.kind), ("naming::names::linked_address", Kind::Rust));
}

/// Check that the kernel's library in each process is named, which has no file.
#[test]
fn the_vdso_is_named() {
    let own = Process::find(std::process::id()).unwrap();
    let mappings = own.mappings().unwrap();
    let vdso = mappings.list().iter().find(|mapping| mapping.name.as_os_str() == "[vdso]").unwrap();
    let mut bytes = vec![0; (vdso.end - vdso.start) as usize];
    own.memory().read_exact(vdso.start, &mut bytes).unwrap();
    let elf = profiler_sidecar::elf::File::of_bytes(bytes).unwrap();
    let symbol = ["__vdso_clock_gettime", "__kernel_clock_gettime"]
        .iter()
        .find_map(|name| elf.symbols().unwrap().address_of(&elf, name))
        .unwrap();
    let location = at(&mut Namer::default(), own, vdso.start + symbol + 4);
    assert!(location.function().ends_with("clock_gettime"), "{location:?}");
    assert_eq!(&*location.module.as_ref().unwrap().path, "[vdso]");
}

#[test]
fn the_kernels_functions_are_above_those_of_the_program() {
    let table = "ffffffff81000000 T entry\nffffffff81000100 t do_work\nffffffffc0001000 t hook\t[filter]\n";
    let mut namer = Namer::new(Kernel::parse(table.as_bytes()));
    let own = Process::find(std::process::id()).unwrap();
    let kernel = vec![0xffff_ffff_c000_1010, 0xffff_ffff_8100_0100, 0x10];
    let user = vec![linked_address as fn(&Path) -> u64 as usize as u64];
    let stack = namer.name(own, &Sample { kernel, user, ..Sample::default() }, Instant::now());
    // The second one is a return address: the call is the last instruction of the function before.
    let shown = ["hook [filter]", "entry", "[kernel]", "naming::names::linked_address", "[stack incomplete]"];
    assert_eq!(names(&stack.frames), shown);
    assert!(stack.frames[..3].iter().all(|location| location.kind == Kind::Kernel && location.address == 0));
}

/// Check that when a library is unloaded and another one takes its place, the new one's names are shown, as soon as mappings are looked at
/// again.
#[test]
fn a_library_in_the_place_of_another_has_its_own_names() {
    let program = c("subject.c", &["-O1"]);
    let libraries = ["first", "second", "first"].map(library);
    let mut running = Running::start(Command::new(&program).args(&libraries));
    let _own = [(); 5].map(|()| running.address());
    let (mut namer, start) = (Namer::default(), Instant::now());
    for (number, name) in ["first", "second", "first"].into_iter().enumerate() {
        running.write("\n");
        let address = running.address();
        let sample = Sample { user: vec![address], ..Sample::default() };
        let now = start + Duration::from_secs(3600) * number as u32;
        let stack = namer.name(running.process(), &sample, now);
        assert_eq!(names(&stack.frames)[0], name, "{number}");
    }
}

/// Check that a process that is gone gives no names, is counted, and takes nothing else with it, and that one that was looked at
/// before it went has its names.
#[test]
fn a_process_that_is_gone_has_the_names_it_had() {
    let program = c("subject.c", &["-O1"]);
    let mut running = Running::start(&mut Command::new(&program));
    let (inner, process) = (running.address(), running.process());
    let (mut early, mut late) = (Namer::default(), Namer::default());
    early.prepare(process, Instant::now());
    running.go_on();
    drop(running);
    assert_eq!(at(&mut early, process, inner).function(), "inner");
    assert_eq!(at(&mut late, process, inner).function(), format!("[unknown]+{inner:#x}"));
    assert_eq!((early.stats().closed, late.stats().closed), (0, 1));
}

/// Check that one that has ended and is not reaped yet, whose mappings can be asked for and are none, is as one that is gone.
#[test]
fn a_process_that_is_not_reaped_has_the_names_it_had() {
    let program = c("subject.c", &["-O1"]);
    let mut running = Running::start(&mut Command::new(&program));
    let (inner, process) = (running.address(), running.process());
    let (mut early, mut late) = (Namer::default(), Namer::default());
    early.prepare(process, Instant::now());
    let pid = rustix::process::Pid::from_raw(process.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while std::fs::read(format!("/proc/{}/maps", process.pid())).is_ok_and(|maps| !maps.is_empty()) {
        assert!(Instant::now() < until, "it does not end");
    }
    let sample = Sample { user: vec![inner, 0x1234], ..Sample::default() };
    // An address that is nowhere has the mappings looked at again.
    let stack = early.name(process, &sample, Instant::now() + Duration::from_secs(3600));
    assert_eq!(stack.frames[0].function(), "inner");
    assert_eq!(at(&mut late, process, inner).function(), format!("[unknown]+{inner:#x}"));
    assert_eq!(late.stats().closed, 1);
}

/// Check that a walk which leads to what is no code ends there, and says so; with the goroutine's own function at its root where that is known.
#[test]
fn a_walk_that_leads_nowhere_says_so() {
    let program = go(versions()[1], &["-ldflags=-s -w"]);
    let mut running = Running::start(Command::new(&program).arg("wait"));
    let (framed, process) = (running.address(), running.process());
    let mut namer = Namer::default();
    let user = vec![framed + 8, framed + 9, 0x1234, framed];
    let sample = Sample { user, end: End::Root, ..Sample::default() };
    let stack = namer.name(process, &sample, Instant::now());
    assert_eq!(names(&stack.frames), ["main.framed", "main.framed", "[stack incomplete]"]);
    let go = profiler_sidecar::go::Program::open(elf(&program).into()).unwrap().unwrap();
    let start_pc = go.find("runtime.main").unwrap();
    for (end, flaw) in [(End::Cut, "truncated"), (End::Lost, "unwind_stopped")] {
        let goroutine = Some(Goroutine { id: 1, start_pc });
        let sample = Sample { user: vec![framed + 8], end, goroutine, ..Sample::default() };
        let stack = namer.name(process, &sample, Instant::now());
        assert_eq!(names(&stack.frames), ["main.framed", "[frames left out]", "runtime.main"]);
        assert_eq!(format!("{:?}", stack.flaws), format!("{{\"{flaw}\": 1}}"));
    }
    // `runtime.goexit`, below every goroutine, is no frame in Go's own profiles.
    let goexit = go.find("runtime.goexit").unwrap();
    let user = vec![framed + 8, start_pc + 8, goexit + 1, 0x77];
    let stack = namer.name(process, &Sample { user, end: End::Lost, ..Sample::default() }, Instant::now());
    assert_eq!(names(&stack.frames), ["main.framed", "runtime.main"]);
    assert_eq!(stack.flaws.total(), 0);
}

/// Check that behind what Go's handler of signals has put on a stack a function is the one that was interrupted, even at its first instruction: no call came before that.
#[test]
fn what_was_interrupted_did_not_call() {
    let program = go(versions()[1], &["-ldflags=-s -w"]);
    let mut running = Running::start(Command::new(&program).arg("wait"));
    let (framed, process) = (running.address(), running.process());
    let go = profiler_sidecar::go::Program::open(elf(&program).into()).unwrap().unwrap();
    let at = |function| go.find(function).unwrap();
    let mut namer = Namer::default();
    for injected in ["runtime.asyncPreempt", "runtime.debugCallV2", "runtime.sigpanic"] {
        let user = vec![framed + 8, at(injected) + 9, framed, at("runtime.main") + 8, at("runtime.goexit") + 1];
        let sample = Sample { user, end: End::Root, ..Sample::default() };
        let stack = namer.name(process, &sample, Instant::now());
        assert_eq!(names(&stack.frames), ["main.framed", injected, "main.framed", "runtime.main"]);
    }
    // Nor did what a register for return addresses had, where that is the first instruction of a function.
    for handler in ["runtime.sigtramp", "runtime.cgoSigtramp"].map(|name| go.find(name)).into_iter().flatten() {
        let user = vec![handler + 9, framed, at("runtime.main") + 8, at("runtime.goexit") + 1];
        let stack = namer.name(process, &Sample { user, end: End::Root, ..Sample::default() }, Instant::now());
        assert_eq!(names(&stack.frames)[1..], ["[signal handler]", "main.framed", "runtime.main"]);
    }
}

/// Check that where Go asks the kernel's library for the time, the walk goes on as it went, and what the goroutine that is about to run once left its stack for is not
/// taken for who asked; in C it is.
#[test]
fn the_kernels_library_is_called_where_it_is_called() {
    let program = go(versions()[1], &["-ldflags=-s -w"]);
    let mut running = Running::start(Command::new(&program).arg("wait"));
    let (framed, process) = (running.address(), running.process());
    let mappings = process.mappings().unwrap();
    let library = mappings.list().iter().find(|mapping| mapping.name.as_os_str() == "[vdso]").unwrap().start;
    let go = profiler_sidecar::go::Program::open(elf(&program).into()).unwrap().unwrap();
    let main = go.find("runtime.main").unwrap() + 8;
    let goexit = go.find("runtime.goexit").unwrap() + 1;
    let sample = |leaf| Sample {
        user: vec![leaf, framed + 8, framed + 9, goexit],
        saved: vec![main, main, main, goexit],
        ..Sample::default()
    };
    let mut namer = Namer::default();
    for (leaf, expected) in [
        (library, &["main.framed", "main.framed"][..]),
        (0x1234, &["[frames left out]", "runtime.main", "runtime.main"]),
    ] {
        let stack = namer.name(process, &sample(leaf + 16), Instant::now());
        assert_eq!(names(&stack.frames)[1..], *expected);
    }
}

/// Check that whatever a sample of a real process holds, there is an answer, as long as what went in, within the bounds of memory.
#[test]
fn anything_has_an_answer() {
    use proptest::prelude::*;
    let program = go(versions()[1], &["-ldflags=-s -w"]);
    let mut running = Running::start(Command::new(&program).arg("wait"));
    let (framed, process) = (running.address(), running.process());
    let namer = std::cell::RefCell::new(Namer::default());
    let address = || prop_oneof![any::<u64>(), 0x40_0000..0x60_0000_u64, Just(framed), Just(0)];
    let registers = (address(), any::<u64>(), any::<u64>(), any::<u64>());
    let sample = (
        proptest::collection::vec(address(), 0..40),
        registers,
        proptest::collection::vec(any::<u8>(), 0..=128),
        address(),
    );
    let mut runner = proptest::test_runner::TestRunner::default();
    let outcome = runner.run(&sample, |(mut user, (ip, sp, fp, lr), top, start_pc)| {
        if let Some(first) = user.first_mut() {
            *first = ip;
        }
        let goroutine = Some(Goroutine { id: 1, start_pc });
        let registers = Registers { ip, sp, fp, lr };
        let count = user.len();
        let sample =
            Sample { kernel: user.clone(), user, registers, top, goroutine, end: End::Lost, ..Sample::default() };
        let mut namer = namer.borrow_mut();
        let stack = namer.name(process, &sample, Instant::now());
        prop_assert!(stack.frames.len() <= 2 * count + 10);
        prop_assert!(stack.frames.iter().all(|location| !location.lines.is_empty() && !location.function().is_empty()));
        prop_assert!(namer.bytes() < 20 << 20);
        Ok(())
    });
    outcome.unwrap();
}
