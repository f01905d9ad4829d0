//! Debug information that was split off or compressed, and files that are not what they were.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::dwarf::Debug;
use super::super::elf::Elf;
use super::super::pace::Pace;
use super::super::{Folders, Symbol, Symbolizer};
use super::build::{Folder, functions, loaded, loaded_as, objcopy, symbols};
use super::{learn, run};
use crate::unwind::modules::Modules;

/// Folders of this test alone.
fn folders(folder: &Folder) -> Folders {
    let place = |name: &str| match name {
        "DEBUGINFOD_CACHE_PATH" => Some("cache"),
        "XDG_CACHE_HOME" => Some("xdg"),
        "HOME" => Some("home"),
        _ => None,
    };
    let mut folders = Folders::new(&|name| Some(folder.0.join(place(name)?).into_os_string()));
    folders.system = folder.0.join("system");
    folders
}

/// A library, the addresses of all its functions, and what the whole file says about them.
fn whole(folder: &Folder, flags: &[&str]) -> (PathBuf, Vec<u64>, Vec<Arc<Symbol>>) {
    let library = folder.c("code.so", flags);
    let ours = functions(&library)
        .into_iter()
        .filter(|(name, _, _)| ["outer", "_ZN5store4findEi", "hidden", "entry"].contains(&name.as_str()));
    let wanted: Vec<u64> = ours.flat_map(|(_, start, end)| start..end).collect();
    let symbols = symbols(loaded(&library), &folders(folder), &wanted);
    assert!(symbols.iter().all(|symbol| symbol.frames[0].line > 0), "{symbols:?}");
    assert!(symbols.iter().any(|symbol| symbol.frames.len() == 3), "{symbols:?}");
    (library, wanted, symbols)
}

/// Splits the debug information off; the file that holds it is put where `at` says.
fn split(library: &Path, at: &Path, link: bool) {
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    objcopy(&["--only-keep-debug"], &[library, at]);
    objcopy(&["--strip-all"], &[library]);
    if link {
        objcopy(&[&format!("--add-gnu-debuglink={}", at.to_str().unwrap())], &[library]);
    }
}

/// Check that debug information is found beside the library, in `.debug`, below the system's folder, by build id there
/// and by build id in each of debuginfod's caches, and that it says the same there, also where it is compressed.
#[test]
fn split_debug_information_says_the_same() {
    for (place, link) in [
        ("code.so.debug", true),
        (".debug/code.so.debug", true),
        ("system/{folder}/code.so.debug", true),
        ("system/.build-id/{first}/{rest}.debug", false),
        ("cache/{id}/debuginfo", false),
        ("xdg/debuginfod_client/{id}/debuginfo", false),
        ("home/.cache/debuginfod_client/{id}/debuginfo", false),
        ("home/.debuginfod_client_cache/{id}/debuginfo", false),
    ] {
        let folder = Folder::new();
        let (library, wanted, expected) = whole(&folder, &[]);
        let id = loaded(&library).build_id.unwrap();
        let place = place.replace("{folder}", folder.0.strip_prefix("/").unwrap().to_str().unwrap());
        let place = place.replace("{id}", &id).replace("{first}", &id[..2]).replace("{rest}", &id[2..]);
        split(&library, &folder.0.join(&place), link);
        assert_eq!(symbols(loaded(&library), &folders(&folder), &wanted), expected, "{place}");
        objcopy(&["--compress-debug-sections=zlib"], &[&folder.0.join(&place)]);
        assert_eq!(symbols(loaded(&library), &folders(&folder), &wanted), expected, "{place}, compressed");
        // Gone: of a stripped library only the names that other modules see are left.
        std::fs::remove_file(folder.0.join(&place)).unwrap();
        let left = symbols(loaded(&library), &folders(&folder), &wanted);
        assert!(left.iter().all(|symbol| symbol.frames.len() == 1 && symbol.frames[0].line == 0));
        let named = |name: &str| left.iter().filter(|symbol| &*symbol.frames[0].name == name).count();
        assert!(named("outer") > 0 && named("store::find(int)") > 0 && named("hidden") == 0, "{left:?}");
        assert!(left.iter().any(|symbol| symbol.frames[0].name.starts_with("code.so+0x")));
    }
}

/// Check that debug information of another build is not used, wherever it is, and that without build ids the checksum
/// of the link decides.
#[test]
fn debug_information_of_another_build_is_not_used() {
    for (flags, other) in
        [(["-DA", "-g"], ["-O1", "-g"]), (["-Wl,--build-id=none", "-g"], ["-Wl,--build-id=none", "-O1"])]
    {
        let folder = Folder::new();
        let (library, wanted, expected) = whole(&folder, &flags);
        split(&library, &folder.0.join("code.so.debug"), true);
        assert_eq!(symbols(loaded(&library), &folders(&folder), &wanted), expected);
        let id = loaded(&library).build_id;
        let wrong = Folder::new();
        let wrong = wrong.c("wrong.so", &other);
        std::fs::copy(&wrong, folder.0.join("code.so.debug")).unwrap();
        if let Some(id) = id {
            let place = folder.0.join("system/.build-id").join(&id[..2]).join(format!("{}.debug", &id[2..]));
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::copy(&wrong, place).unwrap();
        }
        let symbols = symbols(loaded(&library), &folders(&folder), &wanted);
        assert!(symbols.iter().all(|symbol| symbol.frames.len() == 1 && symbol.frames[0].line == 0), "{symbols:?}");
    }
}

/// Check that compressed sections say the same, in every form.
#[test]
fn compressed_sections_say_the_same() {
    for form in ["zlib", "zstd", "zlib-gnu"] {
        let folder = Folder::new();
        let (library, wanted, expected) = whole(&folder, &[]);
        let before = std::fs::metadata(&library).unwrap().len();
        objcopy(&[&format!("--compress-debug-sections={form}")], &[&library]);
        assert!(std::fs::metadata(&library).unwrap().len() < before, "{form}");
        assert_eq!(symbols(loaded(&library), &folders(&folder), &wanted), expected, "{form}");
    }
}

/// Check that unpacking has steps of its own, however many the table of symbols took.
#[test]
fn sections_are_unpacked_whatever_was_read_before() {
    let folder = Folder::new();
    let (library, ..) = whole(&folder, &[]);
    objcopy(&["--compress-debug-sections=zlib"], &[&library]);
    let mut pace = Pace::default();
    pace.allow(1);
    let opened = run(Debug::open(&Elf::open(&library).unwrap(), &mut pace));
    assert!(opened.is_ok(), "{:?}", opened.err());
}

/// Check that a library that was replaced after it was loaded names nothing, and that one that was removed is still named
/// by the debug information of its build.
#[test]
fn a_library_that_is_not_the_loaded_one_names_nothing() {
    let folder = Folder::new();
    let (library, wanted, expected) = whole(&folder, &[]);
    let module = || loaded(&library);
    let (first, id) = (module(), module().build_id.unwrap());
    folder.c("code.so", &["-O1"]);
    assert_ne!(module().build_id, first.build_id);
    let replaced = symbols(first, &folders(&folder), &wanted);
    assert!(replaced.iter().all(|symbol| symbol.frames[0].name.starts_with("code.so+0x")), "{replaced:?}");
    // The loaded build again, and its file removed while it is loaded.
    folder.c("code.so", &[]);
    let again = module();
    assert_eq!(again.build_id.as_deref(), Some(id.as_str()));
    split(&library, &folder.0.join("system/.build-id").join(&id[..2]).join(format!("{}.debug", &id[2..])), false);
    std::fs::remove_file(&library).unwrap();
    assert_eq!(symbols(again, &folders(&folder), &wanted), expected);
}

/// Check that it is said of which file there are no names, why, and once, and not of one that another file has the names of.
#[test]
fn it_is_said_why_there_are_no_names() {
    let folder = Folder::new();
    let (library, wanted, _) = whole(&folder, &[]);
    let id = loaded(&library).build_id.unwrap();
    let notes = |build: &str| {
        let modules = Modules::only(loaded_as(&library, Some(build.to_owned())));
        let mut symbolizer = Symbolizer::new(Some(folders(&folder)));
        let (first, rest) = wanted.split_at(1);
        learn(&mut symbolizer, first, &modules);
        learn(&mut symbolizer, rest, &modules);
        symbolizer.stats.notes
    };
    assert_eq!(notes(&id), [""; 0]);
    folder.c("code.so", &["-O1"]);
    let [replaced] = &notes(&id)[..] else { panic!("{:?}", notes(&id)) };
    assert!(replaced.contains("code.so: another file is there now than was loaded"), "{replaced}");
    std::fs::remove_file(&library).unwrap();
    let [removed] = &notes(&id)[..] else { panic!("{:?}", notes(&id)) };
    assert!(removed.contains("code.so: No such file"), "{removed}");
    folder.c("code.so", &[]);
    split(&library, &folder.0.join("system/.build-id").join(&id[..2]).join(format!("{}.debug", &id[2..])), false);
    std::fs::remove_file(&library).unwrap();
    assert_eq!(notes(&id), [""; 0]);
}
