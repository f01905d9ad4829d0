//! What stands in the attribute: tags, and by which path the SDK is reached.
//!
//! In: the tokens between its parentheses. Out: keys as string literals, values as expressions, or an error at the place
//! where it is wrong, which says what to write. Compile time.

use std::collections::HashSet;

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Ident, LitStr, Path, Result, Token, parse_quote};

/// The arguments of `#[tagged]`.
pub(crate) struct Arguments {
    /// The crate that has `Tags` and `Scope`.
    pub(crate) root: Path,
    /// At least one; no key twice.
    pub(crate) tags: Vec<Tag>,
}

/// One tag.
pub(crate) struct Tag {
    pub(crate) key: LitStr,
    pub(crate) value: Expr,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut root = parse_quote!(::profiler);
        let mut tags = Vec::new();
        let mut keys = HashSet::new();
        while !input.is_empty() {
            if input.peek(Token![crate]) {
                root = other_root(input)?;
            } else {
                let tag: Tag = input.parse()?;
                if !keys.insert(tag.key.value()) {
                    return Err(Error::new(tag.key.span(), format!("the tag `{}` is there twice", tag.key.value())));
                }
                tags.push(tag);
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        if tags.is_empty() {
            let text = "no tags; write them as `#[profiler::tagged(endpoint = \"/orders\", user = user.id)]`";
            return Err(Error::new(Span::call_site(), text));
        }
        Ok(Self { root, tags })
    }
}

/// `crate = some::path`.
fn other_root(input: ParseStream<'_>) -> Result<Path> {
    input.parse::<Token![crate]>()?;
    input.parse::<Token![=]>()?;
    input.call(Path::parse_mod_style)
}

impl Parse for Tag {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let key = key(input)?;
        let shown = key.value();
        if input.peek(Token![=>]) {
            return Err(input.error(format!("write `=` here: `{shown} = ...`")));
        }
        let without_value = || Error::new(key.span(), format!("no value for the tag `{shown}`; write `{shown} = ...`"));
        if !input.peek(Token![=]) {
            return Err(without_value());
        }
        input.parse::<Token![=]>()?;
        if input.is_empty() || input.peek(Token![,]) {
            return Err(without_value());
        }
        Ok(Self { value: input.parse()?, key })
    }
}

/// `name`, `name.with.dots`, or `"any text"`.
fn key(input: ParseStream<'_>) -> Result<LitStr> {
    if input.peek(LitStr) {
        let key: LitStr = input.parse()?;
        return match key.value().as_str() {
            "" => Err(Error::new(key.span(), "a tag needs a key that is not empty, such as `\"endpoint\"`")),
            _ => Ok(key),
        };
    }
    if !input.peek(Ident::peek_any) {
        return Err(input.error("a tag starts with its key: a name, names with dots, or a string literal"));
    }
    let first = input.call(Ident::parse_any)?;
    let mut text = first.unraw().to_string();
    while input.peek(Token![.]) {
        input.parse::<Token![.]>()?;
        text.push('.');
        text.push_str(&input.call(Ident::parse_any)?.unraw().to_string());
    }
    Ok(LitStr::new(&text, first.span()))
}

#[cfg(test)]
mod tests {
    use quote::{ToTokens, quote};

    use super::*;

    fn read(tokens: proc_macro2::TokenStream) -> Vec<(String, String)> {
        let arguments: Arguments = syn::parse2(tokens).unwrap();
        arguments.tags.iter().map(|tag| (tag.key.value(), tag.value.to_token_stream().to_string())).collect()
    }

    /// Check that keys are names, keywords, names with dots and literals, and that values are whole expressions.
    #[test]
    fn keys_and_values_are_read() {
        let tags = read(quote!(a = 1 + 2, r#type = x, http.method = request.method(), match = y, "d-e" = "f",));
        let expected =
            [("a", "1 + 2"), ("type", "x"), ("http.method", "request . method ()"), ("match", "y"), ("d-e", "\"f\"")];
        assert_eq!(tags, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    /// Check that the SDK can have another name.
    #[test]
    fn the_sdk_can_have_another_name() {
        let arguments: Arguments = syn::parse2(quote!(crate = a::b, c = 1)).unwrap();
        assert_eq!(arguments.root.to_token_stream().to_string(), "a :: b");
        assert_eq!(arguments.tags.len(), 1);
    }
}
