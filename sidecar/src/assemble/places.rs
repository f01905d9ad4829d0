//! Locations, mappings and functions of a dictionary.
//!
//! In: locations as naming knows them. Out: their ids; each is made once. Pure.

use std::sync::Arc;

use profiler_proto::hash::Map;
use profiler_proto::model::{Dictionary, Function, Line, Location, LocationId, Mapping, MappingId};

use crate::naming::{self, Granularity};

/// What is in the dictionary already, by where naming keeps it: what is asked for lives as long as the window.
#[derive(Debug, Default)]
pub(super) struct Places {
    granularity: Granularity,
    locations: Map<usize, LocationId>,
    mappings: Map<usize, MappingId>,
}

impl Places {
    pub(super) fn new(granularity: Granularity) -> Self {
        Self { granularity, ..Self::default() }
    }

    /// The id of a location.
    pub(super) fn location(&mut self, location: &Arc<naming::Location>, dictionary: &mut Dictionary) -> LocationId {
        let place = Arc::as_ptr(location).addr();
        if let Some(known) = self.locations.get(&place) {
            return *known;
        }
        let naming::Place { module, address, .. } = location.place(self.granularity);
        let mapping = module.map_or(MappingId::ZERO, |module| self.mapping(module, dictionary));
        let lines: Box<[Line]> = location.lines.iter().map(|line| line_of(line, dictionary)).collect();
        let kind = location.kind.name().map(|name| dictionary.attribute("profile.frame.type", name));
        let attributes = dictionary.attribute_set(kind);
        let id = dictionary.locations.intern(Location { mapping, address, lines, attributes });
        self.locations.insert(place, id);
        id
    }

    /// The id of a mapping.
    fn mapping(&mut self, module: &Arc<naming::Module>, dictionary: &mut Dictionary) -> MappingId {
        let place = Arc::as_ptr(module).addr();
        if let Some(known) = self.mappings.get(&place) {
            return *known;
        }
        let filename = dictionary.strings.intern_str(&module.path);
        let ids: Vec<_> = module.build_ids.iter().map(|(kind, id)| dictionary.attribute(kind.key(), &**id)).collect();
        let mapping = Mapping {
            start: module.start,
            limit: module.end,
            offset: module.offset,
            filename,
            attributes: dictionary.attribute_set(ids),
        };
        let id = dictionary.mappings.intern(mapping);
        self.mappings.insert(place, id);
        id
    }
}

fn line_of(line: &naming::Line, dictionary: &mut Dictionary) -> Line {
    let strings = &mut dictionary.strings;
    let function = Function {
        name: strings.intern_str(&line.function.name),
        system_name: strings.intern_str(&line.function.system_name),
        filename: strings.intern_str(&line.function.file),
        start_line: line.function.start_line,
    };
    Line { function: dictionary.functions.intern(function), line: line.line, column: 0 }
}
