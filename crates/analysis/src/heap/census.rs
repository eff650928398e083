//! A census: the number of objects of each type, without references.

use heaptide_capture::heap::TypeInfo;

use super::kinds::type_name;

/// The objects of all types that have this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindCount {
    pub name: String,
    pub objects: u64,
    pub bytes: u64,
}

/// Sums types into kinds, largest first; types of the same name are one kind.
pub fn census(types: impl Iterator<Item = (TypeInfo, u64, u64)>) -> Vec<KindCount> {
    let mut kinds: Vec<KindCount> = types
        .map(|(info, objects, bytes)| KindCount {
            name: type_name(&info),
            objects,
            bytes,
        })
        .collect();
    kinds.sort_by(|one, other| one.name.cmp(&other.name));
    kinds.dedup_by(|kind, before| {
        let same = kind.name == before.name;
        if same {
            before.objects = before.objects.saturating_add(kind.objects);
            before.bytes = before.bytes.saturating_add(kind.bytes);
        }
        same
    });
    kinds.sort_by(|one, other| {
        let by_bytes = other.bytes.cmp(&one.bytes);
        by_bytes.then_with(|| one.name.cmp(&other.name))
    });
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_one_name_are_one_kind_and_the_largest_is_first() {
        let named = |name: &str| TypeInfo {
            name: name.to_owned(),
            module: "job".to_owned(),
            ..TypeInfo::default()
        };
        let types = [
            (named("Order"), 2, 100),
            (named("Line"), 1, 150),
            (named("Order"), 3, 100),
        ];
        let kinds = census(types.into_iter());
        let rows: Vec<_> = kinds
            .iter()
            .map(|kind| (kind.name.as_str(), kind.objects, kind.bytes))
            .collect();
        assert_eq!(rows, [("job.Order", 5, 200), ("job.Line", 1, 150)]);
    }
}
