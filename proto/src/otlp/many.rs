//! The elements of which a request has many, as fields.
//!
//! In: an element with what it refers to. Out: the fields of its message, the same as in that of [`elements`](super::elements).
//!
//! Source: opentelemetry-proto 1.10, profiles/v1development/profiles.proto.

use super::elements::index;
use super::fields::{Element, Fields};
use super::order::Orders;
use crate::model::{AttributeSet, AttributeSetId, Dictionary, Function, Line, Link, Location, Sample, Stack};

/// An element, the dictionary that it refers to, and the order of that.
pub(super) struct Of<'a, T>(pub(super) &'a T, pub(super) &'a Dictionary, pub(super) &'a Orders);

impl Element for Of<'_, Sample> {
    fn tell(&self, to: &mut impl Fields) {
        let Self(sample, dictionary, orders) = self;
        to.number(1, number(orders.stacks.number(sample.stack)));
        attributes(2, sample.attributes, dictionary, to);
        to.number(3, number(index(sample.link)));
        to.numbers(4, [sample.value.cast_unsigned()].into_iter());
    }
}

impl Element for Of<'_, Location> {
    fn tell(&self, to: &mut impl Fields) {
        let Self(location, dictionary, orders) = self;
        to.number(1, number(index(location.mapping)));
        to.number(2, location.address);
        location.lines.iter().for_each(|line| to.element(3, &Of(line, dictionary, orders)));
        attributes(4, location.attributes, dictionary, to);
    }
}

impl Element for Of<'_, Line> {
    /// The line before its function: locations stand by function, so that what is behind the line mostly is as in the one before, with all that follows.
    fn tell(&self, to: &mut impl Fields) {
        let Self(line, _, orders) = self;
        to.number(2, line.line.into());
        to.number(3, line.column.into());
        to.number(1, number(orders.functions.number(line.function)));
    }
}

impl Element for Of<'_, Function> {
    fn tell(&self, to: &mut impl Fields) {
        let Self(function, _, Orders { strings, .. }) = self;
        to.number(1, number(strings.number(function.name)));
        to.number(2, number(strings.number(function.system_name)));
        to.number(3, number(strings.number(function.filename)));
        to.number(4, function.start_line.into());
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

impl Element for Of<'_, Stack> {
    fn tell(&self, to: &mut impl Fields) {
        let Self(stack, _, Orders { locations, .. }) = self;
        to.numbers(1, stack.locations.iter().map(|id| number(locations.number(*id))));
    }
}

fn attributes(field: u8, set: AttributeSetId, dictionary: &Dictionary, to: &mut impl Fields) {
    let ids = dictionary.attribute_sets.get(set).map_or(&[][..], AttributeSet::ids);
    to.numbers(field, ids.iter().map(|id| number(index(*id))));
}

fn number(index: i32) -> u64 {
    index.unsigned_abs().into()
}
