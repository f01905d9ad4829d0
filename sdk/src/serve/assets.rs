//! The page's files, part of the program: the page needs no network but the address that it came from.
//!
//! In: a path. Out: the file, with a tag by which a browser knows whether it has it already. The list stands here, for a
//! program has no folder to look into; a test compares the two.

use http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::reply::Reply;

macro_rules! files {
    ($($name:literal)*) => {
        /// Names and contents of the page's files.
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("page/", $name))),)*];
    };
}

files! {
    "index.html" "page.css"
    "colours.js" "data.js" "details.js" "dom.js" "feed.js" "filters.js" "flame.js" "focus.js" "format.js" "header.js" "hook.js" "keys.js"
    "layout.js" "main.js" "menu.js" "names.js" "path.js" "processes.js" "reshape.js" "search.js" "state.js" "table.js" "traces.js" "types.js"
}

/// The file at a path, `/` being the page itself; `None` if there is none.
pub(super) fn find(path: &str, request: &HeaderMap) -> Option<Reply> {
    let name = match path {
        "/" => "index.html",
        path => path.strip_prefix('/')?,
    };
    let (name, body) = FILES.iter().find(|(known, _)| *known == name)?;
    let tag = HeaderValue::from_str(&tag_of(body)).ok()?;
    let known = request.get_all(IF_NONE_MATCH).iter().any(|value| has_tag(value, &tag));
    let reply =
        Reply::compressible(content_type(name), *body).with(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    let reply = reply.with(ETAG, tag);
    Some(if known { reply.bare(StatusCode::NOT_MODIFIED) } else { reply })
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "html")) => "text/html; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        _ => "text/javascript; charset=utf-8",
    }
}

/// Whether a list of tags holds `tag`, or is `*` (RFC 9110 §13.1.2).
fn has_tag(list: &HeaderValue, tag: &HeaderValue) -> bool {
    list.to_str().is_ok_and(|list| list.split(',').any(|known| known.trim() == "*" || known.trim() == tag))
}

/// A tag made of the content (FNV-1a); weak, for it is the same whether the body is compressed or not.
fn tag_of(body: &str) -> String {
    let hash =
        body.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    format!("W/\"{hash:016x}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the list holds every file of the folder, and that each is found under its name.
    #[test]
    fn every_file_of_the_page_is_listed() {
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/serve/page")).unwrap();
        let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort_unstable();
        let mut listed: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        listed.sort_unstable();
        assert_eq!(listed, names);
        assert!(listed.iter().all(|name| find(&format!("/{name}"), &HeaderMap::new()).is_some()));
        assert!(find("/", &HeaderMap::new()).is_some());
        assert!(find("/../mod.rs", &HeaderMap::new()).is_none());
    }

    /// Check that a tag is recognised in a list, and that another is not.
    #[test]
    fn a_tag_is_recognised() {
        let tag = HeaderValue::from_static("W/\"1\"");
        assert!(has_tag(&HeaderValue::from_static("\"0\", W/\"1\""), &tag));
        assert!(has_tag(&HeaderValue::from_static("*"), &tag));
        assert!(!has_tag(&HeaderValue::from_static("W/\"11\""), &tag));
    }
}
