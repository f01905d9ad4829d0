//! An ELF file read in pieces: headers, segments, notes, sections, symbols. Total: whatever stands in a file, an answer or an error.
