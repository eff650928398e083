//! Numbered texts, stored one after the other in one allocation. Number 0 is the empty text.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    text: String,
    /// The end of each name in `text`.
    ends: Vec<usize>,
}

impl Default for Names {
    fn default() -> Self {
        Names {
            text: String::new(),
            ends: vec![0],
        }
    }
}

impl Names {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns false: the list always contains the empty text.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the text of a number; empty for an unknown number.
    pub fn get(&self, number: u32) -> &str {
        let at = number as usize;
        let Some(&end) = self.ends.get(at) else {
            return "";
        };
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start..end).unwrap_or("")
    }

    /// Adds a text and returns its number. The caller must not add a text twice.
    pub fn push(&mut self, name: &str) -> u32 {
        self.text.push_str(name);
        self.ends.push(self.text.len());
        (self.ends.len() - 1) as u32
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len() as u32).map(|number| self.get(number))
    }
}
