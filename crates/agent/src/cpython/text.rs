//! Python strings to UTF-8, without calling the interpreter.
//!
//! Reads only the object's bytes: no GIL, no allocation, no call into Python. A lone surrogate, which UTF-8 cannot
//! hold, becomes U+FFFD; a text longer than its buffer is cut at a character boundary.

use super::code::Unreadable;
use super::layout::UnicodeLayout;
use super::memory::Memory;

/// No name or path is longer; a larger length means that the object is not a string.
const MAX_CHARACTERS: usize = 1 << 28;

/// Bytes of characters that are copied at a time.
const CHUNK: usize = 256;

/// Bytes of a buffer that were filled, and whether the text was longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub len: usize,
    pub cut: bool,
}

/// Address, number and width of the characters of a string.
struct Characters {
    address: usize,
    count: usize,
    width: usize,
    ascii: bool,
}

/// Writes the text of the string object at an address into `out` as UTF-8. A hook may call it.
///
/// # Safety
/// `object` must be null or the address of a live string for which `layout` is right, unless `memory` checks addresses.
pub unsafe fn read_text<M: Memory>(
    memory: &mut M,
    layout: &UnicodeLayout,
    object: usize,
    out: &mut [u8],
) -> Result<Written, Unreadable> {
    // SAFETY: passed on from the caller; the characters that are found belong to the string.
    unsafe {
        let characters = characters(memory, layout, object)?;
        if characters.ascii {
            copy_ascii(memory, &characters, out)
        } else {
            encode(memory, &characters, out)
        }
    }
}

/// # Safety
/// As for [`read_text`].
unsafe fn characters<M: Memory>(
    memory: &mut M,
    layout: &UnicodeLayout,
    object: usize,
) -> Result<Characters, Unreadable> {
    // SAFETY: a string has its length and state at these offsets.
    let (count, state) = unsafe {
        (
            memory.word(object.wrapping_add(layout.length)),
            memory.half(object.wrapping_add(layout.state)),
        )
    };
    let count = count.ok_or(Unreadable::Address)?;
    if count > MAX_CHARACTERS {
        return Err(Unreadable::Length);
    }
    let state = state.ok_or(Unreadable::Address)?;
    let width = ((state & layout.kind_mask) >> layout.kind_mask.trailing_zeros().min(31)) as usize;
    let ascii = state & layout.ascii_mask != 0;
    // Width 0 marks a string of 3.10 or 3.11 that was never converted to the canonical form.
    if !matches!(width, 1 | 2 | 4) || (ascii && width != 1) {
        return Err(Unreadable::StringKind);
    }
    let compact = state & layout.compact_mask != 0;
    let address = match (compact, ascii) {
        (true, true) => object.wrapping_add(layout.ascii_data),
        (true, false) => object.wrapping_add(layout.compact_data),
        // An instance of a subclass of str, such as a path library's, has its characters in a separate block.
        // SAFETY: a string that is not compact has a pointer at this offset.
        (false, _) => unsafe { memory.word(object.wrapping_add(layout.compact_data)) }
            .ok_or(Unreadable::Address)?,
    };
    Ok(Characters {
        address,
        count,
        width,
        ascii,
    })
}

/// # Safety
/// `characters` are those of a live string, unless `memory` checks addresses.
unsafe fn copy_ascii<M: Memory>(
    memory: &mut M,
    characters: &Characters,
    out: &mut [u8],
) -> Result<Written, Unreadable> {
    let len = characters.count.min(out.len());
    let Some(target) = out.get_mut(..len) else {
        return Err(Unreadable::Length);
    };
    // SAFETY: the string has at least as many characters, of one byte each.
    if !unsafe { memory.copy(characters.address, target) } {
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

/// # Safety
/// As for [`copy_ascii`].
unsafe fn encode<M: Memory>(
    memory: &mut M,
    characters: &Characters,
    out: &mut [u8],
) -> Result<Written, Unreadable> {
    let mut chunk = [0_u8; CHUNK];
    let mut len = 0;
    let mut done = 0;
    while done < characters.count {
        let n_next = (characters.count - done).min(CHUNK / characters.width);
        let Some(raw) = chunk.get_mut(..n_next * characters.width) else {
            return Err(Unreadable::Length);
        };
        let from = characters.address.wrapping_add(done * characters.width);
        // SAFETY: at most `count` characters of this width are read.
        if !unsafe { memory.copy(from, raw) } {
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
        done += n_next;
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
        let written = unsafe { read_text(&mut Direct, layout, string.address(), &mut out) }?;
        out.truncate(written.len);
        Ok((String::from_utf8(out).unwrap(), written.cut))
    }

    #[test]
    fn strings_of_every_width_are_read_as_utf8() {
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
    fn a_string_with_separate_characters_is_read() {
        for layout in LAYOUTS {
            for text in ["plain", "é", "漢字", "🦀"] {
                let string = FakeString::with_separate_characters(&layout.unicode, text);
                assert_eq!(
                    read(&layout.unicode, &string, 64),
                    Ok((text.to_owned(), false))
                );
            }
        }
    }

    #[test]
    fn a_long_text_is_cut_at_a_character_boundary() {
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
    fn a_malformed_string_is_refused() {
        let layout = &LAYOUTS[0].unicode;
        let beyond_unicode = FakeString::from_units(layout, 4, &[0x11_0000]);
        assert_eq!(
            read(layout, &beyond_unicode, 64),
            Err(Unreadable::Character)
        );
        for width in [0, 3, 5, 6, 7] {
            let mut string = FakeString::new(layout, "漢");
            string.set_width(layout, width);
            assert_eq!(read(layout, &string, 64), Err(Unreadable::StringKind));
        }
        let mut wide_ascii = FakeString::new(layout, "ascii");
        wide_ascii.set_width(layout, 2);
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
        let result = unsafe { read_text(&mut Direct, &LAYOUTS[0].unicode, 0, &mut [0; 8]) };
        assert_eq!(result, Err(Unreadable::Address));
    }
}
