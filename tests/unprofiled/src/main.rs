//! Says where a jemalloc without profiling is: a library that other programs are linked with.
//!
//! In: nothing. Out: the path of the library on standard output.

use tikv_jemalloc_sys as _;

fn main() {
    println!("{}/lib/libjemalloc_pic.a", env!("JEMALLOC_ROOT"));
}
