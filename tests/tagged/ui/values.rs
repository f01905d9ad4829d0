//! Values that cannot be shown, or are not there.

use profiler::tagged;

struct User {
    tier: Tier,
}

struct Tier;

#[tagged(method = "GET", tier = user.tier)]
fn not_display(user: &User) {}

#[tagged(tier = user.tier)]
async fn not_display_async(user: &User) {}

#[tagged(tier = usr.tier)]
fn unknown(user: &User) {}

fn main() {}
