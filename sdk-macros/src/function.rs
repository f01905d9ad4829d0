//! The function below the attribute: its head, which stays as it is, and its statements, which are not looked into.
//!
//! In: an item's tokens. Out: its parts, or an error that says why it cannot be tagged. The statements stay tokens: a body that is
//! only half written is the compiler's to judge, with the places that the user wrote. Compile time.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::token::Brace;
use syn::{Attribute, Error, Result, Signature, Token, Visibility, braced};

/// A function that can be tagged.
pub(crate) struct Function {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    pub(crate) signature: Signature,
    brace: Brace,
    /// `#![...]` at the start of the body.
    inner_attributes: Vec<Attribute>,
    statements: TokenStream,
}

impl Function {
    /// The statements alone.
    pub(crate) fn statements(&self) -> &TokenStream {
        &self.statements
    }

    /// The statements in their braces.
    pub(crate) fn body(&self) -> TokenStream {
        let mut tokens = TokenStream::new();
        // Around one expression the compiler would say that the braces are unnecessary, if they were the user's.
        let ends = |token: TokenTree| matches!(token, TokenTree::Punct(sign) if sign.as_char() == ';');
        let is_expression = !self.statements.clone().into_iter().any(ends);
        let ours = || Brace(Span::mixed_site().located_at(self.brace.span.join()));
        let brace = if is_expression { ours() } else { Brace { span: self.brace.span } };
        brace.surround(&mut tokens, |inside| self.statements.to_tokens(inside));
        tokens
    }

    /// The same function with other statements.
    pub(crate) fn with(&self, statements: &TokenStream) -> TokenStream {
        let Self { attributes, visibility, signature, brace, inner_attributes, .. } = self;
        let body = quote_spanned!(brace.span.join()=> { #(#inner_attributes)* #statements });
        quote_spanned!(signature.fn_token.span=> #(#attributes)* #visibility #signature #body)
    }
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        if !has_fn(input)? {
            return Err(input.error("only functions and methods can be tagged; for a block, use `profiler::tag!`"));
        }
        let signature: Signature = input.parse()?;
        if let Some(constness) = signature.constness {
            let text = "a `const fn` cannot be tagged, for it may run in the compiler, where there are no tags; remove \
                        `const`, or tag the functions that call it";
            return Err(Error::new(constness.span, text));
        }
        if input.peek(Token![;]) {
            let text = "a function without a body cannot be tagged; tag those of the implementations";
            return Err(Error::new(signature.ident.span(), text));
        }
        let content;
        let brace = braced!(content in input);
        let inner_attributes = content.call(Attribute::parse_inner)?;
        let statements = content.parse()?;
        Ok(Self { attributes, visibility, signature, brace, inner_attributes, statements })
    }
}

/// Whether `fn` and a name stand anywhere outside brackets, as they do in the head of every function.
fn has_fn(input: ParseStream<'_>) -> Result<bool> {
    let tokens: Vec<TokenTree> = input.fork().parse::<TokenStream>()?.into_iter().collect();
    let is_head = |two: &[TokenTree]| matches!(two, [TokenTree::Ident(word), TokenTree::Ident(_)] if word == "fn");
    Ok(tokens.windows(2).any(is_head))
}
