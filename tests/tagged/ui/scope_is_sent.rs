//! A scope belongs to its thread: it cannot be sent to another.

fn main() {
    let scope = profiler::tag!("endpoint" => "/orders");
    std::thread::spawn(move || drop(scope));
}
