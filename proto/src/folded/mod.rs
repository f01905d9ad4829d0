//! Profiles as folded stacks: one line per stack, `root;caller;leaf value`, as `flamegraph.pl` and `inferno` read them.
//!
//! The simplest form there is, for terminals, `grep` and diffs. It holds one profile and of that only names, tags and
//! values; inlined functions are frames like others.
//!
//! With tags, a line begins with a frame `{key=value,key=value}`. What would break a line stands as `\x` and two
//! hexadecimal digits: control characters and `;` everywhere, `\` itself, a `{` that begins the root frame, and `,`, `=` and `}`
//! within tags.

mod decode;
mod encode;
mod escape;
mod frames;

pub use decode::decode;
pub use encode::{Tags, encode, encode_within};
pub(crate) use frames::frames_of;
