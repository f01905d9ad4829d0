//! How names are shortened, and whether a browser's complaints would be heard at all.

use serde_json::json;

use crate::reader::Reader;
use crate::site::{SHOP, Site};

/// A name and its forms, longest first.
const FORMS: &[(&str, &[&str])] = &[
    ("shop::orders::price::h0123456789abcdef", &["shop::orders::price", "orders::price", "price"]),
    (
        "<alloc::vec::Vec<T,A> as core::iter::Extend<&T>>::extend::<I>",
        &[
            "<alloc::vec::Vec<T,A> as core::iter::Extend<&T>>::extend::<I>",
            "alloc::vec::Vec::extend",
            "vec::Vec::extend",
            "Vec::extend",
            "extend",
        ],
    ),
    (
        "<std::Thread>::new::start",
        &["<std::Thread>::new::start", "std::Thread::new::start", "Thread::new::start", "new::start", "start"],
    ),
    ("shop::run::{{closure}}::{{closure}}", &["shop::run::{{closure}}::{{closure}}", "run::{{closure}}::{{closure}}"]),
    (
        "shop::_::<impl serde::Serialize for shop::Order>::serialize",
        &[
            "shop::_::<impl serde::Serialize for shop::Order>::serialize",
            "shop::_::shop::Order::serialize",
            "_::shop::Order::serialize",
            "shop::Order::serialize",
            "Order::serialize",
            "serialize",
        ],
    ),
    ("core::str::<impl str>::trim", &["core::str::<impl str>::trim", "core::str::trim", "str::trim", "trim"]),
    (
        "<fn(u8) -> u8 as core::ops::FnOnce>::call_once",
        &["<fn(u8) -> u8 as core::ops::FnOnce>::call_once", "fn(u8) -> u8::call_once", "call_once"],
    ),
    ("operator<<", &["operator<<"]),
    ("libc.so.6+0x28b0", &["libc.so.6+0x28b0"]),
    (
        "github.com/acme/stock.(*Server).Take",
        &["github.com/acme/stock.(*Server).Take", "acme/stock.(*Server).Take", "stock.(*Server).Take"],
    ),
    ("__memcpy_avx512_unaligned", &["__memcpy_avx512_unaligned"]),
];

/// Check that names lose hash and generics first, then the path from the left, and that a closure keeps its function.
#[test]
fn names_lose_hash_and_generics_first() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    for (name, forms) in FORMS {
        let found = reader.ask(&format!("import('./names.js').then(({{ forms }}) => forms({}))", json!(name)));
        assert_eq!(found, json!(forms), "{name}");
    }
    reader.leave();
}

/// Check that what a page complains of is heard: a message, an exception, a request that its policy forbids.
#[test]
fn complaints_are_heard() {
    let site = Site::with(SHOP);
    let mut reader = Reader::at(site.address, "");
    reader.ask("console.error('first'); setTimeout(() => { throw new Error('second'); }); fetch('http://127.0.0.1:9/third').catch(() => 0)");
    reader.ask("new Promise((done) => setTimeout(done, 200))");
    let complaints = reader.browser.complaints().unwrap().join("\n");
    assert!(["first", "second", "third"].iter().all(|word| complaints.contains(word)), "{complaints}");
    assert_eq!(reader.browser.complaints().unwrap().join("\n"), complaints);
}
