//! Items that cannot be tagged.

use profiler::tagged;

#[tagged(a = 1)]
struct Orders;

#[tagged(a = 1)]
impl Orders {
    #[tagged(a = 1)]
    pub const fn compile_time(&self) -> u8 {
        1
    }

    #[tagged(a = 1)]
    const SIZE: u8 = 1;
}

trait Shop {
    #[tagged(a = 1)]
    fn place(&self);
}

#[tagged(a = 1)]
mod orders {}

#[tagged(a = 1)]
type Function = fn() -> u8;

fn main() {
    // All are still known.
    let _ = (Orders.compile_time(), Orders::SIZE, None::<Function>, None::<&dyn Shop>);
}
