//! What allocator this program has, and whether it can be asked for samples.
//!
//! In: nothing. Out: what is in force, or what is missing with the line that would add it. Looks and changes nothing.

use std::alloc::{self, Layout};
use std::hint::black_box;

use super::jemalloc::{self, BACKTRACE_HOOK, FREE_HOOK, SAMPLE_HOOK};
use super::jemalloc::{BacktraceHook, FreeHook, SampleHook};

/// The environment variable that jemalloc reads in Rust programs, and the one it reads where its functions are called as C's.
const VARIABLES: &str = "_RJEM_MALLOC_CONF (MALLOC_CONF where jemalloc takes the place of C's malloc)";

/// jemalloc with profiling, as it was found.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    /// Whether it tells of each sample; if not, it still dumps what it counts.
    pub(super) has_hooks: bool,
    /// The user said in the environment that none are to be taken.
    pub(super) kept_inactive: bool,
    /// The user said in the environment how often they are to be taken.
    pub(super) sets_interval: bool,
    /// jemalloc writes profiles of its own, by its options, and takes stacks for them.
    pub(super) writes_profiles: bool,
    /// Where options come from, for who looks.
    pub(super) notes: Vec<String>,
}

/// Why there are no heap profiles.
#[derive(Debug, Clone)]
pub(super) struct Missing {
    pub(super) why: String,
    pub(super) remedy: &'static str,
}

const ADD_MACRO: &str = "add the line profiler::jemalloc!(); to the program's main.rs, in the place of any other #[global_allocator]";

impl Setup {
    /// Looks.
    pub(super) fn find() -> Result<Self, Missing> {
        let missing = |why: &str, remedy| Err(Missing { why: why.to_owned(), remedy });
        if !is_global() {
            return missing("the program's global allocator is not jemalloc", ADD_MACRO);
        }
        if !jemalloc::read::<bool>(c"config.prof").unwrap_or(false) {
            return missing(
                "jemalloc was built without profiling",
                "build tikv-jemalloc-sys with its feature `profiling`, as the feature `heap` asks for, and without JEMALLOC_OVERRIDE",
            );
        }
        let variable = jemalloc::text(c"opt.malloc_conf.env_var");
        if !jemalloc::read::<bool>(c"opt.prof").unwrap_or(false) {
            let by_variable = variable.as_deref().filter(|text| last_of(text, "prof") == Some("false"));
            let why = match by_variable {
                Some(text) => format!("jemalloc's profiling is off by the environment ({text:?})"),
                None => format!("jemalloc's profiling is off (its option `prof`){}", if is_unread(variable.is_some()) { "; MALLOC_CONF is set, which it does not read" } else { "" }),
            };
            let remedy = match by_variable {
                Some(_) => "take prof:false out of _RJEM_MALLOC_CONF or MALLOC_CONF",
                None => {
                    // Not `prof_active:false`, which in the environment keeps sampling off.
                    "use profiler::jemalloc!(); for the #[global_allocator], or export the option prof:true as _rjem_malloc_conf (docs/heap.md), or set \
                     _RJEM_MALLOC_CONF=prof:true,lg_prof_sample:20"
                }
            };
            return Err(Missing { why, remedy });
        }
        let has_hooks = jemalloc::read::<Option<SampleHook>>(SAMPLE_HOOK).is_ok()
            && jemalloc::read::<Option<FreeHook>>(FREE_HOOK).is_ok()
            && jemalloc::read::<Option<BacktraceHook>>(BACKTRACE_HOOK).is_ok();
        let says = |option: &str| variable.as_deref().and_then(|text| last_of(text, option));
        let (kept_inactive, sets_interval) = (says("prof_active") == Some("false"), says("lg_prof_sample").is_some());
        let writes_profiles = writes_profiles();
        let mut notes = Vec::new();
        if writes_profiles {
            let note = "jemalloc writes profiles of its own, by its options: it still takes stacks for them";
            notes.push(note.to_owned());
        }
        if is_unread(variable.is_some()) {
            notes.push(format!("MALLOC_CONF is set, which jemalloc does not read here: it reads {VARIABLES}"));
        }
        if let Some(text) = &variable {
            notes.push(format!("jemalloc's options {text:?} come from {VARIABLES} and go before the program's own"));
        }
        if !jemalloc::read::<bool>(c"prof.thread_active_init").unwrap_or(true) {
            let note = "no samples of threads that do not turn them on: prof_thread_active_init:false is among jemalloc's options";
            notes.push(note.to_owned());
        }
        Ok(Self { has_hooks, kept_inactive, sets_interval, writes_profiles, notes })
    }
}

/// What `text` says of an option: where it does so more than once, jemalloc takes the last.
fn last_of<'a>(text: &'a str, option: &str) -> Option<&'a str> {
    let of = |said: &'a str| said.split_once(':').filter(|(name, _)| *name == option).map(|(_, value)| value);
    text.split(',').filter_map(of).next_back()
}

/// Whether jemalloc's options have it write profiles at the end of the program, at its highest use of memory, or each so many bytes (jemalloc(3), `opt.prof_final`
/// and those beside it).
fn writes_profiles() -> bool {
    let is_on = |name| jemalloc::read::<bool>(name).unwrap_or(false);
    is_on(c"opt.prof_final")
        || is_on(c"opt.prof_leak")
        || is_on(c"opt.prof_gdump")
        || jemalloc::read::<usize>(c"opt.lg_prof_interval").is_ok_and(|lg| lg < 64)
}

/// Whether a variable is set that this jemalloc does not read.
fn is_unread(reads_another: bool) -> bool {
    !reads_another && std::env::var_os("MALLOC_CONF").is_some()
}

/// Whether what Rust allocates comes from this jemalloc: it counts what the calling thread allocated.
fn is_global() -> bool {
    let allocated = || jemalloc::read::<u64>(c"thread.allocated").unwrap_or(0);
    // More than a thread's cache holds.
    let Ok(layout) = Layout::from_size_align(1 << 16, 16) else { return false };
    let before = allocated();
    // SAFETY: the layout has a size; what was allocated is freed with the same layout.
    unsafe {
        let block = black_box(alloc::alloc(layout));
        if !block.is_null() {
            alloc::dealloc(block, layout);
        }
    }
    allocated().wrapping_sub(before) >= 1 << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that of an option that is there more than once the last counts, and no longer name is taken for it.
    #[test]
    fn the_last_of_an_option_counts() {
        let text = "prof:true,prof_active:false,lg_prof_sample:19,prof_active:true";
        let found = ["prof_active", "lg_prof_sample", "prof", "active", "lg_prof"].map(|option| last_of(text, option));
        assert_eq!(found, [Some("true"), Some("19"), Some("true"), None, None]);
    }
}
