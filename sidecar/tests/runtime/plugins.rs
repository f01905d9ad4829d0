//! What a program has loaded while it ran (`tests/go/plugged`, `tests/go/plugin`), beside what its own `runtime/pprof` wrote.

use profiler_sidecar::capture::heap::State;
use profiler_sidecar::capture::{Bounds, Source};

use crate::capture::{WINDOW, built, same, table, theirs};
use crate::programs;
use crate::running::Running;

/// Check that records and goroutines of a plugin that is loaded after the program was looked at are there with their names, and nothing else is lost for it; of the oldest
/// and the newest version.
#[test]
fn what_plugins_do_is_named() {
    for version in [programs::VERSIONS[0], programs::VERSIONS[6]] {
        let program = programs::build("plugged", version, &["-ldflags=-linkmode=external"], "amd64");
        let plugin = programs::build("plugin", version, &["-buildmode=plugin"], "amd64");
        let mut running = Running::start(&program, &[plugin.to_str().unwrap()]);
        let source = Source::find(running.pid()).unwrap();
        let before = source.heap(Bounds::default()).unwrap();
        assert!(before.walk.is_whole() && before.state == State::Collected, "{version}: {:?}", before.walk);
        running.ask("load", "loaded");
        let folder = program.with_extension(format!("{}.plugged", running.pid()));
        std::fs::create_dir_all(&folder).unwrap();
        running.ask(&format!("write {}", folder.display()), "written");

        let mut heap = source.heap(Bounds::default()).unwrap();
        assert!(heap.walk.is_whole() && heap.walk.taken > before.walk.taken, "{version}: {:?}", heap.walk);
        let told = theirs(&folder, "heap");
        let in_plugin = table(&told, |stack| stack.iter().any(|frame| is_of_plugin(frame, ".Fill ")));
        let through = table(&told, |stack| {
            stack[0].starts_with("main.keep ") && stack.iter().any(|frame| is_of_plugin(frame, ".Through "))
        });
        assert!(!in_plugin.is_empty() && !through.is_empty(), "{version}: {told:#?}");
        let ours = built(&source, |builder| builder.heap(&mut heap, WINDOW));
        same(version, "heap", &table(&ours, |_| true), &table(&told, |_| true));

        let goroutines = source.goroutines(Bounds::default()).unwrap();
        assert_eq!((goroutines.changed, goroutines.broken), (0, 0), "{version}");
        let ours = built(&source, |builder| _ = builder.goroutines(&goroutines, WINDOW));
        let parked = |stack: &[String]| stack.iter().any(|frame| is_of_plugin(frame, ".Park "));
        same(version, "goroutine", &table(&ours, parked), &table(&theirs(&folder, "goroutine"), parked));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

/// What the linker calls the plugin's package is its own matter.
fn is_of_plugin(frame: &str, function: &str) -> bool {
    frame.contains(function) && frame.contains("tests/go/plugin/main.go:")
}
