//! Colours and bold text on terminals, plain text elsewhere or on request.

/// Whether text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Terminal,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
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
