//! Tags that are written as in the attribute, or without a value.

fn main() {
    let a = 1;
    let _scope = profiler::tag!(a = 1);
    let _mixed = profiler::tag!("a" => a, "b" = a);
    let _none = profiler::tag!();
    let _tags = profiler::tags!(a = 1);
    let _key = profiler::tags!("a");
}
