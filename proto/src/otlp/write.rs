//! From the model to the bytes of an OTLP request, an element at a time: beside the set, no more is in memory than a few of its elements and the order of its tables.
//!
//! In: a compact set. Out: how long its request is, and the bytes of that, which say the same as those of [`encode`](super::encode())'s request, and are as many.
//!
//! The messages lie in each other, each behind its length: so all is gone through twice, first for the lengths.
//! Source: protobuf.dev, "Encoding"; field numbers of opentelemetry-proto 1.10, collector/profiles/v1development/profiles_service.proto and
//! profiles/v1development/profiles.proto.

use std::borrow::Cow;
use std::io::{self, Write};

use prost::Message;

use super::elements;
use super::fields::{Element, Fields, begin, delimited};
use super::many::Of;
use super::messages as wire;
use super::order::Orders;
use crate::model::{Dictionary, Profile, ProfileSet};

/// A request that is not written yet.
#[derive(Debug)]
pub struct Request<'a> {
    set: Cow<'a, ProfileSet>,
    orders: Orders,
    /// Bytes of the dictionary.
    dictionary: usize,
    /// Bytes of each profile.
    profiles: Vec<usize>,
}

impl<'a> Request<'a> {
    /// The request that holds `set`, which is compact, without profiles that have no samples.
    #[must_use]
    pub fn of(set: &'a ProfileSet) -> Self {
        let has_samples = |profile: &&Profile| !profile.samples.is_empty();
        let set = if set.profiles.iter().all(|profile| has_samples(&profile)) {
            Cow::Borrowed(set)
        } else {
            Cow::Owned(set.with_profiles(set.profiles.iter().filter(has_samples)))
        };
        let orders = Orders::of(&set.dictionary);
        let dictionary = length_of(|lengths| dictionary(&set.dictionary, &orders, lengths));
        let length_of_profile =
            |profile| length_of(|lengths| self::profile(profile, &set.dictionary, &orders, lengths));
        let profiles = set.profiles.iter().map(length_of_profile).collect();
        Self { set, orders, dictionary, profiles }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let profiles = if self.profiles.is_empty() { 0 } else { delimited(self.resource_profiles()) };
        profiles + delimited(self.dictionary)
    }

    /// The same with the dictionary counted once per profile, as some backends store it.
    #[must_use]
    pub fn bytes_as_stored(&self) -> usize {
        self.profiles.iter().map(|profile| self.dictionary + profile).sum::<usize>().max(self.dictionary)
    }

    /// Writes it in pieces of some kilobytes.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let mut pieces = Pieces { out, piece: Vec::with_capacity(2 * PIECE), since: 0 };
        if !self.profiles.is_empty() {
            pieces.begin(1, self.resource_profiles());
            pieces.message(1, &elements::wire_resource(&self.set.resource))?;
            pieces.begin(2, self.scope_profiles());
            pieces.message(1, &elements::scope(&self.set.scope))?;
            for (profile, length) in self.set.profiles.iter().zip(&self.profiles) {
                pieces.begin(2, *length);
                self::profile(profile, &self.set.dictionary, &self.orders, &mut pieces)?;
                pieces.end()?;
            }
        }
        pieces.begin(2, self.dictionary);
        dictionary(&self.set.dictionary, &self.orders, &mut pieces)?;
        pieces.pass_on()
    }

    fn resource_profiles(&self) -> usize {
        delimited(elements::wire_resource(&self.set.resource).encoded_len()) + delimited(self.scope_profiles())
    }

    fn scope_profiles(&self) -> usize {
        let profiles: usize = self.profiles.iter().map(|profile| delimited(*profile)).sum();
        delimited(elements::scope(&self.set.scope).encoded_len()) + profiles
    }
}

/// What is done with one element after the other.
trait Elements {
    /// The message of field `number`, of which there are many.
    fn element(&mut self, number: u8, element: &impl Element) -> io::Result<()>;
    /// The message of field `number`.
    fn message(&mut self, number: u8, message: &impl Message) -> io::Result<()>;
    /// The text of field `number`.
    fn text(&mut self, number: u8, text: &str) -> io::Result<()>;
    /// The fields of a message whose others are told one by one.
    fn fields(&mut self, message: &impl Message) -> io::Result<()>;
    /// Elements of another kind follow.
    fn end(&mut self) -> io::Result<()>;
}

fn dictionary(of: &Dictionary, orders: &Orders, to: &mut impl Elements) -> io::Result<()> {
    let Dictionary { mappings, functions, locations, stacks, links, strings, attributes, .. } = of;
    let mut locations = orders.locations.ids().filter_map(|id| locations.get(id));
    let mut functions = orders.functions.ids().filter_map(|id| functions.get(id));
    let mut stacks = orders.stacks.ids().filter_map(|id| stacks.get(id));
    mappings.iter().try_for_each(|mapping| to.message(1, &elements::mapping(mapping, of, orders)))?;
    locations.try_for_each(|location| to.element(2, &Of(location, of, orders)))?;
    to.end()?;
    functions.try_for_each(|function| to.element(3, &Of(function, of, orders)))?;
    to.end()?;
    links.iter().try_for_each(|link| to.element(4, link))?;
    to.end()?;
    orders.strings.ids().try_for_each(|id| to.text(5, strings.text(id)))?;
    to.end()?;
    attributes.iter().try_for_each(|attribute| to.message(6, &elements::attribute(attribute, orders)))?;
    stacks.try_for_each(|stack| to.element(7, &Of(stack, of, orders)))
}

fn profile(profile: &Profile, dictionary: &Dictionary, orders: &Orders, to: &mut impl Elements) -> io::Result<()> {
    let mut others = elements::profile(profile, dictionary, orders);
    // Samples are the second field, behind their type.
    to.fields(&wire::Profile { sample_type: others.sample_type.take(), ..Default::default() })?;
    profile.samples.iter().try_for_each(|sample| to.element(2, &Of(sample, dictionary, orders)))?;
    to.fields(&others)
}

/// The sum of the lengths of elements.
struct Lengths(usize);

fn length_of(told: impl FnOnce(&mut Lengths) -> io::Result<()>) -> usize {
    let mut lengths = Lengths(0);
    // Adding up does not fail.
    _ = told(&mut lengths);
    lengths.0
}

impl Elements for Lengths {
    fn element(&mut self, _: u8, element: &impl Element) -> io::Result<()> {
        self.0 += delimited(element.length());
        Ok(())
    }

    fn message(&mut self, _: u8, message: &impl Message) -> io::Result<()> {
        self.0 += delimited(message.encoded_len());
        Ok(())
    }

    fn text(&mut self, _: u8, text: &str) -> io::Result<()> {
        self.0 += delimited(text.len());
        Ok(())
    }

    fn fields(&mut self, message: &impl Message) -> io::Result<()> {
        self.0 += message.encoded_len();
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that are passed on at a time.
const PIECE: usize = 16 << 10;

/// Bytes of one kind that are worth codes of their own: random ids and text, say, have little in common, and a table of codes takes some 70 bytes.
const LONG: usize = 4 << 10;

/// Elements as bytes.
struct Pieces<W> {
    out: W,
    piece: Vec<u8>,
    /// Bytes that were passed on since the last flush.
    since: usize,
}

impl<W: Write> Pieces<W> {
    /// What stands before a field of so many bytes.
    fn begin(&mut self, number: u8, length: usize) {
        begin(number, length, &mut self.piece);
    }

    fn pass_on(&mut self) -> io::Result<()> {
        self.out.write_all(&self.piece)?;
        self.since += self.piece.len();
        self.piece.clear();
        Ok(())
    }

    fn pass_on_if_long(&mut self) -> io::Result<()> {
        if self.piece.len() >= PIECE { self.pass_on() } else { Ok(()) }
    }
}

impl<W: Write> Elements for Pieces<W> {
    fn element(&mut self, number: u8, element: &impl Element) -> io::Result<()> {
        self.piece.element(number, element);
        self.pass_on_if_long()
    }

    fn message(&mut self, number: u8, message: &impl Message) -> io::Result<()> {
        self.begin(number, message.encoded_len());
        self.fields(message)
    }

    fn text(&mut self, number: u8, text: &str) -> io::Result<()> {
        self.begin(number, text.len());
        self.piece.extend_from_slice(text.as_bytes());
        self.pass_on_if_long()
    }

    fn fields(&mut self, message: &impl Message) -> io::Result<()> {
        message.encode(&mut self.piece).map_err(io::Error::other)?;
        self.pass_on_if_long()
    }

    /// What compresses begins a block, with codes for what follows, where it is flushed: RFC 1951, section 3.2.7.
    fn end(&mut self) -> io::Result<()> {
        if self.since + self.piece.len() < LONG {
            return Ok(());
        }
        self.pass_on()?;
        self.since = 0;
        self.out.flush()
    }
}
