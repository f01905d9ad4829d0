//! Interned tables: equal values get one id, ids are dense, element 0 is the zero value.
//!
//! In: values while a profile is assembled or decoded. Out: typed ids, and the values in the order of their ids. Not
//! shared between threads; one [`Dictionary`](super::Dictionary) owns its tables.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use indexmap::{Equivalent, IndexSet};

use crate::hash::State;

/// A typed index into one table of one [`Dictionary`](super::Dictionary). Zero stands for "not set".
pub trait Id: Copy + Eq + Hash + Ord + fmt::Debug {
    /// The id of the element at `index`.
    fn from_index(index: u32) -> Self;
    /// The position in its table.
    fn index(self) -> u32;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(u32);

        impl $name {
            /// "Not set": element 0, the zero value.
            pub const ZERO: Self = Self(0);

            /// Whether this is "not set".
            #[must_use]
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }
        }

        impl Id for $name {
            fn from_index(index: u32) -> Self {
                Self(index)
            }

            fn index(self) -> u32 {
                self.0
            }
        }
    )*};
}

ids! {
    /// A string of a dictionary; zero is `""`.
    StringId;
    /// A mapping of a dictionary; zero is "no mapping".
    MappingId;
    /// A function of a dictionary.
    FunctionId;
    /// A location of a dictionary.
    LocationId;
    /// A stack of a dictionary; zero is the empty stack.
    StackId;
    /// An attribute of a dictionary.
    AttributeId;
    /// A set of attributes of a dictionary; zero is the empty set.
    AttributeSetId;
    /// A link of a dictionary; zero is "no link".
    LinkId;
}

/// One table of a dictionary.
///
/// Invariant: element 0 is `T::default()`; no two elements are equal; an id that this table gave out stays valid, for
/// nothing is ever removed.
#[derive(Clone)]
pub struct Table<T, I> {
    elements: IndexSet<T, State>,
    id: PhantomData<fn() -> I>,
}

impl<T: Hash + Eq + Default, I: Id> Table<T, I> {
    /// A table that holds just its zero value.
    #[must_use]
    pub fn new() -> Self {
        Self { elements: IndexSet::from_iter([T::default()]), id: PhantomData }
    }

    /// The id of `value`, which is added if the table does not hold it yet.
    ///
    /// A table holds at most `u32::MAX` elements; beyond that (more than any bound of a decoder or an aggregate lets
    /// through) the id is zero.
    pub fn intern(&mut self, value: T) -> I {
        I::from_index(u32::try_from(self.elements.insert_full(value).0).unwrap_or(0))
    }

    /// Gives back the room that is left: a table grows to twice its size.
    pub(crate) fn shrink(&mut self) {
        self.elements.shrink_to_fit();
    }

    /// The id of `value`, if the table holds it.
    pub fn find<Q>(&self, value: &Q) -> Option<I>
    where
        Q: ?Sized + Hash + Equivalent<T>,
    {
        self.elements.get_index_of(value).and_then(|index| u32::try_from(index).ok()).map(I::from_index)
    }

    /// The element of `id`; `None` for an id of another dictionary that points beyond this table.
    #[must_use]
    pub fn get(&self, id: I) -> Option<&T> {
        self.elements.get_index(id.index() as usize)
    }

    /// The elements in the order of their ids, the zero value first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> + DoubleEndedIterator + '_ {
        self.elements.iter()
    }

    /// The ids and elements in order, the zero value first.
    pub fn entries(&self) -> impl Iterator<Item = (I, &T)> + '_ {
        (0..=u32::MAX).map(I::from_index).zip(self.elements.iter())
    }

    /// How many elements there are, the zero value included; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a table is never empty: it holds its zero value")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements.len()
    }
}

impl<I: Id> Table<Box<str>, I> {
    /// [`Table::intern`] for text: copies it only if it is new.
    pub fn intern_str(&mut self, text: &str) -> I {
        match self.find(text) {
            Some(id) => id,
            None => self.intern(text.into()),
        }
    }

    /// The text of `id`, `""` for one that points beyond this table.
    #[must_use]
    pub fn text(&self, id: I) -> &str {
        self.get(id).map_or("", Borrow::borrow)
    }
}

impl<T: Hash + Eq + Default, I: Id> Default for Table<T, I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: PartialEq, I> PartialEq for Table<T, I> {
    /// Equal elements in equal order.
    fn eq(&self, other: &Self) -> bool {
        self.elements.iter().eq(other.elements.iter())
    }
}

impl<T: Eq, I> Eq for Table<T, I> {}

impl<T: fmt::Debug, I> fmt::Debug for Table<T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.elements).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that equal values share an id and that zero is the zero value.
    #[test]
    fn equal_values_share_an_id() {
        let mut strings = Table::<Box<str>, StringId>::new();
        let (a, b, again) = (strings.intern_str("a"), strings.intern_str("b"), strings.intern_str("a"));
        assert_eq!((a, again), (StringId(1), StringId(1)));
        assert_eq!((b, strings.intern_str("")), (StringId(2), StringId::ZERO));
        assert_eq!((strings.text(b), strings.text(StringId(9))), ("b", ""));
        assert_eq!(strings.len(), 3);
    }
}
