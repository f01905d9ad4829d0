//! `#[profiler::tagged(...)]`: puts tags around the work of a function.
//!
//! In: the attribute's text (`arguments`) and the function below it (`function`). Out: the same function, with the
//! same signature, attributes and docs, and with a body that puts the tags in force (`expansion`). What the function hands out decides how:
//! `output`. Runs inside the compiler, on tokens; it must not panic and must not lose what it was given, so that an editor
//! goes on to know the function while its attribute is wrong.

mod arguments;
mod block;
mod expansion;
mod function;
mod output;

use proc_macro::TokenStream;

// What it is for, with an example, stands where it is public, in `profiler`: this goes on behind that.
/// A key is a name, names with dots, or a string literal. A value is any expression that is
/// [`Display`](std::fmt::Display); it may use the arguments, which it borrows. Where a function takes an argument
/// apart, as in `fn f((a, b): (u8, u8))`, the value may use the parts.
///
/// # What it does
///
/// * A function that is not async: the tags are in force from its first statement to its end, also by `return`, `?` or a panic; arguments
///   are dropped behind them. Values
///   are evaluated at the call; tags whose values are all literals are built once for the process.
/// * An `async fn`: the tags follow its future, as with `FutureExt::with_tags`. They are in force whenever it is polled, and
///   when it is dropped before its end. Values are evaluated when the future is first polled, as is the body.
/// * A function that returns `impl Future`, `Pin<Box<dyn Future>>` or `BoxFuture`, as those that `#[async_trait]` makes of
///   methods do: the tags are in force for the body and follow the future. Values are evaluated at the call. The same
///   holds for `Stream` instead of `Future`. It goes by these names: behind a type alias with another one, a future is not
///   seen, and the tags end with the call; write `FutureExt::with_tags` there.
///
/// It works on functions, methods and the methods of traits that have a body, with generics, lifetimes, `unsafe` and
/// `extern "C"`. A `const fn` may run in the compiler, where there are no tags, and is refused. In an `impl` under
/// `#[async_trait]`, which runs first, a value can use arguments, but not parts of arguments that are taken apart.
///
/// Where the SDK has another name, say so: `#[telemetry::profiler::tagged(crate = telemetry::profiler, endpoint = "/orders")]`.
#[proc_macro_attribute]
pub fn tagged(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expansion::tagged(attribute.into(), &item.into()).into()
}
