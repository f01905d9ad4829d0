//! In which form requests are made: which OTLP, which HTTP, compressed how.
//!
//! Names that settings and those who send share; nothing is done here.

/// How request bodies are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Compression {
    /// gzip (RFC 1952), which every receiver of OTLP takes.
    #[default]
    Gzip,
    /// Not at all.
    None,
}

/// The two forms of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Grpc,
    Http,
}

/// The version of HTTP that a peer is spoken to in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
}
