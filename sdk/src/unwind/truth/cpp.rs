//! A C++ program as the machine's compiler makes it, whose stacks must be those of the `backtrace` crate.
//!
//! In: C++ source with what C has not: virtual functions, templates, closures, destructors that an exception runs, what catches it. Out: as
//! of [`variants`](super::variants), with each usual way of optimizing.

use std::path::PathBuf;
use std::process::Command;

use super::folder::Folder;
use super::variants::check;

/// Calls back six times. It throws the first time only: while libgcc puts the registers of the frame that catches in the place of those of its
/// own callers, nobody can tell the stack; that is not to be seen in single steps.
const PROGRAM: &str = r#"
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

typedef void (*Back)();

namespace shop {

struct Item {
    virtual ~Item() = default;
    virtual uint64_t price(Back back) const = 0;
};

template <typename T> struct Priced final : Item {
    T amount;
    explicit Priced(T amount) : amount(amount) {}
    __attribute__((noinline)) uint64_t price(Back back) const override {
        back();
        return static_cast<uint64_t>(amount) + 1;
    }
};

struct Receipt {
    Back back;
    std::string text;
    __attribute__((noinline)) ~Receipt() { back(); text.clear(); }
};

__attribute__((noinline)) static uint64_t refuse(uint64_t number, Back back) {
    Receipt receipt{back, std::string(40, 'x')};
    if (number > 0) throw std::runtime_error("refused");
    return receipt.text.size();
}

__attribute__((noinline)) static uint64_t attempt(uint64_t number, Back back) {
    try {
        return refuse(number, back);
    } catch (const std::exception &error) {
        back();
        return std::string(error.what()).size();
    }
}

__attribute__((noinline)) static uint64_t deep(uint64_t depth, const std::function<uint64_t(uint64_t)> &leaf) {
    return depth == 0 ? leaf(depth) : deep(depth - 1, leaf) + 1;
}

static uint64_t total(Back back) {
    std::vector<std::unique_ptr<Item>> items;
    items.emplace_back(std::make_unique<Priced<int>>(3));
    items.emplace_back(std::make_unique<Priced<double>>(4.5));
    uint64_t sum = 0;
    std::for_each(items.begin(), items.end(), [&](const std::unique_ptr<Item> &item) { sum += item->price(back); });
    bool called = false;
    auto compare = [&](uint64_t a, uint64_t b) {
        if (!called) { called = true; back(); }
        return a < b;
    };
    std::vector<uint64_t> numbers{sum, 2, 1};
    std::sort(numbers.begin(), numbers.end(), compare);
    return numbers[2] + deep(8, [back](uint64_t n) { back(); return n; });
}

}  // namespace shop

extern "C" uint64_t variant(Back back) {
    static int thrown = 0;
    return shop::total(back) + shop::attempt(thrown++ == 0, back);
}
"#;

fn compile(folder: &Folder, name: &str, flags: &[&str]) -> PathBuf {
    let (source, library) = (folder.file(&format!("{name}.cpp")), folder.file(&format!("lib{name}.so")));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut command = Command::new("c++");
    command.args(["-std=c++17", "-shared", "-fPIC", "-g", "-o"]).arg(&library).arg(&source).args(flags);
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; apt-get install g++"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    library
}

/// Check that C++ has the stacks of `backtrace`, in destructors that an exception runs and where it is caught too, and at
/// every instruction but while it is thrown.
#[test]
fn code_in_cpp_is_known() {
    for optimized in ["-O0", "-O2", "-O3", "-Os"] {
        let name = format!("cpp{optimized}");
        let folder = Folder::new(&name);
        check(&compile(&folder, &name, &[optimized]));
    }
}
