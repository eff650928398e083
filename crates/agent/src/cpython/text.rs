//! Python strings to UTF-8, without the interpreter's help.
//!
//! Works on the object's bytes alone: no GIL, no allocation, no call into Python. A lone surrogate, which UTF-8 cannot
//! hold, becomes U+FFFD; a text longer than its buffer is cut at a character border.

use super::code::Unreadable;
use super::layout::UnicodeLayout;
use super::memory::Memory;

/// No name or path is longer; a larger length means that this is not a string.
const MAX_CHARACTERS: usize = 1 << 28;

/// How many bytes of characters are looked at together.
const CHUNK: usize = 256;

/// How much of a buffer was filled, and whether the text was longer than that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub len: usize,
    pub cut: bool,
}

/// Where the characters of a string are and how wide each is.
struct Characters {
    address: usize,
    count: usize,
    width: usize,
    ascii: bool,
}

/// Writes the text of the string object at an address into `out` as UTF-8. Safe to call in a hook.
pub fn read_text<M: Memory>(
    memory: &mut M,
    layout: &UnicodeLayout,
    object: usize,
    out: &mut [u8],
) -> Result<Written, Unreadable> {
    let characters = characters(memory, layout, object)?;
    if characters.ascii {
        copy_ascii(memory, &characters, out)
    } else {
        encode(memory, &characters, out)
    }
}

fn characters<M: Memory>(
    memory: &mut M,
    layout: &UnicodeLayout,
    object: usize,
) -> Result<Characters, Unreadable> {
    let count = memory
        .word(object.wrapping_add(layout.length))
        .ok_or(Unreadable::Address)?;
    if count > MAX_CHARACTERS {
        return Err(Unreadable::Length);
    }
    let state = memory
        .half(object.wrapping_add(layout.state))
        .ok_or(Unreadable::Address)?;
    let width = ((state & layout.kind_mask) >> layout.kind_mask.trailing_zeros().min(31)) as usize;
    let ascii = state & layout.ascii_mask != 0;
    // Width 0 is a string of 3.10 or 3.11 whose characters were never brought into the canonical form.
    if !matches!(width, 1 | 2 | 4) || (ascii && width != 1) {
        return Err(Unreadable::StringKind);
    }
    let compact = state & layout.compact_mask != 0;
    let address = match (compact, ascii) {
        (true, true) => object.wrapping_add(layout.ascii_data),
        (true, false) => object.wrapping_add(layout.compact_data),
        // An instance of a subclass of str, such as a path library's, keeps its characters elsewhere.
        (false, _) => memory
            .word(object.wrapping_add(layout.compact_data))
            .ok_or(Unreadable::Address)?,
    };
    Ok(Characters {
        address,
        count,
        width,
        ascii,
    })
}

fn copy_ascii<M: Memory>(
    memory: &mut M,
    characters: &Characters,
    out: &mut [u8],
) -> Result<Written, Unreadable> {
    let len = characters.count.min(out.len());
    let Some(target) = out.get_mut(..len) else {
        return Err(Unreadable::Length);
    };
    if !memory.copy(characters.address, target) {
        return Err(Unreadable::Address);
    }
    if !target.is_ascii() {
        return Err(Unreadable::Character);
    }
    Ok(Written {
        len,
        cut: len < characters.count,
    })
}

fn encode<M: Memory>(
    memory: &mut M,
    characters: &Characters,
    out: &mut [u8],
) -> Result<Written, Unreadable> {
    let mut chunk = [0_u8; CHUNK];
    let mut len = 0;
    let mut done = 0;
    while done < characters.count {
        let now = (characters.count - done).min(CHUNK / characters.width);
        let Some(raw) = chunk.get_mut(..now * characters.width) else {
            return Err(Unreadable::Length);
        };
        if !memory.copy(
            characters.address.wrapping_add(done * characters.width),
            raw,
        ) {
            return Err(Unreadable::Address);
        }
        for unit in raw.chunks_exact(characters.width) {
            let mut utf8 = [0; 4];
            let utf8 = character(unit)?.encode_utf8(&mut utf8).as_bytes();
            let Some(target) = out.get_mut(len..len + utf8.len()) else {
                return Ok(Written { len, cut: true });
            };
            target.copy_from_slice(utf8);
            len += utf8.len();
        }
        done += now;
    }
    Ok(Written { len, cut: false })
}

/// The character in one, two or four little-endian bytes.
fn character(unit: &[u8]) -> Result<char, Unreadable> {
    let value = unit
        .iter()
        .rev()
        .fold(0_u32, |value, &byte| value << 8 | u32::from(byte));
    match value {
        0xd800..=0xdfff => Ok(char::REPLACEMENT_CHARACTER),
        _ => char::from_u32(value).ok_or(Unreadable::Character),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake_objects::{FakeString, LAYOUTS};
    use super::super::memory::Direct;
    use super::*;

    fn read(
        layout: &UnicodeLayout,
        string: &FakeString,
        capacity: usize,
    ) -> Result<(String, bool), Unreadable> {
        let mut out = vec![0; capacity];
        // SAFETY: the fake string is alive for the call and describes only its own memory.
        let mut memory = unsafe { Direct::trusting() };
        let written = read_text(&mut memory, layout, string.address(), &mut out)?;
        out.truncate(written.len);
        Ok((String::from_utf8(out).unwrap(), written.cut))
    }

    #[test]
    fn every_kind_of_string_comes_out_as_utf8() {
        let long = "ключ漢".repeat(500);
        for layout in LAYOUTS {
            for text in [
                "",
                "plain_name",
                "caf\u{e9}",
                "\u{ff}\u{80}",
                "漢字",
                "a漢\u{7ff}\u{800}",
                "x🦀\u{10ffff}",
                &long,
            ] {
                let string = FakeString::new(&layout.unicode, text);
                assert_eq!(
                    read(&layout.unicode, &string, 8192),
                    Ok((text.to_owned(), false))
                );
            }
        }
    }

    #[test]
    fn a_string_that_keeps_its_characters_elsewhere_is_read() {
        for layout in LAYOUTS {
            for text in ["plain", "é", "漢字", "🦀"] {
                let string = FakeString::apart(&layout.unicode, text);
                assert_eq!(
                    read(&layout.unicode, &string, 64),
                    Ok((text.to_owned(), false))
                );
            }
        }
    }

    #[test]
    fn a_long_text_is_cut_at_a_character_border() {
        let layout = &LAYOUTS[0].unicode;
        for (text, capacity, expected) in [
            ("abcdef", 4, "abcd"),
            ("ééé", 5, "éé"),
            ("漢字漢字", 8, "漢字"),
            ("🦀🦀", 7, "🦀"),
            ("🦀", 3, ""),
            ("ab", 0, ""),
        ] {
            let string = FakeString::new(layout, text);
            assert_eq!(
                read(layout, &string, capacity),
                Ok((expected.to_owned(), true)),
                "{text:?} in {capacity}"
            );
        }
        assert_eq!(
            read(layout, &FakeString::new(layout, "漢字"), 6),
            Ok(("漢字".to_owned(), false))
        );
    }

    #[test]
    fn a_lone_surrogate_becomes_the_replacement_character() {
        let layout = &LAYOUTS[0].unicode;
        let string = FakeString::from_units(layout, 2, &[0x61, 0xdc80, 0xd83e, 0x62]);
        assert_eq!(
            read(layout, &string, 64),
            Ok(("a\u{fffd}\u{fffd}b".to_owned(), false))
        );
    }

    #[test]
    fn what_is_not_a_string_is_refused() {
        let layout = &LAYOUTS[0].unicode;
        let beyond_unicode = FakeString::from_units(layout, 4, &[0x11_0000]);
        assert_eq!(
            read(layout, &beyond_unicode, 64),
            Err(Unreadable::Character)
        );
        for kind in [0, 3, 5, 6, 7] {
            let mut string = FakeString::new(layout, "漢");
            string.set_kind(layout, kind);
            assert_eq!(read(layout, &string, 64), Err(Unreadable::StringKind));
        }
        let mut wide_ascii = FakeString::new(layout, "ascii");
        wide_ascii.set_kind(layout, 2);
        assert_eq!(read(layout, &wide_ascii, 64), Err(Unreadable::StringKind));
        for length in [usize::MAX, MAX_CHARACTERS + 1] {
            let mut string = FakeString::new(layout, "ascii");
            string.set_length(layout, length);
            assert_eq!(read(layout, &string, 64), Err(Unreadable::Length));
        }
        let mut not_ascii = FakeString::new(layout, "ascii");
        not_ascii.set_first_byte(layout, 0xe9);
        assert_eq!(read(layout, &not_ascii, 64), Err(Unreadable::Character));
    }

    #[test]
    fn a_null_pointer_is_refused() {
        // SAFETY: null is refused before anything is read.
        let mut memory = unsafe { Direct::trusting() };
        assert_eq!(
            read_text(&mut memory, &LAYOUTS[0].unicode, 0, &mut [0; 8]),
            Err(Unreadable::Address)
        );
    }
}
