//! A flame graph as one file of SVG, which any browser shows: root at the bottom, width by samples, name and share under the pointer.
//!
//! In: a set of profiles. Out: the text of the file. Pure. What is narrower than a third of a pixel is left out; whatever stands in names, the file
//! is well-formed and nothing in it runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use profiler_proto::{ProfileSet, folded};

/// Pixels.
const WIDTH: f64 = 1200.0;
const ROW: usize = 17;
const MARGIN: usize = 28;
const NARROWEST: f64 = 0.3;
/// Most rows; what is called further up is left out.
const MOST_ROWS: usize = 1000;
/// Of a letter, about.
const LETTER: f64 = 6.6;

/// A function under its callers.
#[derive(Debug, Default)]
struct Node {
    samples: u64,
    callees: BTreeMap<String, Node>,
}

/// The graph of all profiles in a set.
pub(super) fn draw(set: &ProfileSet) -> String {
    let mut root = Node::default();
    for profile in &set.profiles {
        let lines = folded::encode(profile, &set.dictionary, folded::Tags::Left);
        lines.lines().for_each(|line| root.add(line));
    }
    let deepest = root.depth();
    let height = MARGIN + ROW * (deepest + 1) + 6;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"6\" y=\"18\" font-size=\"13\">{}, {} samples</text>\n",
        escaped(set.resource.service_name().unwrap_or("several processes")),
        root.samples
    );
    let mut graph = Graph { svg: &mut svg, all: root.samples.max(1), bottom: height - ROW - 6 };
    graph.draw("all", &root, 0.0, 0);
    svg.push_str("</svg>\n");
    svg
}

impl Node {
    /// Adds `root;…;leaf COUNT`.
    fn add(&mut self, line: &str) {
        let Some((stack, samples)) = line.rsplit_once(' ') else { return };
        let samples = samples.parse().unwrap_or(0);
        let mut node = self;
        node.samples += samples;
        for name in stack.split(';').take(MOST_ROWS) {
            node = node.callees.entry(name.to_owned()).or_default();
            node.samples += samples;
        }
    }

    /// Rows above this one.
    fn depth(&self) -> usize {
        self.callees.values().map(|callee| 1 + callee.depth()).max().unwrap_or(0)
    }
}

struct Graph<'a> {
    svg: &'a mut String,
    all: u64,
    bottom: usize,
}

impl Graph<'_> {
    /// Draws a function at `x` in its row, and those that it calls above it.
    fn draw(&mut self, name: &str, node: &Node, x: f64, row: usize) {
        let width = WIDTH * node.samples as f64 / self.all as f64;
        if width < NARROWEST {
            return;
        }
        let (y, share) = (self.bottom.saturating_sub(ROW * row), 100.0 * node.samples as f64 / self.all as f64);
        let (hue, name) = (hue(name), escaped(name));
        // Writing into a text does not fail.
        _ = write!(
            self.svg,
            "<g><title>{name} ({} samples, {share:.2} %)</title><rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"hsl({hue},75%,68%)\"/>",
            node.samples,
            ROW - 1
        );
        if let Some(shown) = shortened(&name, ((width - 4.0) / LETTER) as usize) {
            _ = write!(self.svg, "<text x=\"{:.1}\" y=\"{}\">{shown}</text>", x + 2.0, y + 12);
        }
        self.svg.push_str("</g>\n");
        let mut x = x;
        for (name, callee) in &node.callees {
            self.draw(name, callee, x, row + 1);
            x += WIDTH * callee.samples as f64 / self.all as f64;
        }
    }
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

    /// Check that shares are of all, callees stand above their caller, and names cannot become markup.
    #[test]
    fn a_graph_has_names_shares_and_no_markup_of_others() {
        let mut root = Node::default();
        ["main;<b>&\u{1};leaf 3", "main;other 1"].iter().for_each(|line| root.add(line));
        assert_eq!((root.samples, root.depth()), (4, 3));
        let mut svg = String::new();
        Graph { svg: &mut svg, all: root.samples, bottom: 100 }.draw("all", &root, 0.0, 0);
        for expected in [
            "<title>all (4 samples, 100.00 %)</title><rect x=\"0.0\" y=\"100\" width=\"1200.0\"",
            "<title>&lt;b&gt;&amp;? (3 samples, 75.00 %)</title><rect x=\"0.0\" y=\"66\" width=\"900.0\"",
            "<title>other (1 samples, 25.00 %)</title><rect x=\"900.0\" y=\"66\" width=\"300.0\"",
        ] {
            assert!(svg.contains(expected), "{expected}: {svg}");
        }
        assert!(!svg.contains("<b>"));
    }

    /// Check that a name is cut between letters, not within what stands for one.
    #[test]
    fn names_are_cut_between_letters() {
        assert_eq!(shortened("a&lt;b&gt;cdef", 6).as_deref(), Some("a&lt;b&gt;.."));
        assert_eq!(shortened("a&lt;b", 3).as_deref(), Some("a&lt;b"));
        assert_eq!(shortened("abc", 2), None);
    }

    /// Check that nothing recorded is a picture all the same.
    #[test]
    fn an_empty_set_is_a_picture() {
        let svg = draw(&ProfileSet::default());
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
