//! `/flamegraph.svg`: the flame graph as one file, drawn by `inferno`.
//!
//! In: a tree. Out: SVG that zooms and searches by itself, for tickets and mails. The page draws its own.

use http::HeaderValue;
use http::header::CONTENT_SECURITY_POLICY;
use inferno::flamegraph::color::{MultiPalette, Palette};
use inferno::flamegraph::{self, Options};

use super::reply::Reply;
use super::tree::Tree;

/// The script and the style stand in the file; nothing else may be loaded or reached.
const POLICY: &str =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// The tree as SVG; `None` if it has no samples.
pub(super) fn draw(tree: &Tree, service: &str) -> Option<Vec<u8>> {
    let lines = folded(tree);
    let mut options = Options::default();
    options.title = format!("{service} · CPU · {} samples", tree.samples);
    options.colors = Palette::Multi(MultiPalette::Rust);
    options.hash = true;
    options.count_name = "samples".to_owned();
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg).ok()?;
    Some(svg)
}

/// The reply that carries it.
pub(super) fn reply(svg: Vec<u8>) -> Reply {
    Reply::compressible("image/svg+xml", svg).with(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY))
}

/// One line a path, as `inferno` reads them: `root;…;leaf weight`.
fn folded(tree: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    tree.paths(|path, weight| {
        let names: Vec<String> =
            path.iter().map(|frame| tree.frames.name(*frame).replace([';', '\n', '\r'], ":")).collect();
        lines.push(format!("{} {weight}", names.join(";")));
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::testing::{Stacks, nodes_of};

    fn drawn(stacks: Stacks) -> Option<String> {
        let (nodes, frames) = nodes_of(&[stacks.set()]);
        draw(&Tree::new(nodes, frames), "shop").map(|svg| String::from_utf8(svg).unwrap())
    }

    /// Check that names, weights and the title stand in the drawing, escaped.
    #[test]
    fn names_and_weights_are_drawn() {
        let svg = drawn(Stacks::new().sample("main;<shop::Order>::price", 3).sample("main;b", 1)).unwrap();
        assert!(svg.contains("&lt;shop::Order&gt;::price (3 samples, 75.00%)"), "{svg}");
        assert!(svg.contains("shop · CPU · 4 samples"));
    }

    /// Check that a tree without samples is not drawn.
    #[test]
    fn nothing_is_not_drawn() {
        assert_eq!(drawn(Stacks::new()), None);
    }
}
