//! Locations, mappings and functions of a dictionary.
//!
//! In: addresses, what was loaded when they were taken, the symbols. Out: their ids; each is made once. Pure.

use std::sync::Arc;

use profiler_proto::hash::Map;
use profiler_proto::model::{Dictionary, Function, Line, Location, LocationId, Mapping, MappingId};

use crate::symbolize::{Language, Symbol, Symbolizer, file_id};
use crate::unwind::modules::{Module, Modules};

/// How finely places in the code are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Granularity {
    /// Each instruction is a place of its own, for who reads disassembly: profiles on demand.
    Addresses,
    /// Those of one line, with the same inlined calls, are one place, which has the address of the first that was met; where the build has no line tables, those of
    /// one function: what goes out all the time.
    Lines,
}

/// What is in the dictionary already.
pub(super) struct Places<'a> {
    symbolizer: &'a Symbolizer,
    /// What the addresses of each era are in.
    eras: &'a [Arc<Modules>],
    granularity: Granularity,
    /// By era, address, and how many functions inlined there are left out.
    locations: Map<(usize, u64, usize), LocationId>,
    /// By the module itself: where one was, another one may have been at another time.
    mappings: Map<*const Module, MappingId>,
}

impl<'a> Places<'a> {
    pub(super) fn new(symbolizer: &'a Symbolizer, eras: &'a [Arc<Modules>], granularity: Granularity) -> Self {
        Self { symbolizer, eras, granularity, locations: Map::default(), mappings: Map::default() }
    }

    /// A place in the code without so many of the functions inlined there, of which the last one stays.
    pub(super) fn location(
        &mut self,
        era: usize,
        address: u64,
        hidden: usize,
        dictionary: &mut Dictionary,
    ) -> LocationId {
        if let Some(known) = self.locations.get(&(era, address, hidden)) {
            return *known;
        }
        let symbol = self.symbol(era, address);
        let module = self.eras.get(era).and_then(|modules| modules.find(address));
        let mapping = module.map_or(MappingId::ZERO, |module| self.mapping(module, dictionary));
        let lines = lines(&symbol, hidden, dictionary);
        let frame_type = match symbol.language {
            Language::Rust => "rust",
            Language::Native => "native",
        };
        let frame_type = dictionary.attribute("profile.frame.type", frame_type);
        let attributes = dictionary.attribute_set([frame_type]);
        let address = match (self.granularity, module) {
            (Granularity::Lines, Some(module)) => module.bias.wrapping_add(symbol.first),
            _ => address,
        };
        let id = dictionary.locations.intern(Location { mapping, address, lines, attributes });
        self.locations.insert((era, address, hidden), id);
        id
    }

    /// What is known of an address.
    pub(super) fn symbol(&self, era: usize, address: u64) -> Arc<Symbol> {
        let nothing = Modules::default();
        self.symbolizer.symbol(address, self.eras.get(era).map_or(&nothing, Arc::as_ref))
    }

    fn mapping(&mut self, module: &Module, dictionary: &mut Dictionary) -> MappingId {
        if let Some(known) = self.mappings.get(&std::ptr::from_ref(module)) {
            return *known;
        }
        let build_id = match module.build_id.as_deref() {
            Some(id) => Some(("process.executable.build_id.gnu", id)),
            None => file_id(module).map(|id| ("process.executable.build_id.htlhash", id)),
        };
        // What is referred to first is made first: what is sent is compact then, and needs no copy.
        let filename = dictionary.strings.intern_str(&module.name);
        let build_id = build_id.map(|(key, id)| dictionary.attribute(key, id));
        let mapping = Mapping {
            start: module.code.start,
            limit: module.code.end,
            offset: module.code_offset,
            filename,
            attributes: dictionary.attribute_set(build_id),
        };
        let id = dictionary.mappings.intern(mapping);
        self.mappings.insert(module, id);
        id
    }
}

fn lines(symbol: &Symbol, hidden: usize, dictionary: &mut Dictionary) -> Box<[Line]> {
    let line = |frame: &crate::symbolize::Frame| {
        let system_name = match symbol.language {
            // It says the same again, with a hash that nobody reads and that does not compress: a quarter of a request. Which of
            // several functions of a name it was, address and build id tell.
            Language::Rust => "",
            Language::Native => &frame.system_name,
        };
        let strings = &mut dictionary.strings;
        let function = Function {
            name: strings.intern_str(&frame.name),
            system_name: strings.intern_str(system_name),
            filename: strings.intern_str(&frame.file),
            start_line: 0,
        };
        Line { function: dictionary.functions.intern(function), line: frame.line, column: frame.column }
    };
    symbol.frames.iter().skip(hidden).map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::symbolize::Frame;

    fn frame(name: &str, system_name: &str, line: u32) -> Frame {
        Frame { name: name.into(), system_name: system_name.into(), line, ..Frame::default() }
    }

    fn symbol(frames: &[Frame]) -> Symbol {
        Symbol { frames: frames.into(), language: Language::Rust, first: 0 }
    }

    /// Check that a function of Rust has its name once, and one of another language that which the linker knows, too.
    #[test]
    fn functions_of_rust_have_one_name() {
        let mut dictionary = Dictionary::default();
        let mut told = |language| {
            let frames = Box::new([frame("shop::total", "_ZN4shop5totalEv", 0)]);
            let lines = lines(&Symbol { frames, language, first: 0 }, 0, &mut dictionary);
            let function = *dictionary.functions.get(lines[0].function).unwrap();
            [function.name, function.system_name].map(|id| dictionary.strings.text(id).to_owned())
        };
        assert_eq!(told(Language::Rust), ["shop::total", ""]);
        assert_eq!(told(Language::Native), ["shop::total", "_ZN4shop5totalEv"]);
    }

    /// Check which instructions are one place: those of one line with the same inlined calls, and without lines those of one function, by the linker's name.
    /// Told by address, each is a place of its own, as is what has no module.
    #[test]
    fn instructions_of_a_line_are_one_place() {
        const START: u64 = 0x10_0000;
        let modules = Modules::only(Module::at(START, "aa"));
        let (seven, eight) = (frame("total", "_total1", 7), frame("total", "_total1", 8));
        let inlined = [frame("sum", "", 3), seven.clone()];
        let without_lines = [frame("name", "_name1", 0), frame("name", "_name2", 0)];
        let symbols = [
            symbol(slice::from_ref(&seven)),
            symbol(slice::from_ref(&seven)),
            symbol(&[eight]),
            symbol(&inlined),
            symbol(&inlined),
            symbol(&without_lines[..1]),
            symbol(&without_lines[..1]),
            symbol(&without_lines[1..]),
        ];
        let addresses = || START + 0x1000..START + 0x1008;
        let elsewhere = [1, 2];
        let of_nothing = symbol(&[frame("jit", "", 0)]);
        let known = addresses()
            .zip(symbols)
            .map(|(address, symbol)| (address, Symbol { first: address - START, ..symbol }))
            .chain(elsewhere.map(|address| (address, of_nothing.clone())));
        let symbolizer = Symbolizer::knowing(known, &modules);
        let eras = [Arc::new(modules)];
        let told = |granularity| {
            let (mut places, mut dictionary) = (Places::new(&symbolizer, &eras, granularity), Dictionary::default());
            let ids = addresses().chain(elsewhere).map(|address| places.location(0, address, 0, &mut dictionary));
            let ids: Vec<_> = ids.collect();
            ids.into_iter().map(|id| dictionary.locations.get(id).unwrap().address).collect::<Vec<_>>()
        };
        assert_eq!(told(Granularity::Addresses), addresses().chain(elsewhere).collect::<Vec<_>>());
        let first = [0, 0, 2, 3, 3, 5, 5, 7].map(|offset| START + 0x1000 + offset);
        assert_eq!(told(Granularity::Lines), first.into_iter().chain(elsewhere).collect::<Vec<_>>());
    }
}
