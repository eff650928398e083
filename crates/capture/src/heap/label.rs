//! How a reference is called: its kind and a number, in four bytes.
//!
//! The number is a place among the names, a position, or nothing, as the kind says. A position that does not fit stands
//! at the largest that does.

/// Through what an object refers to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EdgeKind {
    /// Nothing is known but the position among what the object refers to.
    Referent = 0,
    /// An attribute kept in the instance itself, without a dict: a name.
    Attribute = 1,
    /// A value in a dict under a text: a name, which is the text.
    Key = 2,
    /// A value in a dict under a whole number: the number.
    NumberKey = 3,
    /// A value in a dict under any other key: the position, which [`EdgeKind::KeyOf`] of the key itself shares.
    Item = 4,
    /// A key of a dict: the position.
    KeyOf = 5,
    /// An element of a list, a tuple, a deque: the index.
    Index = 6,
    /// An element of a set: the position.
    Element = 7,
    /// What a cell holds: the name of the variable, or none.
    Cell = 8,
    /// A local variable of a frame, a generator or a coroutine: a name.
    Local = 9,
    /// A value that a frame is computing with: the position.
    Stack = 10,
    /// A `__slots__` member: a name.
    Slot = 11,
    /// A weak reference: it keeps nothing alive.
    Weak = 12,
    /// Something the interpreter keeps under a name of its own: `__mro__`, `co_consts`, …
    Internal = 13,
    /// The `__dict__` of the object.
    DictOf = 14,
    /// The type of the object.
    Type = 15,
}

impl EdgeKind {
    pub const ALL: [EdgeKind; 16] = [
        EdgeKind::Referent,
        EdgeKind::Attribute,
        EdgeKind::Key,
        EdgeKind::NumberKey,
        EdgeKind::Item,
        EdgeKind::KeyOf,
        EdgeKind::Index,
        EdgeKind::Element,
        EdgeKind::Cell,
        EdgeKind::Local,
        EdgeKind::Stack,
        EdgeKind::Slot,
        EdgeKind::Weak,
        EdgeKind::Internal,
        EdgeKind::DictOf,
        EdgeKind::Type,
    ];

    /// Whether the number is a place among the names.
    pub fn has_name(self) -> bool {
        matches!(
            self,
            EdgeKind::Attribute
                | EdgeKind::Key
                | EdgeKind::Cell
                | EdgeKind::Local
                | EdgeKind::Slot
                | EdgeKind::Internal
        )
    }
}

/// A kind and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Label(u32);

impl Label {
    const KIND_BITS: u32 = 5;
    /// The largest number.
    pub const MAX_NUMBER: u32 = u32::MAX >> Label::KIND_BITS;

    #[inline]
    pub const fn new(kind: EdgeKind, number: u32) -> Label {
        let number = if number > Label::MAX_NUMBER {
            Label::MAX_NUMBER
        } else {
            number
        };
        Label(number << Label::KIND_BITS | kind as u32)
    }

    #[inline]
    pub fn kind(self) -> EdgeKind {
        // A label is only made with a kind that exists.
        EdgeKind::ALL[(self.0 & 15) as usize]
    }

    /// A place among the names, a position or a number, as the kind says.
    #[inline]
    pub fn number(self) -> u32 {
        self.0 >> Label::KIND_BITS
    }

    pub fn to_word(self) -> u32 {
        self.0
    }

    /// `None` for a kind that does not exist.
    pub fn from_word(word: u32) -> Option<Label> {
        (word & ((1 << Label::KIND_BITS) - 1) < EdgeKind::ALL.len() as u32).then_some(Label(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_numbers_come_back_from_their_word() {
        for kind in EdgeKind::ALL {
            for number in [0, 1, 77, Label::MAX_NUMBER] {
                let label = Label::new(kind, number);
                assert_eq!((label.kind(), label.number()), (kind, number));
                assert_eq!(Label::from_word(label.to_word()), Some(label));
            }
        }
        assert_eq!(Label::from_word(16), None);
    }

    #[test]
    fn position_beyond_the_largest_stands_at_the_largest() {
        let label = Label::new(EdgeKind::Index, u32::MAX);
        assert_eq!(label.kind(), EdgeKind::Index);
        assert_eq!(label.number(), Label::MAX_NUMBER);
    }
}
