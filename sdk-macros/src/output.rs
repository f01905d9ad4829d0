//! What a function that is not async hands out: a value, or a future or a stream whose work is still to come.
//!
//! In: the type behind `->`, of which only the names can be known. Out: how the tags get to the work that is still to
//! come, and the type as it can be written inside the body. Compile time.

use proc_macro2::{Delimiter, Group, Ident, Spacing, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::punctuated::Punctuated;
use syn::{GenericArgument, PathArguments, PathSegment, ReturnType, Token, Type, TypeGroup, TypeParamBound, TypeParen};

/// Work that is still to come when the function returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Later {
    /// The trait that puts tags on it.
    pub(crate) extension: &'static str,
    /// Whether it comes in a `Pin<Box<_>>`.
    pub(crate) boxed: bool,
}

/// Finds out whether there is work still to come.
pub(crate) fn later(output: &ReturnType) -> Option<Later> {
    let ReturnType::Type(_, output) = output else { return None };
    let output = bare(output);
    if let Type::ImplTrait(opaque) = output {
        return Some(Later { extension: of_bounds(&opaque.bounds)?, boxed: false });
    }
    let segment = last_segment(output)?;
    let extension = match segment.ident.to_string().as_str() {
        "BoxFuture" | "LocalBoxFuture" => FUTURE,
        "BoxStream" | "LocalBoxStream" => STREAM,
        "Pin" => match argument(argument(output, "Pin")?, "Box")? {
            Type::TraitObject(object) => of_bounds(&object.bounds)?,
            Type::ImplTrait(opaque) => of_bounds(&opaque.bounds)?,
            _ => return None,
        },
        _ => return None,
    };
    Some(Later { extension, boxed: true })
}

const FUTURE: &str = "FutureExt";
const STREAM: &str = "StreamExt";

/// `Future<Output = T> + Send + 'a`: which of the two it is.
fn of_bounds(bounds: &Punctuated<TypeParamBound, Token![+]>) -> Option<&'static str> {
    bounds.iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else { return None };
        match bound.path.segments.last()?.ident.to_string().as_str() {
            "Future" => Some(FUTURE),
            "Stream" => Some(STREAM),
            _ => None,
        }
    })
}

/// A type without what is around it: parentheses, or what stands for none where a macro wrote the type (`$returned:ty`).
fn bare(mut whole: &Type) -> &Type {
    while let Type::Paren(TypeParen { elem, .. }) | Type::Group(TypeGroup { elem, .. }) = whole {
        whole = elem;
    }
    whole
}

fn last_segment(whole: &Type) -> Option<&PathSegment> {
    let Type::Path(path) = whole else { return None };
    path.path.segments.last()
}

/// The `T` of `some::name<T>`.
fn argument<'t>(whole: &'t Type, name: &str) -> Option<&'t Type> {
    let segment = last_segment(whole).filter(|segment| segment.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(argument) => Some(bare(argument)),
        _ => None,
    }
}

/// The type for use inside the body, where `impl Trait` cannot be written: `_` takes its place. `None` for `!`.
pub(crate) fn written_inside(output: &ReturnType) -> Option<TokenStream> {
    match output {
        ReturnType::Default => Some(quote!(())),
        ReturnType::Type(_, output) if matches!(bare(output), Type::Never(_)) => None,
        ReturnType::Type(_, output) => Some(without_impl(output.to_token_stream())),
    }
}

fn without_impl(tokens: TokenStream) -> TokenStream {
    let mut kept = TokenStream::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if word == "impl" => {
                kept.extend([TokenTree::from(Ident::new("_", Span::mixed_site()))]);
                let mut depth = 0_usize;
                let mut arrow = false;
                while let Some(token) = tokens.next_if(|token| !ends_bounds(token, depth, arrow)) {
                    (depth, arrow) = behind(&token, depth, arrow);
                }
            }
            TokenTree::Group(group) if group.delimiter() != Delimiter::Brace => {
                let mut inside = Group::new(group.delimiter(), without_impl(group.stream()));
                inside.set_span(group.span());
                kept.extend([TokenTree::from(inside)]);
            }
            other => kept.extend([other]),
        }
    }
    kept
}

/// Whether the bounds of an `impl` end before this token: at a comma, at the `;` of an array, or at a `>` that none of their own `<` opened.
fn ends_bounds(token: &TokenTree, depth: usize, arrow: bool) -> bool {
    match token {
        TokenTree::Punct(mark) => {
            depth == 0 && (matches!(mark.as_char(), ',' | ';') || mark.as_char() == '>' && !arrow)
        }
        _ => false,
    }
}

/// How many `<` are open behind this token, and whether it is the first half of `->`.
fn behind(token: &TokenTree, depth: usize, arrow: bool) -> (usize, bool) {
    let TokenTree::Punct(mark) = token else { return (depth, false) };
    match mark.as_char() {
        '<' => (depth + 1, false),
        '>' if !arrow => (depth.saturating_sub(1), false),
        '-' => (depth, mark.spacing() == Spacing::Joint),
        _ => (depth, false),
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    /// Check that futures and streams are known by their names, boxed or not, and other things for what they are.
    #[test]
    fn work_still_to_come_is_known_by_name() {
        let of = |output: ReturnType| later(&output).map(|later| (later.extension, later.boxed));
        assert_eq!(of(parse_quote!(-> impl Future<Output = u8> + Send + 'a)), Some((FUTURE, false)));
        assert_eq!(of(parse_quote!(-> impl Send + std::future::Future<Output = ()>)), Some((FUTURE, false)));
        assert_eq!(
            of(parse_quote!(-> ::core::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>)),
            Some((FUTURE, true))
        );
        assert_eq!(of(parse_quote!(-> Pin<Box<impl Stream>>)), Some((STREAM, true)));
        assert_eq!(of(parse_quote!(-> futures::future::BoxFuture<'a, u8>)), Some((FUTURE, true)));
        assert_eq!(of(parse_quote!(-> BoxStream<'a, u8>)), Some((STREAM, true)));
        assert_eq!(of(parse_quote!(-> Pin<&mut u8>)), None);
        assert_eq!(of(parse_quote!(-> Option<Box<dyn Future<Output = ()>>>)), None);
        assert_eq!(of(parse_quote!()), None);
        assert_eq!(of(parse_quote!(-> (Pin<Box<(dyn Future<Output = u8> + Send)>>))), Some((FUTURE, true)));
        assert_eq!(of(parse_quote!(-> (impl Stream + Send))), Some((STREAM, false)));
    }

    /// Check that what cannot be written in a body is left to the compiler to find, and nothing else is.
    #[test]
    fn opaque_types_are_left_open() {
        let inside = |output: ReturnType| written_inside(&output).map(|tokens| tokens.to_string().replace(' ', ""));
        let as_written = |tokens: TokenStream| Some(tokens.to_string().replace(' ', ""));
        assert_eq!(inside(parse_quote!()), as_written(quote!(())));
        assert_eq!(inside(parse_quote!(-> !)), None);
        assert_eq!(inside(parse_quote!(-> Result<&'a [u8; 4], E>)), as_written(quote!(Result<&'a [u8; 4], E>)));
        assert_eq!(
            inside(parse_quote!(-> Result<impl Fn(u8) -> Vec<u8> + 'a, Box<dyn Error>>)),
            as_written(quote!(Result<_, Box<dyn Error>>))
        );
        assert_eq!(inside(parse_quote!(-> (u8, impl Iterator<Item = u8>))), as_written(quote!((u8, _))));
        assert_eq!(inside(parse_quote!(-> [impl Display + 'a; 2])), as_written(quote!([_; 2])));
    }
}
