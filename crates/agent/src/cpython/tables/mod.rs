//! The layouts of all supported versions; one file per version, printed from its headers by `tests/layout/generate`.
//!
//! Up to 3.12 a file is a complete layout. From 3.13 on the interpreter publishes most offsets, and a file has
//! their positions in the published struct and the missing offsets.

use super::debug_offsets::DebugOffsetsMap;
use super::layout::Layout;

pub mod v3_10;
pub mod v3_11;
pub mod v3_12;
pub mod v3_13;
pub mod v3_14;
pub mod v3_15;

/// The source of a version's layout.
#[derive(Clone, Copy)]
pub enum Source {
    Table(&'static Layout),
    DebugOffsets(&'static DebugOffsetsMap),
}

/// Returns the source for a version, or `None` for one that is too old or too new.
pub fn source(version: (u8, u8)) -> Option<Source> {
    Some(match version {
        (3, 10) => Source::Table(&v3_10::LAYOUT),
        (3, 11) => Source::Table(&v3_11::LAYOUT),
        (3, 12) => Source::Table(&v3_12::LAYOUT),
        (3, 13) => Source::DebugOffsets(&v3_13::MAP),
        (3, 14) => Source::DebugOffsets(&v3_14::MAP),
        (3, 15) => Source::DebugOffsets(&v3_15::MAP),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::unsupported::SUPPORTED;
    use super::*;

    #[test]
    fn each_supported_version_has_its_table() {
        let versions: Vec<u8> = SUPPORTED
            .split(' ')
            .filter_map(|word| word.strip_prefix("3.")?.parse().ok())
            .collect();
        for minor in versions[0]..=versions[1] {
            let version = match source((3, minor)) {
                Some(Source::Table(layout)) => layout.version,
                Some(Source::DebugOffsets(map)) => map.version,
                None => panic!("3.{minor} has no table"),
            };
            assert_eq!(version, (3, minor));
        }
        assert!(source((3, versions[0] - 1)).is_none());
        assert!(source((3, versions[1] + 1)).is_none());
    }

    #[test]
    fn versions_outside_the_range_have_no_table() {
        for version in [(2, 7), (3, 9), (3, 16), (4, 10)] {
            assert!(source(version).is_none());
        }
    }
}
