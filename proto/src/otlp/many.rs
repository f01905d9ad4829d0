//! The elements of which a request has many, as fields.
//!
//! In: an element with what it refers to. Out: the fields of its message, the same as in that of [`elements`](super::elements).
//!
//! Source: opentelemetry-proto 1.10, profiles/v1development/profiles.proto.

use super::by_place::ByPlace;
use super::elements::index;
use super::fields::{Element, Fields};
use crate::model::{AttributeSet, AttributeSetId, Dictionary, Function, Id, Line, Link, Location, Sample, Stack};

/// An element, and what it refers to.
pub(super) struct Of<'a, T, R = Dictionary>(pub(super) &'a T, pub(super) &'a R);

impl Element for Of<'_, Sample> {
    fn tell(&self, to: &mut impl Fields) {
        let Self(sample, dictionary) = self;
        to.number(1, number(sample.stack));
        attributes(2, sample.attributes, dictionary, to);
        to.number(3, number(sample.link));
        to.numbers(4, [sample.value.cast_unsigned()].into_iter());
    }
}

impl Element for Of<'_, Location> {
    fn tell(&self, to: &mut impl Fields) {
        let Self(location, dictionary) = self;
        to.number(1, number(location.mapping));
        to.number(2, location.address);
        location.lines.iter().for_each(|line| to.element(3, line));
        attributes(4, location.attributes, dictionary, to);
    }
}

impl Element for Line {
    fn tell(&self, to: &mut impl Fields) {
        to.number(1, number(self.function));
        to.number(2, self.line.into());
        to.number(3, self.column.into());
    }
}

impl Element for Function {
    fn tell(&self, to: &mut impl Fields) {
        to.number(1, number(self.name));
        to.number(2, number(self.system_name));
        to.number(3, number(self.filename));
        to.number(4, self.start_line.into());
    }
}

impl Element for Link {
    fn tell(&self, to: &mut impl Fields) {
        if *self != Self::default() {
            to.bytes(1, &self.trace_id);
            to.bytes(2, &self.span_id);
        }
    }
}

impl Element for Of<'_, Stack, ByPlace> {
    fn tell(&self, to: &mut impl Fields) {
        let Self(stack, locations) = self;
        to.numbers(1, stack.locations.iter().map(|id| locations.number(*id).unsigned_abs().into()));
    }
}

fn attributes(field: u8, set: AttributeSetId, dictionary: &Dictionary, to: &mut impl Fields) {
    let ids = dictionary.attribute_sets.get(set).map_or(&[][..], AttributeSet::ids);
    to.numbers(field, ids.iter().map(|id| number(*id)));
}

fn number(id: impl Id) -> u64 {
    index(id).unsigned_abs().into()
}
