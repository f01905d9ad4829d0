//! Where variables are found by their use in code, beside where the debug information of the same program says that they are.

use std::collections::HashMap;
use std::process::Command;

use profiler_sidecar::capture::{Source, Variables};

use crate::programs;
use crate::running::Running;

/// Check each variable of each version.
#[test]
fn variables_are_where_dwarf_says() {
    let tool = programs::build("layouts", "local", &[], "amd64");
    for version in programs::VERSIONS {
        let program = programs::build("parked", version, &[], "amd64");
        let told = Command::new(&tool).arg(&program).output().unwrap();
        let text = String::from_utf8(told.stdout).unwrap();
        let facts: HashMap<&str, u64> = text.lines().filter_map(variable).collect();
        let at = |name: &str| Some(facts[name]);
        let running = Running::start(&program, &[]);
        let found = *Source::find(running.pid()).unwrap().variables();
        let expected = Variables {
            buckets: at("runtime.mbuckets"),
            memory_rate: at("runtime.MemProfileRate"),
            block_rate: at("runtime.blockprofilerate"),
            ticks: at("runtime.ticks"),
            goroutines: at("runtime.allgs"),
            pacer: at("runtime.gcController"),
            // A field of it, whose place in each version the same debug information says.
            collections: Some(facts["runtime.memstats"] + field(&text, "runtime.mstats.last_gc_unix")),
            processors: at("runtime.gomaxprocs"),
        };
        assert_eq!(found, expected, "{version}");
        let behind = |name: &str, by: u64| facts[name] + by;
        assert_eq!(behind("runtime.mbuckets", 8), facts["runtime.bbuckets"], "{version}");
        assert_eq!(behind("runtime.mbuckets", 16), facts["runtime.xbuckets"], "{version}");
        assert_eq!(behind("runtime.blockprofilerate", 8), facts["runtime.mutexprofilerate"], "{version}");
    }
}

/// "var runtime.allgs 0x5f2350 24 struct []*runtime.g".
fn variable(line: &str) -> Option<(&str, u64)> {
    let mut words = line.strip_prefix("var ")?.split(' ');
    Some((words.next()?, u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?))
}

/// "field runtime.mstats.last_gc_unix 3592 8".
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("field ")?.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
