//! The order in which the tables of a request stand: one in which neighbours have much in common, so that gzip finds more that was there before.
//!
//! * Functions stand by file and line, and locations by address, or by function and line where they have none: neighbours share most bytes of what they refer to.
//! * Strings: the files, and then the functions' names, both in the order of the functions, so that each refers to the next; then all others.
//! * Stacks stand by their path from the root, with who calls others before the leaves: neighbours share their callers.
//!
//! In: a dictionary. Out: for each of these tables its order, and the number that each element has in it. What refers to an element does so by that number. All
//! other tables stand as they are, and so do samples: their order is that of whoever made the profile.

use super::elements::index;
use crate::model::{Dictionary, Function, FunctionId, Id, Location, LocationId, Stack, StackId, StringId, Table};
use crate::paths;

/// The orders of a dictionary's tables.
#[derive(Debug)]
pub(super) struct Orders {
    pub(super) strings: Order<StringId>,
    pub(super) functions: Order<FunctionId>,
    pub(super) locations: Order<LocationId>,
    pub(super) stacks: Order<StackId>,
}

impl Orders {
    pub(super) fn of(dictionary: &Dictionary) -> Self {
        let functions = functions(dictionary);
        let locations = locations(&dictionary.locations, &functions);
        Self {
            strings: strings(dictionary, &functions),
            stacks: stacks(&dictionary.stacks, &locations),
            functions,
            locations,
        }
    }
}

/// The order of a table. Element 0 is its first: strings begin with it, and in the others it has the least key of all, of which those that are equal keep their order.
#[derive(Debug)]
pub(super) struct Order<I> {
    ids: Vec<I>,
    /// By the number that an element has in the dictionary.
    numbers: Vec<i32>,
}

impl<I: Id> Order<I> {
    fn new(ids: Vec<I>) -> Self {
        debug_assert!(ids.first().is_none_or(|first| first.index() == 0), "element 0 is the zero value");
        let mut numbers = vec![0; ids.len()];
        for (place, id) in (0..).map(I::from_index).zip(&ids) {
            numbers[id.index() as usize] = index(place);
        }
        Self { ids, numbers }
    }

    /// The elements in their order.
    pub(super) fn ids(&self) -> impl Iterator<Item = I> + '_ {
        self.ids.iter().copied()
    }

    /// The number of an element in the request; 0, for "not set", of one of another dictionary.
    pub(super) fn number(&self, id: I) -> i32 {
        self.numbers.get(id.index() as usize).copied().unwrap_or(0)
    }
}

fn functions(dictionary: &Dictionary) -> Order<FunctionId> {
    let files = files(dictionary);
    let mut ids: Vec<FunctionId> = dictionary.functions.entries().map(|(id, _)| id).collect();
    let place = |function: &Function| (files.get(function.filename.index() as usize), function.start_line);
    ids.sort_by_key(|id| dictionary.functions.get(*id).map(place));
    Order::new(ids)
}

/// The place of each string that is a file among those, by its text; 0 of all others, and of no file. Each text is compared as one of them, not once for each of its
/// functions: one that was received may be of megabytes.
fn files(dictionary: &Dictionary) -> Vec<u32> {
    let mut files: Vec<StringId> = dictionary.functions.iter().map(|function| function.filename).collect();
    files.sort_unstable();
    files.dedup();
    files.sort_by_key(|id| dictionary.strings.text(*id));
    let mut places = vec![0; dictionary.strings.len()];
    (0..).zip(files).for_each(|(place, id)| {
        if let Some(of_id) = places.get_mut(id.index() as usize) {
            *of_id = place;
        }
    });
    places
}

fn strings(dictionary: &Dictionary, functions: &Order<FunctionId>) -> Order<StringId> {
    let in_order = || functions.ids().filter_map(|id| dictionary.functions.get(id));
    let files = in_order().map(|function| function.filename);
    let names = in_order().flat_map(|function| [function.name, function.system_name]);
    let all =
        (0..dictionary.strings.len()).filter_map(|number| Some(StringId::from_index(u32::try_from(number).ok()?)));
    let mut is_there = vec![false; dictionary.strings.len()];
    let is_new =
        |id: &StringId| is_there.get_mut(id.index() as usize).is_some_and(|there| !std::mem::replace(there, true));
    Order::new([StringId::ZERO].into_iter().chain(files).chain(names).chain(all).filter(is_new).collect())
}

fn locations(table: &Table<Location, LocationId>, functions: &Order<FunctionId>) -> Order<LocationId> {
    let mut ids: Vec<LocationId> = table.entries().map(|(id, _)| id).collect();
    // Of inlined functions, the last one is what the others are in.
    let line = |location: &Location| location.lines.last().map(|line| (functions.number(line.function), line.line));
    ids.sort_by_key(|id| table.get(*id).map(|location| (location.mapping, location.address, line(location))));
    Order::new(ids)
}

fn stacks(table: &Table<Stack, StackId>, locations: &Order<LocationId>) -> Order<StackId> {
    let stacks: Vec<&Stack> = table.iter().collect();
    let places = paths::places(stacks.len(), |stack, depth| {
        let left = stacks[stack].locations.len().checked_sub(depth + 1)?;
        Some((left == 0, locations.number(stacks[stack].locations[left])))
    });
    let mut ids = vec![StackId::ZERO; stacks.len()];
    (0..).map(StackId::from_index).zip(places).for_each(|(id, place)| ids[place as usize] = id);
    Order::new(ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Line, MappingId};

    fn texts<'a>(dictionary: &'a Dictionary, orders: &'a Orders) -> Vec<&'a str> {
        orders.strings.ids().map(|id| dictionary.strings.text(id)).collect()
    }

    fn function(dictionary: &mut Dictionary, name: &str, file: &str, start_line: u32) -> FunctionId {
        let [name, filename] = [name, file].map(|text| dictionary.strings.intern_str(text));
        dictionary.functions.intern(Function { name, filename, start_line, ..Function::default() })
    }

    /// Check that however many functions are in a file of a long name, its text is not compared for each of them.
    #[test]
    fn a_long_name_of_a_file_costs_little() {
        let mut dictionary = Dictionary::default();
        let filename = dictionary.strings.intern_str(&"a".repeat(16 << 20));
        for number in 1..50_000_u32 {
            let start_line = number.wrapping_mul(2_654_435_761);
            dictionary.functions.intern(Function { filename, start_line, ..Function::default() });
        }
        // To compare the text each time would take longer than anybody waits.
        assert_eq!(Orders::of(&dictionary).functions.ids().count(), 50_000);
    }

    /// Check that functions stand by file and line, equal ones in their order; that files and names come first among the strings, in that order, each once; and that
    /// the zero values stay where they are.
    #[test]
    fn functions_stand_by_file_and_line() {
        let mut dictionary = Dictionary::default();
        dictionary.strings.intern_str("samples");
        let late = function(&mut dictionary, "late", "b.go", 9);
        let (early, same) =
            (function(&mut dictionary, "early", "b.go", 3), function(&mut dictionary, "same", "b.go", 3));
        let first = function(&mut dictionary, "b.go", "a.go", 20);
        let bare = function(&mut dictionary, "bare", "", 0);
        let orders = Orders::of(&dictionary);
        let wanted = [FunctionId::ZERO, bare, first, early, same, late];
        assert_eq!(orders.functions.ids().collect::<Vec<_>>(), wanted);
        assert_eq!(wanted.map(|id| orders.functions.number(id)), [0, 1, 2, 3, 4, 5]);
        assert_eq!(orders.functions.number(FunctionId::from_index(6)), 0);
        assert_eq!(texts(&dictionary, &orders), ["", "a.go", "b.go", "bare", "early", "same", "late", "samples"]);
    }

    /// Check that locations come by mapping and address, those without by function and line, equal ones in their order, behind the zero value, and that each has the number of
    /// its place.
    #[test]
    fn locations_stand_by_place() {
        let mut dictionary = Dictionary::default();
        let functions = [("z", 1), ("y", 2)].map(|(file, line)| function(&mut dictionary, "f", file, line));
        let mut add = |mapping, address, lines: &[(Option<usize>, u32, u32)]| {
            let line = |(number, line, column): &(Option<usize>, _, _)| Line {
                function: number.map_or(FunctionId::ZERO, |number| functions[number]),
                line: *line,
                column: *column,
            };
            let (mapping, lines) = (MappingId::from_index(mapping), lines.iter().map(line).collect());
            dictionary.locations.intern(Location { mapping, address, lines, ..Location::default() })
        };
        let late = add(1, 9, &[(None, 0, 0)]);
        let (below, inlined, above) =
            (add(1, 0, &[(Some(0), 5, 0)]), add(1, 0, &[(None, 9, 0), (Some(1), 7, 0)]), add(1, 0, &[(Some(1), 6, 0)]));
        let other = add(2, 1, &[(None, 0, 0)]);
        let (first, early, second) =
            (add(0, 0, &[(None, 0, 2)]), add(1, 3, &[(None, 0, 0)]), add(0, 0, &[(None, 0, 1)]));
        let orders = Orders::of(&dictionary);
        let wanted = [LocationId::ZERO, first, second, above, inlined, below, early, late, other];
        assert_eq!(orders.locations.ids().collect::<Vec<_>>(), wanted);
        assert_eq!(wanted.map(|id| orders.locations.number(id)), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    /// Check that stacks stand by their path from the root, whoever calls others before the leaves of the same caller.
    #[test]
    fn stacks_stand_by_their_path_from_the_root() {
        let mut dictionary = Dictionary::default();
        let locations: Vec<LocationId> =
            (1..5).map(|address| dictionary.locations.intern(Location { address, ..Location::default() })).collect();
        let mut add = |path: &[usize]| {
            let locations = path.iter().rev().map(|number| locations[*number]).collect();
            dictionary.stacks.intern(Stack { locations })
        };
        let leaf = add(&[0, 1]);
        let (deep, deeper, other) = (add(&[0, 2, 3]), add(&[0, 1, 3]), add(&[1, 0]));
        let root = add(&[0]);
        let orders = Orders::of(&dictionary);
        let wanted = [StackId::ZERO, deeper, deep, leaf, other, root];
        assert_eq!(orders.stacks.ids().collect::<Vec<_>>(), wanted);
    }
}
