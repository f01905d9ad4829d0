//! What the current thread is working for: tags and a span, in a record that the signal handler reads.
//!
//! In: scopes entered and left by the thread itself ([`tags`]), spans that become current. Out: the record for the handler on
//! that thread, at any instruction (`signal`), and for readers outside.
//!
//! Made of tags: [`keys`] are numbered, by their `hash`; [`attributes`] is how tags stand in a record; [`tags`] are sets of them, and scopes; `fixed` the sets that
//! a place in a program always has; `counts` is how many found no room or were altered. Put in force: [`future`] at each poll, [`tower`] for requests, of
//! which `recent` has the last sets and `calls` knows which names of gRPC there are. On a thread: [`scopes`] are what it entered, with a `level` each, and `shown` is
//! the span that is current; [`records`] are what others read, `in_force` is the pointer to one. Where a thread has them: `thread`, at an `address` that `tls`
//! defines; on systems without a sampler, `elsewhere`. Who says which span is current: `otel`, with the `roots` of spans, and `layer`, as [`spans`] asks for. Under
//! them: `set_once` is what is there for good, without a lock, and `nested` keeps an allocator out that comes back.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) mod address;
pub(crate) mod attributes;
#[cfg(feature = "tower")]
mod calls;
#[cfg(test)]
#[cfg(all(
    feature = "opentelemetry",
    feature = "tracing-layer",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
pub(crate) mod changes;
mod counts;
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod elsewhere;
#[cfg(feature = "macros")]
pub(crate) mod fixed;
pub(crate) mod future;
mod hash;
mod in_force;
pub(crate) mod keys;
#[cfg(feature = "tracing-layer")]
pub(crate) mod layer;
mod level;
mod nested;
#[cfg(feature = "opentelemetry")]
pub(crate) mod otel;
#[cfg(feature = "tower")]
mod recent;
mod records;
#[cfg(feature = "opentelemetry-sdk")]
pub(crate) mod roots;
mod scopes;
mod set_once;
mod shown;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod signal;
pub(crate) mod spans;
pub(crate) mod tags;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod thread;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tls;
#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
mod tls_aarch64;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tls_x86_64;
#[cfg(feature = "tower")]
pub mod tower;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use self::counts::{altered, left_out};
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
use self::elsewhere::Thread;
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
use self::records::Linked;
#[cfg(feature = "opentelemetry")]
use self::records::Span;
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
use self::shown::Source;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use self::signal::{Current, TAG_WORDS, covered, current_of_signal, mark_covered};
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use self::thread::Thread;

/// Puts tags in force on the calling thread, on top of those that are or in their place; the number by which the scope is left, `None` where
/// it could not be entered. Not callable from a signal handler, as the functions below.
fn enter(tags: &[u8], replaces: bool) -> Option<u32> {
    Thread::enter_at_once(tags, replaces).or_else(|| enter_any(tags, replaces))
}

/// The same wherever there is more to do.
#[inline(never)]
fn enter_any(tags: &[u8], replaces: bool) -> Option<u32> {
    let number = Thread::with_here(|scopes, in_force| scopes.enter(in_force, tags, replaces));
    if number.is_none() {
        counts::leave_out(attributes::pairs(tags).count() as u64);
    }
    number
}

/// Leaves a scope of the calling thread.
fn leave(scope: u32) {
    if Thread::leave_at_once(scope).is_none() {
        leave_any(scope);
    }
}

/// The same wherever there is more to do.
#[inline(never)]
fn leave_any(scope: u32) {
    Thread::with_here(|scopes, in_force| scopes.leave(in_force, scope));
}

/// Has `look` look at the tags in force on the calling thread, without those of spans.
fn tags_in_force<R>(look: impl FnOnce(&[u8]) -> R) -> R {
    let mut tags = [0; attributes::MAX_TAG_BYTES];
    let length = Thread::with_here(|scopes, _| scopes.of_scopes(&mut tags)).unwrap_or(0);
    look(&tags[..length])
}

/// Shows which span is current on the calling thread: its tags, which stand outside all scopes, and its ids and flags, where the source
/// has any to say.
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
#[inline(never)]
fn show(source: Source<'_>, tags: &[u8], span: Option<Linked>) {
    Thread::with_here(|scopes, in_force| scopes.show(in_force, source, tags, span));
}

/// Shows which span of OpenTelemetry is current on the calling thread, if one is: its ids and flags. It brings no tags.
#[cfg(feature = "opentelemetry")]
#[inline]
fn show_span(span: Linked) {
    if Thread::show_at_once(span).is_none() {
        show(Source::OpenTelemetry, &[], Some(span));
    }
}

/// Forgets what a layer for `tracing` showed on the calling thread, where it is gone.
#[cfg(feature = "tracing-layer")]
fn forget_what_is_gone() {
    Thread::with_here(scopes::Scopes::forget_what_is_gone);
}

#[cfg(all(test, feature = "opentelemetry", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::counts::left_out_here;
    use super::*;

    /// What a handler on this thread reads.
    fn read() -> (Current, Vec<u8>) {
        let mut words = [0; TAG_WORDS];
        let current = current_of_signal(&mut words);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        (current, bytes[..usize::from(current.tag_bytes)].to_vec())
    }

    /// Check that a change is seen by the handler of this thread, and on no other thread.
    #[test]
    fn a_change_belongs_to_its_thread() {
        let outer = enter(&[1, 2, 7, 8], false).unwrap();
        show(Source::OpenTelemetry, &[], Some(Linked::new(Span { trace_id: [1; 16], span_id: [2; 8] }, 1)));
        let (current, tags) = read();
        assert_eq!(
            (tags, current.trace_id, current.span_id),
            (vec![1, 2, 7, 8], [0x0101_0101_0101_0101; 2], 0x0202_0202_0202_0202)
        );
        assert_eq!(std::thread::spawn(read).join().unwrap(), (Current::default(), vec![]));
        let inner = enter(&[2, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9], false).unwrap();
        assert_eq!(read().1.len(), 15);
        leave(outer);
        assert_eq!(read().1, [2, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        show(Source::OpenTelemetry, &[], Some(Linked::NONE));
        leave(inner);
        assert_eq!(read(), (Current::default(), vec![]));
    }

    /// Check that within more scopes than a thread keeps the tags say that they are not known, and are right again behind them.
    #[test]
    fn too_many_scopes_say_so() {
        fn in_force() -> Vec<(&'static str, String)> {
            tags::texts(&read().1).collect()
        }
        fn expected(depth: i32) -> Vec<(&'static str, String)> {
            if depth < 256 {
                vec![("depth", depth.to_string())]
            } else {
                vec![("profiler.tags", "overflow".to_owned())]
            }
        }
        let before = left_out_here();
        let mut scopes = Vec::new();
        for depth in 0..300 {
            scopes.push(crate::tag!("depth" => depth, "depth" => depth));
            assert_eq!(in_force(), expected(depth));
            let inherited = tags_in_force(|bytes| tags::texts(bytes).collect::<Vec<_>>());
            assert_eq!(inherited, expected(depth));
        }
        assert_eq!(left_out_here(), before + 44);
        // Not in order: what is known below changes, and nothing is known above.
        drop(scopes.remove(255));
        show(Source::OpenTelemetry, &[1, 1, 7], Some(Linked::new(Span { trace_id: [1; 16], span_id: [2; 8] }, 1)));
        assert_eq!((in_force(), read().0.span_id), (expected(256), 0x0202_0202_0202_0202));
        drop(scopes.remove(260));
        show(Source::OpenTelemetry, &[], Some(Linked::NONE));
        while scopes.len() > 255 {
            assert_eq!(in_force(), expected(256));
            scopes.pop();
        }
        while let Some(_left) = scopes.pop() {
            assert_eq!(in_force(), expected(scopes.len() as i32));
        }
        assert_eq!(read(), (Current::default(), vec![]));
    }

    /// Check that a thread that is ending enters nothing, that this is counted, and that nothing is in force for it.
    #[test]
    fn an_ending_thread_enters_nothing() {
        struct Late(std::sync::mpsc::Sender<(Option<u32>, u64, Current)>);
        impl Drop for Late {
            fn drop(&mut self) {
                let entered = enter(&[1, 0, 2, 0], false);
                self.0.send((entered, left_out_here(), read().0)).unwrap();
            }
        }
        thread_local!(static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) });
        let (sender, receiver) = std::sync::mpsc::channel();
        let work = move || {
            // Thread-locals are destroyed in the reverse order of their first use: this one after the thread's own.
            LATE.with(|late| *late.borrow_mut() = Some(Late(sender)));
            std::mem::forget(crate::tag!("forgotten" => 1));
        };
        std::thread::spawn(work).join().unwrap();
        assert_eq!(receiver.recv().unwrap(), (None, 2, Current::default()));
    }
}
