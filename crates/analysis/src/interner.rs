//! Values without repetition, and their numbers.

use std::borrow::Borrow;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Numbers values from 0 on; equal values get the same number.
#[derive(Clone, Debug)]
pub struct Interner<T> {
    /// By number.
    pub values: Vec<T>,
    numbers: FxHashMap<T, u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Interner {
            values: Vec::new(),
            numbers: FxHashMap::default(),
        }
    }
}

impl<T: Clone + Eq + Hash> Interner<T> {
    /// Returns the number of a value, and adds the value if it is new.
    pub fn number(&mut self, value: T) -> u32 {
        if let Some(&number) = self.numbers.get(&value) {
            return number;
        }
        let number = self.values.len() as u32;
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    /// Like [`Interner::number`], for a borrowed value, which is copied only if it is new.
    pub fn number_of<Q>(&mut self, value: &Q) -> u32
    where
        T: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = T> + ?Sized,
    {
        match self.numbers.get(value) {
            Some(&number) => number,
            None => self.number(value.to_owned()),
        }
    }
}
