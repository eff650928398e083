//! The label of a reference: its type and a number, in four bytes.
//!
//! Depending on the type, the number is an index into the names, a position, or unused. A position that does not fit is
//! stored as the largest number.

/// How an object refers to another. The text after the colon is the meaning of the label's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EdgeType {
    /// Unknown; the number is the position among the object's references.
    Referent = 0,
    /// An attribute stored in the instance itself, without a dict: a name.
    Attribute = 1,
    /// A value in a dict with a string key: a name, which is the key.
    Key = 2,
    /// A value in a dict with an integer key: the key.
    NumberKey = 3,
    /// A value in a dict with any other key: the position, shared with the [`EdgeType::KeyOf`] of its key.
    Item = 4,
    /// A key of a dict: the position.
    KeyOf = 5,
    /// An element of a list, a tuple, a deque: the index.
    Index = 6,
    /// An element of a set: the position.
    Element = 7,
    /// The content of a cell: the name of the variable, or none.
    Cell = 8,
    /// A local variable of a frame, a generator or a coroutine: a name.
    Local = 9,
    /// A value on the evaluation stack of a frame: the position.
    Stack = 10,
    /// A `__slots__` member: a name.
    Slot = 11,
    /// A weak reference, which does not keep its target alive.
    Weak = 12,
    /// A field of an interpreter object: a name such as `__mro__` or `co_consts`.
    Internal = 13,
    /// The `__dict__` of the object.
    DictOf = 14,
    /// The type of the object.
    Type = 15,
}

impl EdgeType {
    pub const ALL: [EdgeType; 16] = [
        EdgeType::Referent,
        EdgeType::Attribute,
        EdgeType::Key,
        EdgeType::NumberKey,
        EdgeType::Item,
        EdgeType::KeyOf,
        EdgeType::Index,
        EdgeType::Element,
        EdgeType::Cell,
        EdgeType::Local,
        EdgeType::Stack,
        EdgeType::Slot,
        EdgeType::Weak,
        EdgeType::Internal,
        EdgeType::DictOf,
        EdgeType::Type,
    ];

    /// Returns whether the number is an index into the names.
    pub fn has_name(self) -> bool {
        matches!(
            self,
            EdgeType::Attribute
                | EdgeType::Key
                | EdgeType::Cell
                | EdgeType::Local
                | EdgeType::Slot
                | EdgeType::Internal
        )
    }
}

/// A type and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Label(u32);

impl Label {
    const TYPE_BITS: u32 = 5;
    /// The largest number.
    pub const MAX_NUMBER: u32 = u32::MAX >> Label::TYPE_BITS;

    #[inline]
    pub const fn new(edge_type: EdgeType, number: u32) -> Label {
        let number = if number > Label::MAX_NUMBER {
            Label::MAX_NUMBER
        } else {
            number
        };
        Label(number << Label::TYPE_BITS | edge_type as u32)
    }

    #[inline]
    pub fn edge_type(self) -> EdgeType {
        // Labels always have a valid type.
        EdgeType::ALL[(self.0 & 15) as usize]
    }

    /// Returns an index into the names, a position or a number, depending on the type.
    #[inline]
    pub fn number(self) -> u32 {
        self.0 >> Label::TYPE_BITS
    }

    pub fn to_word(self) -> u32 {
        self.0
    }

    /// Returns `None` for an unknown type.
    pub fn from_word(word: u32) -> Option<Label> {
        (word & ((1 << Label::TYPE_BITS) - 1) < EdgeType::ALL.len() as u32).then_some(Label(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_numbers_round_trip_through_a_word() {
        for edge_type in EdgeType::ALL {
            for number in [0, 1, 77, Label::MAX_NUMBER] {
                let label = Label::new(edge_type, number);
                assert_eq!((label.edge_type(), label.number()), (edge_type, number));
                assert_eq!(Label::from_word(label.to_word()), Some(label));
            }
        }
        assert_eq!(Label::from_word(16), None);
    }

    #[test]
    fn position_above_the_largest_number_is_stored_as_the_largest() {
        let label = Label::new(EdgeType::Index, u32::MAX);
        assert_eq!(label.edge_type(), EdgeType::Index);
        assert_eq!(label.number(), Label::MAX_NUMBER);
    }
}
