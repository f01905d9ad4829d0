//! Bodies that are wrong: said where they are, as without the attribute.

use profiler::tagged;

#[tagged(a = 1)]
fn sync_body() -> u8 {
    "text"
}

#[tagged(a = 1)]
async fn async_body() -> u8 {
    "text"
}

#[tagged(a = 1)]
async fn async_early(early: bool) -> u8 {
    if early {
        return "text";
    }
    1
}

#[tagged(a = 1)]
fn sync_without_tail() -> u8 {
    1;
}

#[tagged(a = 1)]
fn unknown_name() -> u8 {
    scope
}

fn main() {}
