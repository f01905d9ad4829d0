//! What only Go has: build info, names, inlined calls, the depth of stacks, offsets in the runtime.

pub mod layouts;
