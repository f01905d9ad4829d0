//! All kinds of functions with the attribute, in a program that takes warnings for errors: that this compiles, and that clippy is
//! content, is most of the test.

#![deny(warnings, clippy::all, clippy::pedantic, missing_docs, unreachable_pub, unused)]
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;

use profiler::tagged;

/// Holds something.
pub(crate) struct Holder<T> {
    value: T,
}

impl<T: Display + Send + Sync> Holder<T> {
    /// Lends it.
    #[tagged(value = self.value)]
    #[inline]
    pub(crate) fn lend(&self) -> &T {
        &self.value
    }

    /// Lends it later, to whoever may be on another thread.
    #[tagged(value = self.value)]
    pub(crate) async fn lend_later(&self) -> &T {
        std::future::ready(()).await;
        &self.value
    }

    /// Gives it away later.
    #[tagged(value = self.value)]
    pub(crate) fn give(self) -> impl Future<Output = T> + Send
    where
        T: 'static,
    {
        async move { self.value }
    }

    /// Gives it away, in a box.
    #[tagged(value = self.value)]
    pub(crate) fn give_boxed<'a>(self) -> Pin<Box<dyn Future<Output = T> + Send + 'a>>
    where
        T: 'a,
    {
        Box::pin(std::future::ready(self.value))
    }

    /// Borrows in an async block that does not move.
    #[tagged(a = 1)]
    pub(crate) fn borrow(&mut self, value: T) -> impl Future<Output = &T> + Send {
        self.value = value;
        async { &self.value }
    }
}

#[tagged(crate = renamed::inner, a = 1)]
fn by_another_name() -> u8 {
    #![expect(unused_variables, reason = "what is written at the start of a body holds for it")]
    let unused = 1;
    2
}

/// A crate of a company that hands on the profiler.
mod renamed {
    pub(crate) use profiler as inner;
}

#[tagged(a = 1)]
fn never() -> ! {
    std::process::exit(0)
}

#[tagged(a = 1)]
async fn never_later() -> ! {
    std::process::exit(0)
}

#[tagged(number = number)]
fn two_attributes(number: impl Display + Copy, _unused: u8, mut changed: usize) -> usize {
    /// An item before the statements.
    const ONE: usize = 1;
    changed += ONE;
    changed + number.to_string().len()
}

macro_rules! function {
    ($name:ident, $value:expr) => {
        #[tagged(name = stringify!($name), value = $value)]
        async fn $name(scope: u8, tags: u8, later: u8, returned: u8) -> u8 {
            scope + tags + later + returned
        }
    };
}
function!(of_a_macro, 1 + 2);

macro_rules! returning {
    ($name:ident, $returned:ty) => {
        #[tagged(a = 1)]
        async fn $name() -> $returned {
            std::process::exit(0)
        }
    };
}
returning!(never_of_a_macro, !);

// On one line: the braces would be unnecessary around an expression.
#[rustfmt::skip]
#[tagged(number = number)]
async fn on_one_line(number: u8) -> u8 { number }

#[rustfmt::skip]
#[tagged(number = number)]
fn on_one_line_now(number: u8) -> u8 { number }

fn is_send<T: Send>(value: T) -> T {
    value
}

/// Check that all can be called, and that their futures can be sent where they could without the attribute.
#[test]
fn all_kinds_can_be_called() {
    assert_eq!(on_one_line_now(1), 1);
    let _later = is_send(on_one_line(1));
    let mut holder = Holder { value: 1 };
    assert_eq!(*holder.lend(), 1);
    drop(is_send(holder.lend_later()));
    drop(is_send(holder.borrow(2)));
    assert_eq!(holder.value, 2);
    drop(is_send(of_a_macro(1, 2, 3, 4)));
    drop(is_send(Holder { value: 1 }.give()));
    drop(is_send(Holder { value: 1 }.give_boxed()));
    drop(never_later());
    drop(never_of_a_macro());
    assert_eq!((by_another_name(), two_attributes(1, 2, 3)), (2, 5));
    let never: fn() -> ! = never;
    assert!(std::mem::size_of_val(&never) > 0);
}
