//! Texts that are spoken of by number, one behind the other in one piece of memory. Number 0 is the empty text.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    text: String,
    /// Where each name ends in `text`.
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

    /// Never: there is always the empty text.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The text of a number; empty for a number that does not exist.
    pub fn get(&self, number: u32) -> &str {
        let at = number as usize;
        let Some(&end) = self.ends.get(at) else {
            return "";
        };
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start..end).unwrap_or("")
    }

    /// Adds a text and gives its number. Whoever adds sees to it that no text is added twice.
    pub fn push(&mut self, name: &str) -> u32 {
        self.text.push_str(name);
        self.ends.push(self.text.len());
        (self.ends.len() - 1) as u32
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len() as u32).map(|number| self.get(number))
    }
}
