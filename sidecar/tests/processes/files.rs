//! Programs and mapped files: deleted, replaced, renamed, and things that are no files.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use profiler_sidecar::target::{Fault, Mapping, Process};

use crate::subject::{Subject, copy_of, folder, go_program};

fn bytes(mut file: fs::File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

/// The mapping of a process's program that has code.
fn code(process: Process, name: &str) -> Mapping {
    let mappings = process.mappings().unwrap();
    let is_it = |mapping: &&Mapping| mapping.executable && mapping.path().0.to_string_lossy().ends_with(name);
    mappings.list().iter().find(is_it).unwrap_or_else(|| panic!("no code of {name} in {mappings:?}")).clone()
}

/// Check that a program is read by its mapping and as `exe`, when it was deleted, and when another stands in its place.
#[test]
fn a_deleted_program_is_still_read() {
    let expected = fs::read(go_program()).unwrap();
    let copy = copy_of(go_program(), "deleted", "gone");
    let subject = Subject::start(&mut Command::new(&copy));
    let process = Process::find(subject.pid()).unwrap();
    assert_eq!(bytes(process.open_mapped(&code(process, "/gone")).unwrap()), expected);
    fs::remove_file(&copy).unwrap();
    fs::write(&copy, "another file").unwrap();
    let mapping = code(process, "/gone");
    assert!(mapping.path().1, "{mapping:?}");
    assert_eq!(bytes(process.open_mapped(&mapping).unwrap()), expected);
    assert_eq!(bytes(process.open_exe().unwrap()), expected);
    let (path, is_deleted) = process.files().unwrap().exe_path().unwrap();
    assert_eq!((path.as_path(), is_deleted), (copy.as_path(), true));
}

/// Check that names with line feeds, backslashes and the kernel's own mark lead to their files.
#[test]
fn strange_names_lead_to_their_files() {
    for name in ["line\nfeed", "back\\012slash", "gone (deleted)", "[vdso]", "a b"] {
        let copy = copy_of("/bin/cat", "strange", name);
        let subject =
            Subject::start(Command::new("sh").args(["-c", "echo ready; exec \"$0\"", copy.to_str().unwrap()]));
        let process = Process::find(subject.pid()).unwrap();
        let expected = fs::read("/bin/cat").unwrap();
        let file = crate::subject::until("exec", || {
            let mappings = process.mappings().ok()?;
            let ours = mappings.list().iter().find(|mapping| mapping.name.to_string_lossy().contains("/strange/"))?;
            Some(process.open_mapped(ours).unwrap())
        });
        assert_eq!(bytes(file), expected, "{name:?}");
    }
}

/// Check that what stands at a mapping's path and is another file is not taken for it, a pipe is not waited for, and a link does not lead
/// out.
#[test]
fn only_the_very_file_is_opened() {
    let copy = copy_of(go_program(), "replaced", "program");
    let subject = Subject::start(&mut Command::new(&copy));
    let process = Process::find(subject.pid()).unwrap();
    // Not the link of the kernel's: that one always is right. Nor the program, which `exe` would lead to.
    let elsewhere = |path: &Path| Mapping {
        name: path.into(),
        start: 0x1000,
        end: 0x2000,
        first_end: 0x2000,
        inode: 1,
        ..code(process, "/program")
    };
    let place = folder("replaced");
    let (pipe, link, other) = (place.join("pipe"), place.join("link"), place.join("other"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    symlink("/proc/self/exe", &link).unwrap();
    fs::write(&other, "other").unwrap();
    let refused = |path: &Path| process.open_mapped(&elsewhere(path)).unwrap_err();
    assert!(matches!(refused(&pipe), Fault::NotRegular { .. }), "{:?}", refused(&pipe));
    assert!(matches!(refused(Path::new("/dev/null")), Fault::NotRegular { .. }));
    assert!(matches!(refused(&place), Fault::NotRegular { .. }));
    assert!(matches!(refused(&other), Fault::Replaced { .. }), "{:?}", refused(&other));
    let fault = refused(&link);
    assert!(matches!(fault, Fault::Replaced { .. } | Fault::Io { .. }), "{fault:?}");
}

/// Check that a process that ended is said to be gone, whatever is asked, and that a later one of its number is not taken for it.
#[test]
fn a_process_that_ended_is_gone() {
    let subject = Subject::go(&[]);
    let process = Process::find(subject.pid()).unwrap();
    assert!(process.is_alive());
    let later = Process::new(process.pid(), process.start_time() + 1);
    assert!(!later.is_alive() && later.mappings().unwrap_err().is_gone());
    let (folder, mapping) = (process.folder().unwrap(), code(process, "/subject"));
    subject.end();
    assert!(!process.is_alive());
    assert!(folder.read("maps", 100).unwrap_err().is_gone());
    assert!(folder.link("exe").unwrap_err().is_gone());
    assert!(process.open_exe().unwrap_err().is_gone());
    assert!(process.open_mapped(&mapping).unwrap_err().is_gone());
    assert!(process.memory().read(0x1000, &mut [0]).unwrap_err().is_gone());
}

/// Check that overlay mounts and mount namespaces of a process's own do not hide its files, whichever numbers they give them, and that another
/// file which was put in place of one is not taken for it. Needs root.
#[test]
fn files_are_read_in_the_mounts_of_the_process() {
    let allowed = Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        return println!("left out: mounts are not permitted here");
    }
    // With layers on one file system and on two, the program in the lower one.
    for (number, options) in ["", ",xino=on", ",xino=off"].iter().enumerate() {
        for upper in [".", "other"] {
            let place = folder(&format!("mounts-{number}-{}", upper.len()));
            let script = format!(
                "set -e
                mount --make-rprivate /
                mount -t tmpfs none \"$0\"
                cd \"$0\"; mkdir lower other; mount -t tmpfs none other
                mkdir {upper}/upper {upper}/work merged; cp \"$1\" lower/program
                mount -t overlay none -o lowerdir=lower,upperdir={upper}/upper,workdir={upper}/work{options} merged
                exec \"$0/merged/program\""
            );
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &script]).arg(&place).arg(go_program());
            assert_is_read(&Subject::start(&mut command), &place);
        }
    }
}

fn assert_is_read(subject: &Subject, place: &Path) {
    let process = Process::find(subject.pid()).unwrap();
    assert!(!place.join("merged").exists(), "the mount is seen here as well");
    let expected = fs::read(go_program()).unwrap();
    let mapping = code(process, "/merged/program");
    assert_eq!(bytes(process.open_exe().unwrap()), expected);
    assert_eq!(bytes(process.open_mapped(&mapping).unwrap()), expected);
    let files = process.files().unwrap();
    let is_program = |mapping: &Mapping| files.of_program(std::iter::once(mapping)).unwrap().len() == 1;
    assert!(is_program(&mapping));
    // As without CAP_CHECKPOINT_RESTORE, where `map_files` is closed: by the path in its root.
    let by_path = Mapping { first_end: mapping.first_end + 1, ..mapping };
    assert_eq!(bytes(process.open_mapped(&by_path).unwrap()), expected);
    // As on kernels that tell the numbers of the layer below.
    let shifted = Mapping { inode: by_path.inode ^ (7 << 40), device: Default::default(), ..by_path.clone() };
    assert_eq!(bytes(process.open_mapped(&shifted).unwrap()), expected);
    assert!(is_program(&shifted) && !is_program(&Mapping { name: Path::new("/lib/other").into(), ..shifted.clone() }));
    // The mark of a deleted file: what stands at its path now is another one.
    let name = format!("{} (deleted)", by_path.name.display());
    let replaced = Mapping { name: Path::new(&name).into(), ..shifted };
    assert!(matches!(process.open_mapped(&replaced), Err(Fault::Replaced { .. })));
}
