//! The order in which locations stand in a request: by address, and where they have none, by function and line. Neighbours share most bytes of theirs, and stacks of one
//! function refer to numbers that are close together, so that gzip finds more that was there before. What refers to a location does so by its place in that order.
//!
//! In: the locations of a dictionary. Out: their order, and the number that each has in it. The other tables stand as they are: to have them in the order of
//! the locations, too, would save another hundredth.

use super::elements::index;
use crate::model::{Id, Location, LocationId, Table};

/// Numbers of locations.
#[derive(Debug)]
pub(super) struct ByPlace {
    order: Vec<LocationId>,
    /// By the number that a location has in the dictionary.
    numbers: Vec<i32>,
}

impl ByPlace {
    /// Those of `locations`; element 0 stays where it is.
    pub(super) fn of(locations: &Table<Location, LocationId>) -> Self {
        let mut order: Vec<LocationId> = locations.entries().map(|(id, _)| id).collect();
        // Of inlined functions, the last one is what the others are in.
        let lines = |location: &Location| location.lines.last().map(|line| (line.function, line.line));
        let place =
            |id: &LocationId| locations.get(*id).map(|location| (location.mapping, location.address, lines(location)));
        // A stable sort: equal ones keep their order. The zero value is at their head.
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
    use crate::model::{FunctionId, Line, MappingId};

    /// Check that locations come by mapping and address, those without by function and line, equal ones in their order, behind the zero value, and that each has the number of
    /// its place.
    #[test]
    fn locations_are_numbered_by_place() {
        let mut locations = Table::new();
        let mut add = |mapping, address, lines: &[(u32, u32, u32)]| {
            let line = |(function, line, column): &_| Line {
                function: FunctionId::from_index(*function),
                line: *line,
                column: *column,
            };
            let (mapping, lines) = (MappingId::from_index(mapping), lines.iter().map(line).collect());
            locations.intern(Location { mapping, address, lines, ..Location::default() })
        };
        let late = add(1, 9, &[(0, 0, 0)]);
        let (below, inlined, above) =
            (add(1, 0, &[(2, 5, 0)]), add(1, 0, &[(9, 9, 0), (1, 7, 0)]), add(1, 0, &[(1, 6, 0)]));
        let other = add(2, 1, &[(0, 0, 0)]);
        let (first, early, second) = (add(0, 0, &[(0, 0, 2)]), add(1, 3, &[(0, 0, 0)]), add(0, 0, &[(0, 0, 1)]));
        let by_place = ByPlace::of(&locations);
        let wanted = [LocationId::ZERO, first, second, above, inlined, below, early, late, other];
        assert_eq!(by_place.order().collect::<Vec<_>>(), wanted);
        assert_eq!(wanted.map(|id| by_place.number(id)), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(by_place.number(LocationId::from_index(9)), 0);
    }
}
