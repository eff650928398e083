//! Shortens function names such that they stay distinct.

use std::collections::{BTreeMap, BTreeSet};

/// Maps each dotted name to its shortest ending that no other name has.
pub fn short_names<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, &'a str> {
    let names: BTreeSet<&str> = names.collect();
    let mut short = BTreeMap::new();
    for &name in &names {
        let n_parts = name.split('.').count();
        let own = (1..=n_parts).map(|n| ending(name, n)).find(|candidate| {
            let n = candidate.split('.').count();
            names
                .iter()
                .all(|other| *other == name || ending(other, n) != *candidate)
        });
        short.insert(name, own.unwrap_or(name));
    }
    short
}

/// The last `n` parts of a name, or the whole name if it has fewer.
fn ending(name: &str, n: usize) -> &str {
    let start = name
        .rmatch_indices('.')
        .nth(n - 1)
        .map_or(0, |(at, _)| at + 1);
    &name[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shortened_until_two_would_be_the_same() {
        let names = ["a.b.work", "a.c.work", "m.main", ".block"];
        let short = short_names(names.into_iter());
        let shown: Vec<&str> = names.iter().map(|name| short[name]).collect();
        assert_eq!(shown, ["b.work", "c.work", "main", "block"]);
        assert_eq!(short_names(["f", "x.f"].into_iter())["f"], "f");
    }
}
