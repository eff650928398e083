//! Detects the layout of this process's interpreter.
//!
//! The version determines the source of the layout. The static type objects then confirm that this build has objects of
//! these sizes; their first fields are the same in all versions. `check` compares frames.

use super::debug_offsets::layout_from;
use super::layout::Layout;
use super::offsets::TypeField;
use super::symbols::Symbols;
use super::tables::{Source, source};
use super::unsupported::Unsupported;
use std::ffi::CStr;

/// Returns the layout. The caller holds the GIL and runs `self_check` next.
pub fn detect() -> Result<Layout, Unsupported> {
    if !cfg!(all(target_pointer_width = "64", target_endian = "little")) {
        return Err(Unsupported::Platform);
    }
    let symbols = Symbols::resolve()?;
    // SAFETY: the function takes nothing and returns a string that lives as long as the interpreter.
    let text = unsafe { CStr::from_ptr((symbols.get_version)()) };
    let version = supported_version(text.to_bytes())?;
    let mut layout = match source(version) {
        Some(Source::Table(layout)) => *layout,
        Some(Source::DebugOffsets(map)) => {
            // SAFETY: `_PyRuntime` of this version begins with a struct of exactly this size, which the interpreter
            // initialises statically and never writes.
            let published =
                unsafe { std::slice::from_raw_parts(symbols.runtime as *const u8, map.size) };
            layout_from(map, published)?
        }
        None => {
            return Err(Unsupported::Version {
                major: version.0,
                minor: version.1,
            });
        }
    };
    layout.code.type_address = symbols.code_type;
    // SAFETY: both addresses are those of static type objects of the interpreter.
    unsafe { confirm_types(&layout, &symbols) }?;
    Ok(layout)
}

/// Returns major and minor of a version text such as "3.14.8 (main, …) [GCC …]" if it names a supported build.
fn supported_version(text: &[u8]) -> Result<(u8, u8), Unsupported> {
    let (major, rest) = number(text).ok_or(Unsupported::VersionText)?;
    let (minor, rest) = rest
        .strip_prefix(b".")
        .and_then(number)
        .ok_or(Unsupported::VersionText)?;
    if source((major, minor)).is_none() {
        return Err(Unsupported::Version { major, minor });
    }
    let (_, rest) = rest
        .strip_prefix(b".")
        .and_then(number)
        .ok_or(Unsupported::VersionText)?;
    if matches!(rest.first(), Some(b'a' | b'b')) {
        return Err(Unsupported::PreRelease { major, minor });
    }
    if rest.windows(14).any(|words| words == b"free-threading") {
        return Err(Unsupported::FreeThreaded);
    }
    Ok((major, minor))
}

/// Returns a decimal number and the text after it.
fn number(text: &[u8]) -> Option<(u8, &[u8])> {
    let end = text
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

/// Compares the interpreter's type objects with the layout: their own header, and the sizes of their instances.
///
/// # Safety
/// `symbols` must hold the addresses of the type objects of a live interpreter.
unsafe fn confirm_types(layout: &Layout, symbols: &Symbols) -> Result<(), Unsupported> {
    // SAFETY: a type object is hundreds of bytes long and aligned to a word, so both words lie in it; the caller
    // guarantees the addresses.
    let word =
        |address: usize, offset: usize| unsafe { ((address + offset) as *const usize).read() };
    // A build that traces references has two more words at the start of each object.
    if word(symbols.code_type, layout.code.ob_type) != symbols.type_type {
        return Err(Unsupported::ForeignBuild {
            what: "its objects have another head",
        });
    }
    if word(symbols.code_type, TypeField::BasicSize as usize) != layout.code.basic_size {
        return Err(Unsupported::ForeignBuild {
            what: "its code objects have another size",
        });
    }
    // A string that is not compact ends with the pointer to its characters.
    if word(symbols.unicode_type, TypeField::BasicSize as usize)
        != layout.unicode.compact_data + size_of::<usize>()
    {
        return Err(Unsupported::ForeignBuild {
            what: "its strings have another size",
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_and_candidates_are_recognised() {
        for (text, version) in [
            (
                "3.10.13 (main, May  9 2026, 07:34:36) [GCC 12.2.0]",
                (3, 10),
            ),
            (
                "3.13.0rc2+ (heads/3.13:abc, Jan 1 2026) [Clang 18]",
                (3, 13),
            ),
            ("3.15.0 (main, Oct  7 2026, 10:00:00) [GCC 15.2.0]", (3, 15)),
            ("3.14.8", (3, 14)),
        ] {
            assert_eq!(supported_version(text.as_bytes()), Ok(version));
        }
    }

    #[test]
    fn versions_without_a_table_are_refused_by_number() {
        for (text, major, minor) in [
            ("3.9.18 (main)", 3, 9),
            ("3.16.0a1 (main)", 3, 16),
            ("2.7.18", 2, 7),
            ("4.0.0", 4, 0),
        ] {
            assert_eq!(
                supported_version(text.as_bytes()),
                Err(Unsupported::Version { major, minor })
            );
        }
    }

    #[test]
    fn alphas_and_betas_are_refused() {
        for text in ["3.15.0a7 (main)", "3.15.0b1+ (main)"] {
            assert_eq!(
                supported_version(text.as_bytes()),
                Err(Unsupported::PreRelease {
                    major: 3,
                    minor: 15
                })
            );
        }
    }

    #[test]
    fn free_threaded_builds_are_refused_by_their_version_text() {
        for text in [
            "3.14.2 free-threading build (main, …)",
            "3.13.0 experimental free-threading build (main, …)",
        ] {
            assert_eq!(
                supported_version(text.as_bytes()),
                Err(Unsupported::FreeThreaded)
            );
        }
    }

    #[test]
    fn a_text_without_numbers_is_refused() {
        for text in [
            "", "three", "3", "3.", "3.11", "3.x.1", ".3.11.1", "999.1.1",
        ] {
            assert_eq!(
                supported_version(text.as_bytes()),
                Err(Unsupported::VersionText),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_process_without_python_is_refused() {
        assert_eq!(
            detect().map(|_| ()),
            Err(Unsupported::MissingSymbol {
                name: "Py_GetVersion"
            })
        );
    }
}
