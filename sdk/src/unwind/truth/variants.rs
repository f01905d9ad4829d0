//! One program compiled in many ways, whose stacks must be those of the `backtrace` crate.
//!
//! In: Rust source, flags of the compiler. Out: at one point, with nothing interrupted, the addresses of our walk and those of
//! `backtrace`, which must be the same; and every instruction on the way there and back in single steps. Each variant is a
//! library that calls back into this program.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use super::folder::Folder;
use super::stepper::Run;
use crate::unwind::arch::Registers;
use crate::unwind::frames::{Frames, StackEnd};
use crate::unwind::memory::{StackMemory, Window};
use crate::unwind::modules::Modules;
use crate::unwind::rules::Cache;
use crate::unwind::walk::Snapshot;

/// Deep, inlined, generic, closures, futures, trait objects, `extern "C"`, a frame larger than a page.
const PROGRAM: &str = r#"
use std::future::Future;
use std::hint::black_box;
use std::task::{Context, Waker};

type Back = extern "C" fn();

#[unsafe(no_mangle)]
pub extern "C" fn variant(back: Back) -> u64 {
    black_box(deep(black_box(12), back)) + generic::<u8>(back) + generic::<[u64; 9]>(back)
}

#[inline(never)]
fn deep(depth: u64, back: Back) -> u64 {
    if depth == 0 { in_closure(back) } else { deep(depth - 1, back) + inlined(depth, back) }
}

#[inline(always)]
fn inlined(number: u64, back: Back) -> u64 {
    #[inline(always)]
    fn inner(number: u64, back: Back) -> u64 {
        if number == 3 { in_c(back) } else { black_box(number) }
    }
    inner(number, back) + 1
}

#[inline(never)]
extern "C" fn in_c(back: Back) -> u64 {
    let page = black_box([7_u8; 5000]);
    back();
    u64::from(page[black_box(4999)])
}

#[inline(never)]
fn in_closure(back: Back) -> u64 {
    let call = |n: u64| { back(); n + 1 };
    let object: Box<dyn Fn(u64) -> u64> = Box::new(call);
    [1_u64, 2].iter().map(|n| black_box(&object)(*n)).sum::<u64>() + in_future(back)
}

#[inline(never)]
fn in_future(back: Back) -> u64 {
    async fn outer(back: Back) -> u64 { inner(back).await + 1 }
    async fn inner(back: Back) -> u64 { back(); 1 }
    let mut future = Box::pin(outer(back));
    let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    u64::from(polled.is_ready())
}

#[inline(never)]
fn generic<T: Default2>(back: Back) -> u64 {
    let value = black_box(T::make());
    back();
    drop(value);
    1
}

trait Default2 { fn make() -> Self; }
impl Default2 for u8 { fn make() -> Self { 1 } }
impl Default2 for [u64; 9] { fn make() -> Self { [3; 9] } }
"#;

/// What the calls back found: our walk and that of `backtrace`, from the caller of [`both`].
type Found = Vec<(StackEnd, Vec<u64>, Vec<u64>)>;

static FOUND: Mutex<Found> = Mutex::new(Vec::new());

/// Called by a variant.
extern "C" fn compare() {
    let found = both();
    FOUND.lock().unwrap().push(found);
}

/// Our walk and that of `backtrace`, from the caller on.
#[inline(never)]
pub(super) fn both() -> (StackEnd, Vec<u64>, Vec<u64>) {
    let snapshot = Snapshot::take(&Modules::default());
    let (mut cache, mut frames, mut window) = (Cache::new(), Frames::new(), Window::new());
    // SAFETY: the direct range is empty.
    let mut memory = unsafe { StackMemory::new(0..0, &mut window, std::process::id()) };
    // SAFETY: getcontext(3) fills the structure with the registers of this function, as they are when it returns.
    let registers = unsafe {
        let mut context = std::mem::zeroed();
        assert_eq!(libc::getcontext(&raw mut context), 0);
        Registers::of_signal_frame(&context)
    };
    let end = snapshot.walk(&registers, &mut cache, &mut memory, &mut frames);
    let ours = frames.parts().concat();
    let mut theirs = Vec::new();
    backtrace::trace(|frame| {
        theirs.push(frame.ip() as u64 - u64::from(!frame.ip().is_null()));
        true
    });
    // Behind the root.
    theirs.retain(|address| *address != 0);
    // Theirs begins inside `backtrace`; both are the same from this function's caller on.
    let first = theirs.len() + 1 - ours.len();
    (end, ours[1..].to_vec(), theirs.split_off(first))
}

fn compile(folder: &Folder, name: &str, flags: &[&str]) -> std::path::PathBuf {
    let (source, library) = (folder.file(&format!("{name}.rs")), folder.file(&format!("lib{name}.so")));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=variant", "-o"]).arg(&library).arg(&source);
    let output = command.args(flags).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    library
}

/// The entry of a variant that stays loaded.
fn entry(library: &Path) -> extern "C" fn(extern "C" fn()) -> u64 {
    let path = CString::new(library.as_os_str().as_bytes()).unwrap();
    // SAFETY: dlopen(3) and dlsym(3); the function has this signature, see the source above.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null(), "{:?}", std::ffi::CStr::from_ptr(libc::dlerror()));
        let function = libc::dlsym(handle, c"variant".as_ptr());
        assert!(!function.is_null());
        std::mem::transmute(function)
    }
}

/// Compares at every call back, then steps through all of it.
pub(super) fn check(library: &Path) {
    extern "C" fn nothing() {}
    let variant = entry(library);
    let found = {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock().unwrap();
        variant(compare);
        std::mem::take(&mut *FOUND.lock().unwrap())
    };
    assert_eq!(found.len(), 6);
    for (end, ours, theirs) in found {
        assert_eq!((end, &ours), (StackEnd::Root, &theirs), "{}", library.display());
        assert!(ours.len() > 10);
    }
    let steps = Run::new().check(|| assert!(variant(nothing) > 0));
    assert!(steps > 300, "{steps}");
}

fn check_flags(name: &str, flags: &[&str]) {
    let folder = Folder::new(name);
    check(&compile(&folder, name, flags));
}

/// Check that unoptimized code has the stacks of `backtrace`.
#[test]
fn unoptimized_code_is_known() {
    check_flags("variant_o0", &["-Copt-level=0", "-Cdebuginfo=2"]);
}

/// Check that code optimized for speed and for size has the stacks of `backtrace`.
#[test]
fn optimized_code_is_known() {
    check_flags("variant_o3", &["-Copt-level=3", "-Ctarget-cpu=native"]);
    check_flags("variant_oz", &["-Copt-level=z"]);
}

/// Check that code that aborts on panic, and so needs no unwind tables itself, has the stacks of `backtrace`.
#[test]
fn aborting_code_is_known() {
    check_flags("variant_abort", &["-Copt-level=3", "-Cpanic=abort"]);
}

/// Check that code optimized when linking has the stacks of `backtrace`.
#[test]
fn code_optimized_when_linking_is_known() {
    check_flags("variant_lto", &["-Copt-level=3", "-Clto=fat", "-Ccodegen-units=1"]);
}

/// Check that code with frame pointers has the stacks of `backtrace`.
#[test]
fn code_with_frame_pointers_is_known() {
    check_flags("variant_fp", &["-Copt-level=3", "-Cforce-frame-pointers=yes"]);
}

/// Check that stripped code, its debug information in another file, has the stacks of `backtrace`.
#[test]
fn stripped_code_with_a_debug_link_is_known() {
    let folder = Folder::new("variant_stripped");
    let library = compile(&folder, "variant_stripped", &["-Copt-level=3", "-Cdebuginfo=2"]);
    let debug = folder.file("variant.debug");
    for arguments in [
        vec!["--only-keep-debug".into(), library.clone().into_os_string(), debug.clone().into_os_string()],
        vec!["--strip-all".into(), library.clone().into_os_string()],
        vec![format!("--add-gnu-debuglink={}", debug.display()).into(), library.clone().into_os_string()],
    ] {
        assert!(Command::new("objcopy").args(&arguments).status().unwrap().success(), "objcopy {arguments:?}");
    }
    check(&library);
}
