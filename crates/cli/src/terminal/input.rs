//! The search line.

use ratatui::crossterm::event::KeyCode;

/// The text of a search, and whether it is being typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Search {
    text: String,
    lowered: String,
    is_typing: bool,
}

impl Search {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_typing(&self) -> bool {
        self.is_typing
    }

    /// Starts a new search.
    pub(crate) fn open(&mut self) {
        self.clear();
        self.is_typing = true;
    }

    pub(crate) fn clear(&mut self) {
        *self = Search::default();
    }

    /// Handles a key while the search is typed. Enter keeps the text, Esc clears it.
    pub(crate) fn key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(letter) => self.text.push(letter),
            KeyCode::Backspace => {
                self.text.pop();
            }
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => self.clear(),
            _ => {}
        }
        self.lowered = self.text.to_lowercase();
    }

    /// Whether there is a search text.
    pub(crate) fn is_on(&self) -> bool {
        !self.text.is_empty()
    }

    /// Whether one of the texts contains the search text, ignoring case. An empty search matches everything.
    pub(crate) fn matches(&self, texts: &[&str]) -> bool {
        texts
            .iter()
            .any(|text| text.to_lowercase().contains(&self.lowered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_ignores_case_and_matches_everything_once_cleared() {
        let mut search = Search::default();
        search.open();
        for letter in "LoaX".chars() {
            search.key(KeyCode::Char(letter));
        }
        search.key(KeyCode::Backspace);
        search.key(KeyCode::Enter);
        assert!(!search.is_typing() && search.is_on());
        assert!(search.matches(&["x", "reload"]) && !search.matches(&["store"]));
        search.open();
        search.key(KeyCode::Char('q'));
        search.key(KeyCode::Esc);
        assert!(!search.is_on() && search.matches(&["store"]));
    }
}
