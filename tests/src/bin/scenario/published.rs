//! A process that publishes who it is, and changes that at a word.
//!
//! In: words on standard input, one after the other. Out: a line for each, once it is done. After the word `fork` it is the
//! child that goes on, while its parent waits for it.

use profiler::{Config, Profiler, Tags};
use profiler_tests::subject::Options;
use profiler_tests::{Result, stats};
use serde_json::{Value, json};

use crate::{say, wait_for_word};

/// Obeys until standard input ends.
pub(crate) fn published(options: &Options) -> Result<Value> {
    if options.value_or("other", false)? {
        publish_as_another_library()?;
    }
    let mut profiler = Some(start("parent", options.value_or("note", 0)?)?);
    loop {
        let running = profiler.as_ref().map(|profiler| stats::to_json(&profiler.stats()));
        say(&json!({ "pid": std::process::id(), "stats": running }));
        match wait_for_word()?.as_str() {
            "" => return Ok(json!({ "ended": true })),
            "pause" => profiler.iter().for_each(Profiler::pause),
            "resume" => profiler.iter().try_for_each(Profiler::resume)?,
            "stop" => drop(profiler.take()),
            "start" => profiler = Some(start("child", 0)?),
            // SAFETY: fork(2): the child does what any program may do in a child of which no other thread is left, the parent
            //         waits for it.
            "fork" => match unsafe { libc::fork() } {
                0 => {}
                child => return wait_for(child),
            },
            key => drop(Tags::new([(key, &1 as &dyn std::fmt::Display)])),
        }
    }
}

/// With sixteen notes as long as `note` says, or without.
fn start(service: &str, note: usize) -> Result<Profiler> {
    let notes = (0..16).filter(|_| note > 0).map(|number| format!("note.{number}"));
    let config = Config::new(service).tag("region", "eu-1");
    Ok(profiler::start(notes.fold(config, |config, key| config.tag(key, "x".repeat(note))))?)
}

/// A process context of somebody else.
fn publish_as_another_library() -> Result<()> {
    // SAFETY: memfd_create(2), ftruncate(2) and mmap(2) of a page of its own, which begins with eight letters, for ever.
    unsafe {
        let file = libc::memfd_create(c"OTEL_CTX".as_ptr(), libc::MFD_CLOEXEC);
        libc::ftruncate(file, 4096);
        let flags = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let page = libc::mmap(std::ptr::null_mut(), 4096, flags.0, flags.1, file, 0);
        if page == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        page.cast::<[u8; 12]>().write(*b"OTEL_CTX\x02\0\0\0");
        page.cast::<u64>().add(2).write(77);
        page.cast::<u64>().add(3).write(page as u64);
    }
    Ok(())
}

fn wait_for(child: libc::pid_t) -> Result<Value> {
    let mut status = 0;
    // SAFETY: waitpid(2) writes the status of our own child.
    if unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(json!({ "child": status }))
}
