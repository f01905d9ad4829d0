//! The function that comes out: the one that went in, with the tags in force around its work.
//!
//! In: the attribute and the function. Out: tokens. What is not async gets a scope, which ends with the body and so is never held
//! across an `.await`; what is async, and futures that are handed out, get tags that follow them. Where something is wrong: the error and
//! the function as it was. Compile time.

use std::collections::HashSet;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, Result, UnOp};

use crate::arguments::{Arguments, Tag};
use crate::block::OnlyBlock;
use crate::function::Function;
use crate::output::{Later, later, written_inside};

/// Tokens whose local names cannot meet those of the user, and which lints take for what they are: a macro's.
macro_rules! ours {
    ($($token:tt)*) => { quote_spanned!(Span::mixed_site()=> $($token)*) };
}

/// What takes the function's place.
pub(crate) fn tagged(attribute: TokenStream, item: &TokenStream) -> TokenStream {
    expanded(attribute, item.clone()).unwrap_or_else(|error| {
        let error = error.into_compile_error();
        quote!(#error #item)
    })
}

fn expanded(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: Function = syn::parse2(item)?;
    let arguments: Arguments = syn::parse2(attribute)?;
    let statements = if function.signature.asyncness.is_some() {
        awaited(&arguments, &function)
    } else if let Some(later) = later(&function.signature.output) {
        handed_out(&arguments, &function, later)
    } else {
        scoped(&arguments, &function)
    };
    Ok(function.with(&statements))
}

/// A scope for the body.
fn scoped(arguments: &Arguments, function: &Function) -> TokenStream {
    let (root, body) = (&arguments.root, function.body());
    let scope = fixed(arguments, &ours!(enter)).unwrap_or_else(|| {
        let list = list(&arguments.tags);
        ours!(#root::Scope::of(#list))
    });
    ours!(let _scope = #scope; #body)
}

/// The set of tags, for what is polled later.
fn set(arguments: &Arguments) -> TokenStream {
    let root = &arguments.root;
    fixed(arguments, &ours!(tags)).unwrap_or_else(|| {
        let list = list(&arguments.tags);
        ours!(#root::Tags::new(#list))
    })
}

/// What `method` makes of tags that are always the same, which are built once for the place; `None` where they are not.
fn fixed(arguments: &Arguments, method: &TokenStream) -> Option<TokenStream> {
    let Arguments { root, tags } = arguments;
    let (list, count) = (list(tags), tags.len() as u64);
    tags.iter().all(|tag| is_literal(&tag.value)).then(|| {
        ours! {{
            static TAGS: #root::__private::FixedTags = #root::__private::FixedTags::new();
            TAGS.#method(#count, || #root::Tags::new(#list))
        }}
    })
}

/// Whether a value is a literal: also one that `macro_rules!` put there, which stands in a group, and a number below zero.
fn is_literal(value: &Expr) -> bool {
    match value {
        Expr::Lit(_) => true,
        Expr::Group(group) => is_literal(&group.expr),
        Expr::Paren(paren) => is_literal(&paren.expr),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Neg(_)) && is_literal(&unary.expr),
        _ => false,
    }
}

/// For an `async fn`: its body as a future with tags.
fn awaited(arguments: &Arguments, function: &Function) -> TokenStream {
    let (root, set, body) = (&arguments.root, set(arguments), function.body());
    // Never runs. By it, the compiler knows the type of the block before it sees the body, as it does for a function.
    let typed = written_inside(&function.signature.output).map(|output| {
        ours! {
            if let ::core::option::Option::Some(returned) = ::core::option::Option::None::<#output> {
                return returned;
            }
        }
    });
    ours! {
        let tags = #set;
        #root::FutureExt::with_tags(async move { #typed #body }, tags).await
    }
}

/// For a function that hands out work still to come: a scope for the body, and the tags for that work.
fn handed_out(arguments: &Arguments, function: &Function, later: Later) -> TokenStream {
    let Arguments { root, tags } = arguments;
    let set = set(arguments);
    let extension = format_ident!("{}", later.extension, span = Span::mixed_site());
    let with_tags = ours!(#root::#extension::with_tags);
    let outcome = if let Some(only) = OnlyBlock::of(function.statements(), later.boxed) {
        let OnlyBlock { pin, block } = only.use_bindings(&names(tags));
        within(pin, ours!(#with_tags(#block, tags)))
    } else {
        let (body, output) = (function.body(), written_inside(&function.signature.output));
        let pin = later.boxed.then(|| ours!(::std::boxed::Box::pin));
        let pinned = within(pin, ours!(#with_tags(later, tags)));
        // A function of its own, so that a `return` in the body does not go past the tags.
        ours!(let later = #root::with_tags(&tags, move || -> #output #body); #pinned)
    };
    ours!(let tags = #set; #outcome)
}

fn within(function: Option<TokenStream>, argument: TokenStream) -> TokenStream {
    match function {
        Some(function) => ours!(#function(#argument)),
        None => argument,
    }
}

/// The tags as `Tags::new` takes them. What is wrong with a value is shown at the value.
fn list(tags: &[Tag]) -> TokenStream {
    let pairs = tags.iter().map(|Tag { key, value }| {
        let site = Span::mixed_site().located_at(value.span());
        quote_spanned!(site=> (#key, &(#value) as &dyn ::core::fmt::Display))
    });
    ours!([#(#pairs),*])
}

/// The names that stand in the values.
fn names(tags: &[Tag]) -> HashSet<String> {
    let mut names = HashSet::new();
    let mut open: Vec<TokenStream> = tags.iter().map(|tag| tag.value.to_token_stream()).collect();
    while let Some(tokens) = open.pop() {
        for token in tokens {
            match token {
                TokenTree::Ident(name) => drop(names.insert(name.to_string())),
                TokenTree::Group(group) => open.push(group.stream()),
                _ => {}
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(attribute: TokenStream, item: &TokenStream) -> String {
        tagged(attribute, item).to_string()
    }

    /// Check that the block that `#[async_trait]` boxes takes the tags itself, and that any other body is called.
    #[test]
    fn an_async_block_is_boxed_once() {
        let method = |body: TokenStream| {
            text(quote!(a = 1), &quote!(fn f() -> Pin<Box<dyn Future<Output = u8> + Send>> { #body }))
        };
        let count = |text: &str| {
            let text = text.replace(' ', "");
            (text.matches("Box::pin").count(), text.matches("move||").count())
        };
        assert_eq!(count(&method(quote!(Box::pin(async move { 1 })))), (1, 0));
        assert_eq!(count(&method(quote!(::std::boxed::Box::pin(async { 1 })))), (1, 0));
        assert_eq!(count(&method(quote!(let x = 1; Box::pin(async move { x })))), (2, 1));
        assert_eq!(count(&method(quote!(Box::pin(work())))), (2, 1));
        assert_eq!(count(&method(quote!(make()))), (1, 1));
    }

    /// Check that the function is still there when the attribute is wrong.
    #[test]
    fn a_wrong_attribute_leaves_the_function() {
        let function = quote!(
            fn f(a: u8) -> u8 {
                a
            }
        );
        let text = text(quote!(a), &function);
        assert!(text.contains("compile_error") && text.ends_with(&function.to_string()), "{text}");
    }

    /// Check that tags of literals are built once, and others at each call.
    #[test]
    fn tags_of_literals_are_built_once() {
        let function = quote!(
            fn f(a: u8) {}
        );
        let once = |attribute| text(attribute, &function).contains("FixedTags");
        assert!(once(quote!(a = 1, b = "c")));
        assert!(!once(quote!(a = 1, b = a)));
    }
}
