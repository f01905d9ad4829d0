//! A scope belongs to its thread: no other can look at it.

fn main() {
    let scope = profiler::tag!("endpoint" => "/orders");
    std::thread::scope(|threads| {
        threads.spawn(|| println!("{scope:?}"));
    });
}
