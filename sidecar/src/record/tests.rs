//! Names of files, files, tables.

use std::path::Path;

use profiler_proto::{Limits, folded, pprof};

use super::*;

/// Check that the name of a file says its form, and that a name that does not is refused with what to do.
#[test]
fn the_name_says_the_form() {
    let form = |name: &str| Form::of(Path::new(name));
    assert_eq!(form("/tmp/out.pb.gz").unwrap(), Form::Pprof);
    assert_eq!(form("out.pb").unwrap(), Form::PprofPlain);
    assert_eq!(form("out.folded").unwrap(), Form::Folded);
    assert_eq!(form("out.svg").unwrap(), Form::Svg);
    for name in ["out", ".pb.gz", "out.json", "/", ""] {
        assert!(form(name).unwrap_err().to_string().contains("end it in .pb.gz"), "{name}");
    }
}

/// Check the table: own time, time with callees, a function that calls itself counted once, hottest first.
#[test]
fn the_table_has_own_time_and_time_with_callees() {
    let set = folded::decode(b"main;work;work;hash 6\nmain;work 3\nmain;idle 1\n", &Limits::default()).unwrap();
    let mut set = set;
    let kind = profiler_proto::model::Kind::cpu(&mut set.dictionary, 500_000_000);
    set.profiles[0].kind = kind;
    let expected = "     self   self%    total  total%  function
    3.00s   60.0%    3.00s   60.0%  hash
    1.50s   30.0%    4.50s   90.0%  work
    0.50s   10.0%    0.50s   10.0%  idle
";
    assert_eq!(top::table(&set, 3), expected);
}

/// Check that a file is written whole, and that one that cannot be is named and leaves nothing behind.
#[test]
fn a_file_is_whole_or_not_there() {
    let folder = std::env::temp_dir().join(format!("profiler-sidecar-record-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let set = folded::decode(b"main;work 6\n", &Limits::default()).unwrap();
    let path = folder.join("a.pb.gz");
    let size = output::write(&set, &path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len() as u64, size);
    let read = pprof::decode(&bytes, &Limits::default()).unwrap();
    assert_eq!(folded::encode(&read.profiles[0], &read.dictionary, folded::Tags::Left), "main;work 6\n");
    let error = output::write(&set, &folder.join("no/such.folded")).unwrap_err().to_string();
    assert!(error.contains("no/such.folded") && error.contains("-o"), "{error}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Check that sets of several processes become one, told apart by pid, and one process's stays as it is.
#[test]
fn several_processes_are_told_apart() {
    let set = |pid: i64| {
        let mut set = folded::decode(b"main;work 6\n", &Limits::default()).unwrap();
        set.resource.set("process.pid", pid);
        set
    };
    assert_eq!(output::joined(vec![set(7)]), set(7));
    let both = output::joined(vec![set(7), set(8)]);
    let folded = folded::encode(&both.profiles[0], &both.dictionary, folded::Tags::Kept);
    assert!(folded.contains("pid=7") && folded.contains("pid=8"), "{folded}");
}
