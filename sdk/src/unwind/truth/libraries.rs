//! Libraries in single steps, as the machine's C compiler and two linkers make them.
//!
//! In: one small program in C, flags. Out: libraries that call each other through PLT stubs of every kind, bound lazily and at
//! once, with and without unwind tables. What the compiler is told to leave out of a library stays out.

use std::ffi::CString;
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::folder::Folder;
use super::stepper::Run;

/// The library that is called.
const CALLEE: &str = "
unsigned long callee(unsigned long n) { return n * 3 + 1; }
unsigned long callee_twice(unsigned long (*f)(unsigned long), unsigned long n) { return f(n) + f(n + 1); }
";

/// The library that calls.
const CALLER: &str = r"
#include <alloca.h>
unsigned long callee(unsigned long);
unsigned long callee_twice(unsigned long (*)(unsigned long), unsigned long);

static __attribute__((noinline)) unsigned long leaf(unsigned long n) { return n ^ (n >> 3); }
static __attribute__((noinline)) unsigned long early(unsigned long n) {
    if (n & 1) return n;
    volatile unsigned long many[20];
    for (int i = 0; i < 20; i++) many[i] = callee(n + i);
    return many[n % 20];
}
static __attribute__((noinline)) unsigned long aligned(unsigned long n) {
    volatile _Alignas(64) unsigned long lines[8];
    lines[n % 8] = callee(n);
    return lines[n % 8] + leaf(n);
}
static __attribute__((noinline)) unsigned long variable(unsigned long n) {
    volatile unsigned char *bytes = alloca(n % 100 + 1);
    bytes[0] = (unsigned char)callee(n);
    return bytes[0];
}
static __attribute__((noinline)) unsigned long deep(unsigned long n) { return n ? deep(n - 1) + leaf(n) : callee(n); }
static unsigned long back(unsigned long n) { return early(n) + deep(n % 4); }
static __attribute__((noinline)) unsigned long tail(unsigned long n) { return callee(leaf(n)); }

unsigned long truth_library(unsigned long n) {
    return early(n) + aligned(n) + variable(n) + tail(n) + callee_twice(back, n);
}
";

/// Compiles a library.
pub(in crate::unwind) fn compile(folder: &Folder, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let (code, library) = (folder.file(&format!("{name}.c")), folder.file(&format!("lib{name}.so")));
    std::fs::write(&code, source).unwrap();
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-fno-stack-protector", "-o"]).arg(&library).arg(&code).args(flags);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    library
}

/// A function of a library that stays loaded.
fn function(library: &Path, name: &str, flags: i32) -> extern "C" fn(u64) -> u64 {
    let (path, name) = (CString::new(library.as_os_str().as_bytes()).unwrap(), CString::new(name).unwrap());
    // SAFETY: dlopen(3) and dlsym(3); the function has this signature, see the sources above.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), flags);
        assert!(!handle.is_null(), "{}: {:?}", library.display(), std::ffi::CStr::from_ptr(libc::dlerror()));
        let function = libc::dlsym(handle, name.as_ptr());
        assert!(!function.is_null());
        std::mem::transmute(function)
    }
}

/// Steps through the calling library, compiled with these flags; how many instructions there were.
fn check(name: &str, flags: &[&str]) -> u64 {
    let folder = Folder::new(name);
    let callee = format!("{name}_callee");
    compile(&folder, &callee, CALLEE, &["-O2"]);
    let path = folder.file("");
    let (here, run_path) = (format!("-L{}", path.display()), format!("-Wl,-rpath,{}", path.display()));
    let with = format!("-l{callee}");
    let library = compile(&folder, name, CALLER, &[flags, &[&here, &run_path, &with]].concat());
    let work = function(&library, "truth_library", libc::RTLD_LAZY);
    Run::new().check(|| {
        for number in 0..6 {
            black_box(work(number));
        }
    })
}

/// Check that stubs of GNU ld are known, bound at the first call by the dynamic linker's resolver, unoptimized and optimized.
#[test]
fn lazily_bound_calls_are_known() {
    assert!(check("lazy_O0", &["-O0", "-Wl,-z,lazy"]) > 1000);
    assert!(check("lazy_O2", &["-O2", "-Wl,-z,lazy"]) > 1000);
}

/// Check that stubs are known where all is bound at once.
#[test]
fn calls_bound_at_once_are_known() {
    assert!(check("now", &["-O2", "-Wl,-z,now"]) > 1000);
}

/// Check that stubs for indirect branch tracking are known.
#[test]
fn stubs_with_landing_pads_are_known() {
    assert!(check("ibt", &["-O2", "-fcf-protection=full", "-Wl,-z,lazy", "-Wl,-z,ibtplt"]) > 1000);
}

/// Check that stubs of lld, which come without unwind tables, are known, lazily bound and bound at once.
#[test]
fn stubs_without_tables_are_known() {
    let sysroot =
        Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).args(["--print", "sysroot"]).output();
    let sysroot = String::from_utf8(sysroot.unwrap().stdout).unwrap();
    let linker = format!("-B{}/lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld", sysroot.trim());
    assert!(check("lld_lazy", &["-O2", &linker, "-fuse-ld=lld", "-Wl,-z,lazy"]) > 1000);
    assert!(check("lld_now", &["-O2", &linker, "-fuse-ld=lld", "-Wl,-z,now"]) > 1000);
}

/// Check that a library without unwind tables, but with frame pointers, is known, prologues and epilogues included.
#[test]
fn libraries_without_tables_are_known_by_frame_pointer() {
    let without = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-omit-frame-pointer", "-Wl,-z,now"];
    for level in ["-O0", "-O1", "-O2"] {
        assert!(check(&format!("bare{level}"), &[&without[..], &[level]].concat()) > 1000);
    }
}
