//! `/flamegraph.svg`: the flame graph as one file, drawn by `inferno`.
//!
//! In: a tree. Out: SVG that zooms and searches by itself, for tickets and mails. The page draws its own.

use http::HeaderValue;
use http::header::CONTENT_SECURITY_POLICY;
use inferno::flamegraph::color::{MultiPalette, Palette};
use inferno::flamegraph::{self, Options};

use super::asked::Asked;
use super::reply::Reply;
use super::tree::Tree;

/// The script and the style stand in the file; nothing else may be loaded or reached.
const POLICY: &str =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// The tree as SVG; `None` if it has no samples.
pub(super) fn draw(tree: &Tree, service: &str, asked: &Asked) -> Option<Vec<u8>> {
    let lines = folded(tree);
    let (title, unit) = (asked.sample_type.title(), asked.sample_type.unit());
    let grown = if asked.growth { ", growth" } else { "" };
    let mut options = Options::default();
    options.title = format!("{service} · {title}{grown} · {} {unit}", tree.samples);
    options.colors = Palette::Multi(MultiPalette::Rust);
    options.hash = true;
    options.count_name = unit.to_owned();
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
    use profiler_proto::model::TagFilter;

    use super::*;
    use crate::serve::process::Chosen;
    use crate::serve::range::Range;
    use crate::serve::sample_type::SampleType;
    use crate::serve::testing::{Stacks, nodes_of};

    fn drawn(stacks: Stacks) -> Option<String> {
        drawn_as(stacks, SampleType::Cpu, false)
    }

    fn drawn_as(stacks: Stacks, sample_type: SampleType, growth: bool) -> Option<String> {
        let (nodes, frames) = nodes_of(&[stacks.set()]);
        let (range, filter) = (Range { from: 0, to: 1 }, TagFilter::new());
        let asked = Asked { sample_type, growth, range, now: 1, filter, of: Chosen::default() };
        draw(&Tree::new(nodes, frames), "shop", &asked).map(|svg| String::from_utf8(svg).unwrap())
    }

    /// Check that names, weights and the title stand in the drawing, escaped.
    #[test]
    fn names_and_weights_are_drawn() {
        let svg = drawn(Stacks::new().sample("main;<shop::Order>::price", 3).sample("main;b", 1)).unwrap();
        assert!(svg.contains("&lt;shop::Order&gt;::price (3 samples, 75.00%)"), "{svg}");
        assert!(svg.contains("shop · CPU · 4 samples"));
        let heap = drawn_as(Stacks::new().sample("main;b", 4096), SampleType::InuseSpace, true).unwrap();
        assert!(
            heap.contains("shop · heap in use, growth · 4096 bytes") && heap.contains("b (4,096 bytes, 100"),
            "{heap}"
        );
    }

    /// Check that a tree without samples is not drawn.
    #[test]
    fn nothing_is_not_drawn() {
        assert_eq!(drawn(Stacks::new()), None);
    }
}
