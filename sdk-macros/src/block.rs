//! An async block that is all that a body has, as `#[async_trait]` writes it: `Box::pin(async move { ... })`.
//!
//! In: the statements of a function that hands out a future. Out: the block, which then takes the tags itself and is boxed
//! once, and what boxes it. Compile time.

use std::collections::HashSet;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::quote_spanned;

/// A block, and what boxes it.
pub(crate) struct OnlyBlock {
    /// `Box::pin`, by the path that was written.
    pub(crate) pin: Option<TokenStream>,
    /// `async move { ... }`.
    pub(crate) block: TokenStream,
}

impl OnlyBlock {
    /// The block of these statements, if they are nothing else; `boxed` says whether it is to be in a box.
    pub(crate) fn of(statements: &TokenStream, boxed: bool) -> Option<Self> {
        if !boxed {
            return is_async_block(statements).then(|| Self { pin: None, block: statements.clone() });
        }
        let mut path: Vec<TokenTree> = statements.clone().into_iter().collect();
        let TokenTree::Group(arguments) = path.pop()? else { return None };
        let is_call = arguments.delimiter() == Delimiter::Parenthesis && is_box_pin(&path);
        let block = arguments.stream();
        (is_call && is_async_block(&block)).then(|| Self { pin: Some(path.into_iter().collect()), block })
    }

    /// Takes arguments for used that the tags use: `#[async_trait]` begins the block with a `let name = name;` for each, and the compiler
    /// would say of these that nobody uses them.
    pub(crate) fn use_bindings(self, names: &HashSet<String>) -> Self {
        let mut tokens: Vec<_> = self.block.into_iter().collect();
        if let Some(TokenTree::Group(body)) = tokens.pop() {
            let mut used = Group::new(body.delimiter(), with_uses(body.stream(), names));
            used.set_span(body.span());
            tokens.push(used.into());
        }
        Self { block: tokens.into_iter().collect(), ..self }
    }
}

/// `Box::pin`, `::std::boxed::Box::pin` and the like.
fn is_box_pin(path: &[TokenTree]) -> bool {
    let mut names = Vec::new();
    for token in path {
        match token {
            TokenTree::Ident(name) => names.push(name.to_string()),
            TokenTree::Punct(mark) if mark.as_char() == ':' => {}
            _ => return false,
        }
    }
    names.ends_with(&["Box".to_owned(), "pin".to_owned()])
}

/// `async { ... }` or `async move { ... }`, and nothing else.
fn is_async_block(tokens: &TokenStream) -> bool {
    let tokens: Vec<_> = tokens.clone().into_iter().collect();
    let [words @ .., TokenTree::Group(block)] = &tokens[..] else { return false };
    let words: Vec<_> = words.iter().map(ToString::to_string).collect();
    (words == ["async"] || words == ["async", "move"]) && block.delimiter() == Delimiter::Brace
}

fn with_uses(statements: TokenStream, names: &HashSet<String>) -> TokenStream {
    let mut kept: Vec<TokenTree> = Vec::new();
    for token in statements {
        let ends = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == ';');
        let bound = ends.then(|| bound_to_itself(&kept).filter(|name| names.contains(&name.to_string()))).flatten();
        kept.push(token);
        if let Some(name) = bound {
            kept.extend(quote_spanned!(Span::mixed_site()=> let _ = &#name;));
        }
    }
    kept.into_iter().collect()
}

/// The name in `let name = name` or `let mut name = name`, at the end of these tokens.
fn bound_to_itself(tokens: &[TokenTree]) -> Option<Ident> {
    let [head @ .., TokenTree::Ident(name), TokenTree::Punct(equals), TokenTree::Ident(from)] = tokens else {
        return None;
    };
    let words: Vec<_> = head.iter().rev().take(2).map(ToString::to_string).collect();
    let bound = matches!(words.iter().map(String::as_str).collect::<Vec<_>>()[..], ["let", ..] | ["mut", "let"]);
    (bound && equals.as_char() == '=' && name == from).then(|| name.clone())
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    /// Check that only a block and nothing else counts.
    #[test]
    fn only_a_block_counts() {
        let of = |statements: TokenStream, boxed| OnlyBlock::of(&statements, boxed).map(|only| only.block.to_string());
        let block = Some(quote!(async move { 1 }).to_string());
        assert_eq!(of(quote!(async move { 1 }), false), block);
        assert_eq!(of(quote!(Box::pin(async move { 1 })), true), block);
        assert_eq!(of(quote!(::std::boxed::Box::pin(async move { 1 })), true), block);
        assert_eq!(of(quote!(Box::pin(async move { 1 })), false), None);
        assert_eq!(of(quote!(async move { 1 }), true), None);
        assert_eq!(of(quote!(let x = 1; Box::pin(async move { x })), true), None);
        assert_eq!(of(quote!(Box::pin(async move { 1 }.map(f))), true), None);
        assert_eq!(of(quote!(Box::new(async move { 1 })), true), None);
        assert_eq!(of(quote!(), true), None);
    }

    /// Check that bindings are used that the tags use, and no others.
    #[test]
    fn bindings_of_tags_are_used() {
        let block = quote!(async move {
            let a = a;
            let mut b = b;
            let c = c;
            let d = a;
            c
        });
        let names = ["a", "b", "d"].map(str::to_owned).into();
        let used = OnlyBlock { pin: None, block }.use_bindings(&names).block;
        let expected = quote!(async move {
            let a = a;
            let _ = &a;
            let mut b = b;
            let _ = &b;
            let c = c;
            let d = a;
            c
        });
        assert_eq!(used.to_string(), expected.to_string());
    }
}
