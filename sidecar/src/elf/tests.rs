//! Real files of this machine, whole and damaged, against what binutils say of them.

use super::*;

fn this_program() -> std::fs::File {
    std::fs::File::open("/proc/self/exe").unwrap()
}

#[test]
fn a_function_of_this_program_is_found_by_its_address() {
    let file = File::open(this_program()).unwrap();
    let symbols = file.symbols().unwrap();
    let address = symbols.address_of(&file, "main").unwrap();
    let main = symbols.find(&file, address + 1).unwrap();
    assert_eq!((main.name.as_str(), main.address), ("main", address));
    assert_eq!(file.address_of(file.offset_of(address).unwrap()), Some(address));
}
