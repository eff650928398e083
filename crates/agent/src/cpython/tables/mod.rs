//! What each supported version looks like; one file per version, printed from its headers by `tests/layout/generate`.
//!
//! Up to 3.12 a file is a whole layout. From 3.13 on the interpreter publishes most offsets itself, and a file says
//! where in the published struct they are and adds what is left out.

use super::debug_offsets::DebugOffsetsMap;
use super::layout::Layout;

pub mod v3_10;
pub mod v3_11;
pub mod v3_12;
pub mod v3_13;
pub mod v3_14;
pub mod v3_15;

/// Where the layout of a version comes from.
#[derive(Clone, Copy)]
pub enum Source {
    Table(&'static Layout),
    DebugOffsets(&'static DebugOffsetsMap),
}

/// The source for a version, or None for one that is too old or too new.
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
    use super::*;

    #[test]
    fn each_version_finds_its_own_table() {
        for minor in 10..=15 {
            let found = match source((3, minor)) {
                Some(Source::Table(layout)) => layout.version,
                Some(Source::DebugOffsets(map)) => map.version,
                None => panic!("3.{minor} has no table"),
            };
            assert_eq!(found, (3, minor));
        }
    }

    #[test]
    fn versions_outside_the_range_have_no_table() {
        for version in [(2, 7), (3, 9), (3, 16), (4, 10)] {
            assert!(source(version).is_none());
        }
    }
}
