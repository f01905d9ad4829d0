//! Names of functions as people write them: those of inlined functions with their module, of which line tables tell the last part.
//!
//! In: what debug information calls a function, which may be anything, and its file. Out: the name with its module path.

/// The name of an inlined Rust function of which debug information tells the last part only, as line tables do:
/// `poll<T>` in `…/tokio-1.54.1/src/runtime/task/core.rs` becomes `tokio::runtime::task::core::poll<T>`. The path is the
/// module's, which is all that a file name tells: the type of a method is not in it.
pub(super) fn qualified(name: &str, file: &str) -> String {
    let head = name.split(['<', '{', '(']).next().unwrap_or_default();
    match module_path(file) {
        Some(path) if !head.contains("::") && !name.starts_with(['_', '<']) => format!("{path}::{name}"),
        _ => name.to_owned(),
    }
}

/// The module of a source file below some `src` folder of a package: `tokio::runtime::task`.
fn module_path(file: &str) -> Option<String> {
    let (package, inside) = file.rsplit_once("/src/")?;
    let package = without_version(package.rsplit('/').next()?).replace('-', "_");
    let inside = inside.strip_suffix(".rs")?;
    // A program below `src/bin` is a crate of its own.
    let program = inside.strip_prefix("bin/").map(|program| program.split_once('/').unwrap_or((program, "")));
    let (package, inside) = program.map_or((package, inside), |(name, inside)| (name.replace('-', "_"), inside));
    let modules = inside.split('/').filter(|part| !matches!(*part, "" | "lib" | "main" | "mod"));
    Some([package.as_str()].into_iter().chain(modules).collect::<Vec<_>>().join("::"))
}

/// `tokio` for `tokio-1.54.1`, as registries name the folders of packages.
fn without_version(folder: &str) -> &str {
    match folder.rsplit_once('-') {
        Some((name, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => name,
        _ => folder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a short name gets the path of its module, and a full one stays as it is.
    #[test]
    fn short_names_get_their_module() {
        for (name, file, full) in [
            (
                "poll<T>",
                "/x/registry/src/index-1/tokio-1.54.1/src/runtime/task/core.rs",
                "tokio::runtime::task::core::poll<T>",
            ),
            ("unwrap<&a::B>", "/rustc/0123/library/core/src/option.rs", "core::option::unwrap<&a::B>"),
            ("price", "examples/src/bin/shop/orders.rs", "shop::orders::price"),
            ("{closure#0}", "/home/me/my-service/src/main.rs", "my_service::{closure#0}"),
            ("core::fmt::write", "/rustc/0123/library/core/src/fmt/mod.rs", "core::fmt::write"),
            ("__memcpy", "/glibc/src/string/memcpy.c", "__memcpy"),
            ("main", "main.c", "main"),
            ("f", "", "f"),
        ] {
            assert_eq!(qualified(name, file), full);
        }
    }
}
