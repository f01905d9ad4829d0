//! Scopes and spans in orders of chance, beside a plain list of them that says what must be in force.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::super::attributes::Block;
use super::*;

/// What was entered and shown, as a list.
#[derive(Debug, Default)]
struct Listed {
    /// Number, tags, whether they stand in the place of others; the outermost first.
    scopes: Vec<(u32, Vec<u8>, bool)>,
    beyond: usize,
    /// By OpenTelemetry, and by a layer for `tracing`.
    of_spans: [Vec<u8>; 2],
    spans: [u8; 2],
    layer: Arc<()>,
}

impl Listed {
    /// The tags of scopes by key.
    fn of_scopes(&self) -> BTreeMap<u8, u8> {
        let first = self.scopes.iter().rposition(|(.., replaces)| *replaces).unwrap_or(0);
        let scopes = self.scopes[first..].iter().map(|(_, tags, _)| &tags[..]);
        let overflow = [OVERFLOW];
        let all: Vec<&[u8]> = if self.beyond > 0 { overflow.into() } else { scopes.collect() };
        all.into_iter().flat_map(by_key).collect()
    }

    /// All tags by key.
    fn in_force(&self) -> BTreeMap<u8, u8> {
        let of_spans = self.of_spans.iter().filter(|_| self.beyond == 0).flat_map(|tags| by_key(tags));
        of_spans.chain(self.of_scopes()).collect()
    }

    /// What the source with this number says from now on.
    fn show(&mut self, source: usize, tags: Vec<u8>, span: u8) {
        (self.of_spans[source], self.spans[source]) = (tags, span);
    }

    /// The span to link to.
    fn span(&self) -> u8 {
        let [opentelemetrys, layers] = self.spans;
        if opentelemetrys == 0 { layers } else { opentelemetrys }
    }

    /// The layer is gone, and another one comes.
    fn lose_layer(&mut self) {
        self.layer = Arc::default();
        self.of_spans[1].clear();
        self.spans[1] = 0;
    }

    fn leave(&mut self, number: u32) {
        if number == BEYOND {
            self.beyond -= 1;
        }
        self.scopes.retain(|scope| scope.0 != number);
    }
}

fn by_key(tags: &[u8]) -> impl Iterator<Item = (u8, u8)> {
    pairs(tags).map(|(key, value)| (key, value[0]))
}

/// Knuth's linear congruential generator (MMIX), its high bits.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Up to three tags, of five keys.
    fn tags(&mut self) -> Vec<u8> {
        let mut block = Block::new();
        for _ in 0..self.below(4) {
            let (key, value) = (1 + self.below(5) as u8, self.below(256) as u8);
            assert!(block.push(key, &[value]));
        }
        block.as_bytes().to_vec()
    }

    /// A scope to leave: the innermost as a rule, any other, one of those beyond the bound, or one that is not there.
    fn scope(&mut self, listed: &Listed) -> u32 {
        let count = listed.scopes.len() as u64;
        if listed.beyond > 0 && self.below(2) == 0 {
            return BEYOND;
        }
        match self.below(6) {
            0 => u32::MAX / 2,
            1 | 2 if count > 0 => listed.scopes[self.below(count) as usize].0,
            _ => listed.scopes.last().map_or(7, |scope| scope.0),
        }
    }
}

/// What `show_span` does where it is OpenTelemetry that says nothing of tags, else what `show` does.
fn show(scopes: &mut Scopes, in_force: &InForce, said_by: Source<'_>, tags: &[u8], span: Span) {
    #[cfg(feature = "opentelemetry")]
    if matches!(said_by, Source::OpenTelemetry) && tags.is_empty() {
        let linked = if span == Span::NONE { Linked::NONE } else { Linked::new(span, 1) };
        if scopes.show_at_once(in_force, linked).is_some() {
            return;
        }
    }
    scopes.show(in_force, said_by, tags, Some(Linked::new(span, 1)));
}

/// One change of chance, to both; of ten, so many enter a scope.
fn change(chance: &mut Chance, enters: u64, scopes: &mut Scopes, in_force: &InForce, listed: &mut Listed) {
    match chance.below(10) {
        0 if chance.below(8) == 0 => {
            listed.lose_layer();
            // Whatever is changed next, be it nothing.
            scopes.leave(in_force, u32::MAX / 2);
        }
        0 => {
            let source = chance.below(2) as usize;
            listed.show(source, chance.tags(), chance.below(3) as u8);
            let said = listed.spans[source];
            let span = Span { trace_id: [said; 16], span_id: [said; 8] };
            let said_by = [Source::OpenTelemetry, Source::Tracing(&listed.layer)][source];
            show(scopes, in_force, said_by, &listed.of_spans[source], span);
        }
        kind if kind <= enters => {
            let (tags, replaces) = (chance.tags(), chance.below(8) == 0);
            match scopes.enter(in_force, &tags, replaces) {
                BEYOND => listed.beyond += 1,
                number => listed.scopes.push((number, tags, replaces)),
            }
        }
        _ => {
            let number = chance.scope(listed);
            listed.leave(number);
            scopes.leave(in_force, number);
        }
    }
}

/// Check that whatever is entered, left and shown, in whatever order and however deep, what is in force and what a task inherits is what the
/// list says.
#[test]
fn any_order_gives_what_a_list_gives() {
    let (mut chance, mut beyond) = (Chance(1), 0);
    for round in 0..300 {
        let (mut scopes, in_force, mut listed) = (Scopes::new(), InForce::nothing(), Listed::default());
        // Some go deeper than there is room.
        let (steps, enters) = if round % 30 == 0 { (1500, 6) } else { (100, 4) };
        for _ in 0..steps {
            change(&mut chance, enters, &mut scopes, &in_force, &mut listed);
            beyond += listed.beyond.min(1);
            assert_eq!(tags(&in_force).into_iter().collect::<BTreeMap<_, _>>(), listed.in_force(), "{listed:?}");
            assert_eq!(span(&in_force), listed.span(), "{listed:?}");
            let mut inherited = [0; MAX_TAG_BYTES];
            let length = scopes.of_scopes(&mut inherited);
            assert_eq!(by_key(&inherited[..length]).collect::<BTreeMap<_, _>>(), listed.of_scopes(), "{listed:?}");
        }
    }
    assert!(beyond > 1000, "hardly ever beyond the bound: {beyond}");
}
