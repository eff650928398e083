//! Colours and bold text on terminals, plain text elsewhere or on request.

/// Whether text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Terminal,
}

/// Whether this is a code that Heaptide writes: bold, dim, one of the 16 standard colours, or the end of one of these.
pub(crate) fn is_own_code(code: &str) -> bool {
    let number = code
        .strip_prefix("\x1b[")
        .and_then(|code| code.strip_suffix('m'));
    matches!(number, Some("0" | "1" | "2"))
        || number.is_some_and(|number| {
            number.len() == 2 && matches!(number.parse(), Ok(30..=37 | 90..=97))
        })
}

impl Style {
    pub(crate) fn paint(self, code: &str, text: &str) -> String {
        match self {
            Style::Plain => text.to_owned(),
            Style::Terminal => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }

    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Colours a text by a share of the whole: red, yellow, green, bright green.
    pub fn share(self, percent: f64, text: &str) -> String {
        let code = match percent {
            percent if percent > 60.0 => "31",
            percent if percent > 20.0 => "33",
            percent if percent > 5.0 => "32",
            _ => "92",
        };
        self.paint(code, text)
    }
}
