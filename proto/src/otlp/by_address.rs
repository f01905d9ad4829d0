//! The order in which locations stand in a request: by address. Neighbours share most bytes of theirs, and stacks of one function refer to numbers that
//! are close together, so that gzip finds more that was there before. What refers to a location does so by its place in that order.
//!
//! In: the locations of a dictionary. Out: their order, and the number that each has in it. The other tables stand as they are: to have them in the order of
//! the locations, too, would save another hundredth.

use super::elements::index;
use crate::model::{Id, Location, LocationId, Table};

/// Numbers of locations.
#[derive(Debug)]
pub(super) struct ByAddress {
    order: Vec<LocationId>,
    /// By the number that a location has in the dictionary.
    numbers: Vec<i32>,
}

impl ByAddress {
    /// Those of `locations`; element 0 stays where it is.
    pub(super) fn of(locations: &Table<Location, LocationId>) -> Self {
        let mut order: Vec<LocationId> = locations.entries().map(|(id, _)| id).collect();
        let place = |id: &LocationId| locations.get(*id).map(|location| (location.mapping, location.address));
        // A stable sort: those without an address keep their order, and so does the zero value at their head.
        order.sort_by_key(place);
        let mut numbers = vec![0; order.len()];
        for (place, id) in (0..).map(LocationId::from_index).zip(&order) {
            numbers[id.index() as usize] = index(place);
        }
        Self { order, numbers }
    }

    /// The locations in their order.
    pub(super) fn order(&self) -> impl Iterator<Item = LocationId> + '_ {
        self.order.iter().copied()
    }

    /// The number of a location in the request; 0, for "not set", of one of another dictionary.
    pub(super) fn number(&self, id: LocationId) -> i32 {
        self.numbers.get(id.index() as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MappingId;

    /// Check that locations come by mapping and address, that those without keep their order behind the zero value, and that each has the number of its place.
    #[test]
    fn locations_are_numbered_by_address() {
        let mut locations = Table::new();
        let line = |column| Box::from([crate::model::Line { column, ..Default::default() }]);
        let mut add = |mapping, address, column| {
            let (mapping, lines) = (MappingId::from_index(mapping), line(column));
            locations.intern(Location { mapping, address, lines, ..Location::default() })
        };
        let [late, other, first, early, second] =
            [(1, 9, 0), (2, 1, 0), (0, 0, 2), (1, 3, 0), (0, 0, 1)].map(|(m, a, c)| add(m, a, c));
        let by_address = ByAddress::of(&locations);
        assert_eq!(by_address.order().collect::<Vec<_>>(), [LocationId::ZERO, first, second, early, late, other]);
        let numbers = [LocationId::ZERO, first, second, early, late, other].map(|id| by_address.number(id));
        assert_eq!((numbers, by_address.number(LocationId::from_index(6))), ([0, 1, 2, 3, 4, 5], 0));
    }
}
