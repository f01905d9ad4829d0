//! The one line by which a program gets jemalloc with sampling.

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[doc(hidden)]
#[macro_export]
macro_rules! jemalloc {
    ($($options:literal)?) => {};
}

/// jemalloc for this program, with profiling built in and ready: `profiler::jemalloc!();` once, in the program's `main.rs`.
///
/// ```no_run
/// profiler::jemalloc!();
///
/// fn main() -> Result<(), profiler::Error> {
///     let _profiler = profiler::start("checkout")?;
///     Ok(())
/// }
/// ```
///
/// It is the `#[global_allocator]`, and jemalloc's options `prof:true,prof_active:false,lg_prof_sample:20`: one sample for
/// every MiB allocated, from [`start`](crate::start) on, and fewer where these would be more than 500 in a second of CPU time. What stands in the environment variable `_RJEM_MALLOC_CONF` goes before
/// these. More options are added so: `profiler::jemalloc!("background_thread:true,dirty_decay_ms:1000");`.
///
/// On `tikv-jemallocator` 0.6, which a program may be on, samples have no tags and no spans: see [`HeapStats::dumps`](crate::HeapStats::dumps).
///
/// A program that declares `tikv_jemallocator::Jemalloc` itself does not use this; it sets those options its own way
/// (a static that is exported as `_rjem_malloc_conf`, or the environment).
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[macro_export]
macro_rules! jemalloc {
    () => {
        $crate::jemalloc!(@ "prof:true,prof_active:false,lg_prof_sample:20\0");
    };
    ($options:literal) => {
        $crate::jemalloc!(@ concat!("prof:true,prof_active:false,lg_prof_sample:20,", $options, "\0"));
    };
    (@ $text:expr) => {
        #[global_allocator]
        static PROFILER_JEMALLOC: $crate::__private::Jemalloc = $crate::__private::Jemalloc;

        const _: () = {
            const TEXT: &str = $text;
            // jemalloc reads one pointer to characters; where its functions have no prefix, neither has this.
            #[unsafe(export_name = "_rjem_malloc_conf")]
            #[used]
            pub static PREFIXED: $crate::__private::Options = $crate::__private::Options(TEXT.as_bytes().as_ptr());
            #[unsafe(export_name = "malloc_conf")]
            #[used]
            pub static PLAIN: $crate::__private::Options = $crate::__private::Options(TEXT.as_bytes().as_ptr());
        };
    };
}

/// A pointer to options of jemalloc, which are there for ever.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[doc(hidden)]
#[derive(Debug)]
#[repr(transparent)]
pub struct Options(pub *const u8);

// SAFETY: points to a constant, which nobody writes.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe impl Sync for Options {}
