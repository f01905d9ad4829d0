//! Attributes that are wrong.

use profiler::tagged;

#[tagged]
fn no_tags() {}

#[tagged()]
fn no_tags_in_parentheses() {}

#[tagged(crate = profiler)]
fn no_tags_but_a_crate() {}

#[tagged(endpoint)]
fn no_value() {}

#[tagged(endpoint = , method = "GET")]
fn empty_value() {}

#[tagged("endpoint" => "/orders")]
fn arrow() {}

#[tagged(endpoint: "/orders")]
fn colon() {}

#[tagged("" = 1)]
fn empty_key() {}

#[tagged(1 = 2)]
fn number_as_key() {}

#[tagged(http. = 2)]
fn half_a_key() {}

#[tagged(endpoint = 1 method = 2)]
fn no_comma() {}

#[tagged(http.method = 1, user = 2, "http.method" = 3)]
fn twice() {}

fn main() {
    // All are still known.
    no_tags();
    no_tags_in_parentheses();
    no_tags_but_a_crate();
    no_value();
    empty_value();
    arrow();
    colon();
    empty_key();
    number_as_key();
    half_a_key();
    no_comma();
    twice();
}
