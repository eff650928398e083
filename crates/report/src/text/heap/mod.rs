//! Heap tables in heapy's layout, for users who know heapy.

mod dominators;
mod paths;
mod pattern;
mod suspects;
mod tables;

pub use dominators::dominators;
pub use paths::{path, paths};
pub use pattern::{flag, pattern};
pub use suspects::{advice, evidence, headline, sentence, suspects, waste};
pub use tables::{difference, heading, identity, kinds_table, partition};

/// The hint after `<12 more rows`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// For Python sessions.
    Session,
    /// For the command line.
    Option,
}

impl More {
    fn rows(self, n_more: usize) -> String {
        let rows = if n_more == 1 { "row" } else { "rows" };
        match self {
            More::Session => format!("<{n_more} more {rows}. Type e.g. '_.more' to view.>"),
            More::Option => format!("<{n_more} more {rows}: -n 0 shows all.>"),
        }
    }
}

/// A whole percentage; halves are rounded to the even neighbour.
fn percent(part: u64, whole: u64) -> String {
    format!("{:.0}", share(part, whole))
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

fn objects(count: u64) -> &'static str {
    if count == 1 { "object" } else { "objects" }
}

/// Three significant digits, as C's `%.3g`.
fn significant(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    // Rounds first, so that 9.999 is written as 10.
    let exponent = format!("{number:.2e}");
    let power: i32 = exponent
        .rsplit('e')
        .next()
        .and_then(|power| power.parse().ok())
        .unwrap_or(0);
    let text = if (-4..3).contains(&power) {
        format!("{number:.*}", (2 - power) as usize)
    } else {
        let (digits, _) = exponent.split_once('e').unwrap_or((&exponent, ""));
        let sign = if power < 0 { '-' } else { '+' };
        let digits = trimmed(digits);
        return format!("{digits}e{sign}{:02}", power.abs());
    };
    trimmed(&text).to_owned()
}

fn trimmed(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_significant() {
        for (number, text) in [
            (0.0823, "0.0823"),
            (0.182, "0.182"),
            (0.1, "0.1"),
            (0.0, "0"),
            (12.345, "12.3"),
            (100.0, "100"),
            (-3.0, "-3"),
            (1234.0, "1.23e+03"),
            (0.00001234, "1.23e-05"),
            (9.9999, "10"),
        ] {
            assert_eq!(significant(number), text);
        }
    }
}
