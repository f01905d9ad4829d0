//! `/flamegraph.svg`: the flame graph as one file.
//!
//! In: a tree. Out: SVG that zooms and searches by itself, for tickets and mails. The page draws its own.

use http::HeaderValue;
use http::header::CONTENT_SECURITY_POLICY;
use profiler_proto::svg::{self, Graph};

use super::asked::Asked;
use super::reply::Reply;
use super::tree::Tree;

/// The script stands in the file; nothing else may be loaded or reached.
const POLICY: &str =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// The tree as SVG; `None` if it has no samples.
pub(super) fn draw(tree: &Tree, service: &str, asked: &Asked) -> Option<String> {
    let mut graph = Graph::new();
    tree.paths(|path, weight| graph.add(path.iter().map(|frame| tree.frames.name(*frame)), weight));
    let (title, unit) = (asked.sample_type.title(), asked.sample_type.unit());
    let grown = if asked.growth { ", growth" } else { "" };
    (graph.weight() > 0).then(|| svg::draw(&graph, &format!("{service} · {title}{grown}"), unit))
}

/// The reply that carries it.
pub(super) fn reply(svg: String) -> Reply {
    Reply::compressible("image/svg+xml", svg.into_bytes())
        .with(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY))
}

#[cfg(test)]
mod tests {
    use profiler_proto::model::TagFilter;

    use super::*;
    use crate::serve::process::Chosen;
    use crate::serve::range::Range;
    use crate::serve::sample_type::SampleType;
    use crate::serve::testing::{Stacks, nodes_of};

    fn drawn(stacks: Stacks, sample_type: SampleType, growth: bool) -> Option<String> {
        let (nodes, frames) = nodes_of(&[stacks.set()]);
        let (range, filter) = (Range { from: 0, to: 1 }, TagFilter::new());
        let asked = Asked { sample_type, growth, range, now: 1, filter, of: Chosen::default() };
        draw(&Tree::new(nodes, frames), "shop", &asked)
    }

    /// Check that names, weights and the title stand in the drawing, escaped.
    #[test]
    fn names_and_weights_are_drawn() {
        let stacks = Stacks::new().sample("main;<shop::Order>::price", 3).sample("main;b", 1);
        let svg = drawn(stacks, SampleType::Cpu, false).unwrap();
        assert!(svg.contains("<title>&lt;shop::Order&gt;::price (3 samples, 75.00 %)</title>"), "{svg}");
        assert!(svg.contains(">shop · CPU · 4 samples<"), "{svg}");
        let heap = drawn(Stacks::new().sample("main;b", 4096), SampleType::InuseSpace, true).unwrap();
        assert!(heap.contains(">shop · heap in use, growth · 4.00 KiB<"), "{heap}");
        assert!(heap.contains("<title>b (4.00 KiB, 100.00 %)</title>"), "{heap}");
    }

    /// Check that a tree without samples is not drawn.
    #[test]
    fn nothing_is_not_drawn() {
        assert_eq!(drawn(Stacks::new(), SampleType::Cpu, false), None);
    }
}
