//! As much JSON as control needs: small values in requests and answers.

use std::fmt::Write;

/// Deeper nesting is refused: no request of ours needs it, and recursion must stay bounded.
const MAX_DEPTH: usize = 16;

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Integer(i64),
    Fraction(f64),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// An object from pairs.
pub fn object<const N: usize>(pairs: [(&str, Json); N]) -> Json {
    let pairs = pairs.into_iter();
    Json::Object(pairs.map(|(key, value)| (key.to_owned(), value)).collect())
}

impl Json {
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(pairs) => pairs.iter().find(|pair| pair.0 == key).map(|pair| &pair.1),
            _ => None,
        }
    }

    /// Adds a pair to an object; anything else stays as it is.
    pub fn set(&mut self, key: &str, value: Json) {
        if let Json::Object(pairs) = self {
            pairs.retain(|pair| pair.0 != key);
            pairs.push((key.to_owned(), value));
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Json::Integer(number) => Some(*number),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Json]> {
        match self {
            Json::Array(items) => Some(items),
            _ => None,
        }
    }

    pub fn parse(bytes: &[u8]) -> Result<Json, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "the text is not UTF-8".to_owned())?;
        let mut parser = Parser { text, at: 0 };
        let value = parser.value(0)?;
        parser.skip_blanks();
        if parser.at == text.len() {
            Ok(value)
        } else {
            Err(parser.unexpected())
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Integer(number) => {
                let _ = write!(out, "{number}");
            }
            Json::Fraction(number) if number.is_finite() => {
                let _ = write!(out, "{number}");
            }
            Json::Fraction(_) => out.push_str("null"),
            Json::Text(text) => write_text(out, text),
            Json::Array(items) => {
                out.push('[');
                for (n, item) in items.iter().enumerate() {
                    if n > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Json::Object(pairs) => {
                out.push('{');
                for (n, (key, value)) in pairs.iter().enumerate() {
                    if n > 0 {
                        out.push(',');
                    }
                    write_text(out, key);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

impl std::fmt::Display for Json {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        formatter.write_str(&text)
    }
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            letter if u32::from(letter) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
}

macro_rules! from {
    ($($kind:ty => $make:expr),* $(,)?) => {
        $(impl From<$kind> for Json {
            fn from(value: $kind) -> Json {
                let make: fn($kind) -> Json = $make;
                make(value)
            }
        })*
    };
}

from! {
    bool => Json::Bool,
    &str => |text| Json::Text(text.to_owned()),
    String => Json::Text,
    u32 => |number| Json::Integer(number.into()),
    // Beyond 2⁶³ bytes or seconds there is nothing to count here.
    u64 => |number| Json::Integer(number.min(i64::MAX as u64) as i64),
    f64 => Json::Fraction,
    Vec<Json> => Json::Array,
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Json {
        value.map_or(Json::Null, Into::into)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn unexpected(&self) -> String {
        if self.at >= self.text.len() {
            "the text ends too early".to_owned()
        } else {
            format!("byte {} is not expected there", self.at)
        }
    }

    fn take(&mut self, wanted: u8) -> Result<(), String> {
        if self.peek() == Some(wanted) {
            self.at += 1;
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json, String> {
        if self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(value)
        } else {
            Err(self.unexpected())
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        if depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} levels are nested"));
        }
        self.skip_blanks();
        match self.peek() {
            Some(b'n') => self.word("null", Json::Null),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'"') => self.text().map(Json::Text),
            Some(b'[') => self.array(depth),
            Some(b'{') => self.object(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected()),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, String> {
        self.take(b'[')?;
        let mut items = Vec::new();
        self.skip_blanks();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.skip_blanks();
            if self.peek() != Some(b',') {
                self.take(b']')?;
                return Ok(Json::Array(items));
            }
            self.at += 1;
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, String> {
        self.take(b'{')?;
        let mut pairs: Vec<(String, Json)> = Vec::new();
        self.skip_blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Json::Object(pairs));
        }
        loop {
            self.skip_blanks();
            let key = self.text()?;
            self.skip_blanks();
            self.take(b':')?;
            let value = self.value(depth + 1)?;
            // The last one counts, as everywhere.
            pairs.retain(|pair| pair.0 != key);
            pairs.push((key, value));
            self.skip_blanks();
            if self.peek() != Some(b',') {
                self.take(b'}')?;
                return Ok(Json::Object(pairs));
            }
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<Json, String> {
        let begin = self.at;
        while matches!(
            self.peek(),
            Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
        ) {
            self.at += 1;
        }
        let text = &self.text[begin..self.at];
        let digits = text.strip_prefix('-').unwrap_or(text);
        let has_needless_zero =
            digits.len() > 1 && digits.starts_with('0') && digits.as_bytes()[1].is_ascii_digit();
        let is_number =
            digits.starts_with(|first: char| first.is_ascii_digit()) && !has_needless_zero;
        if let (true, Ok(number)) = (is_number, text.parse::<i64>()) {
            return Ok(Json::Integer(number));
        }
        match text.parse::<f64>() {
            Ok(number) if is_number && number.is_finite() && !text.ends_with('.') => {
                Ok(Json::Fraction(number))
            }
            _ => Err(format!("byte {begin} does not begin a number")),
        }
    }

    fn text(&mut self) -> Result<String, String> {
        self.take(b'"')?;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(letter) = rest.chars().next() else {
                return Err(self.unexpected());
            };
            if u32::from(letter) < 0x20 {
                return Err(self.unexpected());
            }
            self.at += letter.len_utf8();
            match letter {
                '"' => return Ok(text),
                '\\' => text.push(self.escape()?),
                letter => text.push(letter),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let letter = self.peek().ok_or_else(|| self.unexpected())?;
        self.at += 1;
        Ok(match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.four_digits()?;
                if !(0xd800..0xdc00).contains(&first) {
                    return char::from_u32(first).ok_or_else(|| self.unexpected());
                }
                self.take(b'\\')?;
                self.take(b'u')?;
                let second = self.four_digits()?;
                if !(0xdc00..0xe000).contains(&second) {
                    return Err(self.unexpected());
                }
                let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                char::from_u32(code).ok_or_else(|| self.unexpected())?
            }
            _ => return Err(self.unexpected()),
        })
    }

    fn four_digits(&mut self) -> Result<u32, String> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code = code.ok_or_else(|| self.unexpected())?;
        self.at += 4;
        Ok(code)
    }
}
