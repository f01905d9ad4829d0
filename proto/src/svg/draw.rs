//! The text of the file.
//!
//! In: the boxes of a graph. Out: SVG. Texts of others are escaped, and the script reads them as texts alone.

use std::fmt::Write as _;

use super::amount::amount;
use super::graph::Graph;
use super::layout::{Placed, WIDTH, place};

/// Pixels.
const ROW: usize = 17;
const MARGIN: usize = 28;
/// Of a letter, about.
const LETTER: f64 = 6.6;
/// Zooms and searches.
const SCRIPT: &str = include_str!("script.js");

/// The graph as a file, with `title` above it; weights are so many of `unit`: `nanoseconds`, `bytes`, or what is counted.
#[must_use]
pub fn draw(graph: &Graph, title: &str, unit: &str) -> String {
    let boxes = place(graph);
    let rows = 1 + boxes.iter().map(|placed| placed.row).max().unwrap_or(0);
    let height = MARGIN + ROW * rows + 6;
    let (title, all) = (escaped(title), escaped(&amount(graph.weight(), unit)));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"6\" y=\"18\" font-size=\"13\">{title} · {all}</text>\n\
         <text id=\"search\" x=\"{}\" y=\"18\" text-anchor=\"end\" cursor=\"pointer\">search</text>\n\
         <g id=\"graph\" cursor=\"pointer\">\n",
        WIDTH - 6.0,
    );
    for placed in &boxes {
        push_box(&mut svg, placed, height - ROW * (placed.row + 1) - 6, (graph.weight(), unit));
    }
    svg.push_str("</g>\n<script><![CDATA[\n");
    svg.push_str(SCRIPT);
    svg.push_str("]]></script>\n</svg>\n");
    svg
}

fn push_box(svg: &mut String, placed: &Placed<'_>, y: usize, (all, unit): (u64, &str)) {
    let Placed { weight, x, width, .. } = *placed;
    let (name, hue, share) = (escaped(placed.name), hue(placed.name), 100.0 * weight as f64 / all.max(1) as f64);
    let weight = escaped(&amount(weight, unit));
    // Writing into a text does not fail.
    _ = write!(
        svg,
        "<g><title>{name} ({weight}, {share:.2} %)</title><rect x=\"{x:.3}\" y=\"{y}\" width=\"{width:.3}\" height=\"{}\" fill=\"hsl({hue},75%,68%)\"/>",
        ROW - 1
    );
    if let Some(shown) = shortened(&name, ((width - 4.0) / LETTER) as usize) {
        _ = write!(svg, "<text x=\"{:.3}\" y=\"{}\">{shown}</text>", x + 2.0, y + 12);
    }
    svg.push_str("</g>\n");
}

/// From red to yellow; the same for the same name.
fn hue(name: &str) -> u32 {
    name.bytes().fold(17_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into())) % 55
}

/// As much as there is room for; `None` for less than a few letters. Entities stay whole.
fn shortened(escaped: &str, letters: usize) -> Option<String> {
    if letters < 3 {
        return None;
    }
    let mut units = Vec::new();
    let mut rest = escaped;
    while let Some(first) = rest.chars().next() {
        let end = if first == '&' { rest.find(';').map_or(1, |end| end + 1) } else { first.len_utf8() };
        let (unit, behind) = rest.split_at_checked(end)?;
        units.push(unit);
        rest = behind;
    }
    match units.len() <= letters {
        true => Some(units.concat()),
        false => units.get(..letters - 2).map(|units| units.concat() + ".."),
    }
}

/// For text in XML, which may not hold control characters either (XML 1.0 §2.2).
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            character if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => escaped.push('?'),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that shares are of all, callees stand above their caller, and names, title and unit cannot become markup.
    #[test]
    fn a_graph_has_names_shares_and_no_markup_of_others() {
        let mut graph = Graph::new();
        graph.add(["main", "<b>&\u{1};leaf]]>"], 3000);
        graph.add(["main", "other"], 1000);
        let svg = draw(&graph, "<shop>", "\"sample\"");
        for expected in [
            ">&lt;shop&gt; · 4,000 &quot;sample&quot;s</text>",
            "<title>all (4,000 &quot;sample&quot;s, 100.00 %)</title><rect x=\"0.000\" y=\"62\" width=\"1200.000\"",
            "<title>&lt;b&gt;&amp;?;leaf]]&gt; (3,000 &quot;sample&quot;s, 75.00 %)</title><rect x=\"0.000\" y=\"28\" width=\"900.000\"",
            "<title>other (1,000 &quot;sample&quot;s, 25.00 %)</title><rect x=\"900.000\" y=\"28\" width=\"300.000\"",
        ] {
            assert!(svg.contains(expected), "{expected}: {svg}");
        }
        assert!(!svg.contains("<b>") && svg.matches("]]>").count() == 1);
    }

    /// Check that a name is cut between letters, not within what stands for one.
    #[test]
    fn names_are_cut_between_letters() {
        assert_eq!(shortened("a&lt;b&gt;cdef", 6).as_deref(), Some("a&lt;b&gt;.."));
        assert_eq!(shortened("a&lt;b", 3).as_deref(), Some("a&lt;b"));
        assert_eq!(shortened("abc", 2), None);
    }

    /// Check that a graph of nothing is a picture all the same.
    #[test]
    fn nothing_is_a_picture() {
        let svg = draw(&Graph::new(), "", "samples");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
