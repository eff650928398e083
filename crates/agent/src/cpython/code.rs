//! Reads from a code object the texts and bytes that a capture stores.
//!
//! [`read_code`] runs inside allocation hooks: it takes no lock, does not allocate, calls no Python function and cannot
//! panic. The analysis decodes the line table from the version and the raw bytes.

use super::layout::Layout;
use super::memory::{Direct, Memory};
use super::text::{Written, read_text};
use std::fmt;

const NAME_CAPACITY: usize = 1024;
const FILENAME_CAPACITY: usize = 4096;

/// No compiler writes a longer table; a larger length means that the object is not a bytes object.
const MAX_LINETABLE: usize = 1 << 28;

/// Buffers for the texts of one code object. The caller owns them and reuses them for the next one.
pub struct CodeBuffers {
    name: [u8; NAME_CAPACITY],
    qualname: [u8; NAME_CAPACITY],
    filename: [u8; FILENAME_CAPACITY],
}

impl CodeBuffers {
    pub const fn new() -> Self {
        Self {
            name: [0; NAME_CAPACITY],
            qualname: [0; NAME_CAPACITY],
            filename: [0; FILENAME_CAPACITY],
        }
    }
}

impl Default for CodeBuffers {
    fn default() -> Self {
        Self::new()
    }
}

/// A text in UTF-8; `cut` if the buffer was too short for all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    pub utf8: &'a [u8],
    pub cut: bool,
}

/// The content of a bytes object, in the interpreter's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawBytes {
    pub address: usize,
    pub len: usize,
}

impl RawBytes {
    /// # Safety
    /// The code object it was read from must stay alive as long as the slice is used.
    pub unsafe fn as_slice<'a>(self) -> &'a [u8] {
        // SAFETY: `read_code` found the object well formed, bytes objects never change, and the caller keeps it alive.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len) }
    }
}

/// The parts of a code object that a capture stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeText<'a> {
    pub name: Text<'a>,
    /// The same as `name` on 3.10, whose code objects have no qualified name.
    pub qualname: Text<'a>,
    pub filename: Text<'a>,
    pub first_line: i32,
    pub linetable: RawBytes,
}

/// The reason why a code object could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// A pointer is null or cannot be read.
    Address,
    /// The object's type is not `PyCode_Type`.
    NotCode,
    /// The object has no references left: the interpreter is freeing it.
    Dying,
    /// A length is negative or larger than any real one.
    Length,
    /// A string is in none of the canonical forms.
    StringKind,
    /// A string contains a value that is no character.
    Character,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "a pointer of the code object cannot be followed",
            Self::NotCode => "the object is not a code object",
            Self::Dying => "the code object is being freed",
            Self::Length => "a length in the code object is impossible",
            Self::StringKind => "a string of the code object is in an unknown form",
            Self::Character => "a string of the code object contains a value that is no character",
        })
    }
}

impl std::error::Error for Unreadable {}

/// Reads one code object without the GIL and without allocating. A hook may call it.
///
/// # Safety
/// `code` must be the address of a live Python object for which `layout` was checked in this process. A frame of the
/// calling thread that refers to it keeps it alive; its names, file name and line table are set before it first runs.
pub unsafe fn read_code<'a>(
    layout: &Layout,
    code: usize,
    out: &'a mut CodeBuffers,
) -> Result<CodeText<'a>, Unreadable> {
    // SAFETY: the object is alive and the layout is right, so each pointer leads to an object that the code object
    // owns. These objects are immutable, so no thread writes them at the same time.
    unsafe { read_code_from(&mut Direct, layout, code, out) }
}

/// Does the same as [`read_code`] in any memory; the self-check reads memory through the kernel.
///
/// # Safety
/// As for [`read_code`], unless `memory` checks addresses.
pub unsafe fn read_code_from<'a, M: Memory>(
    memory: &mut M,
    layout: &Layout,
    code: usize,
    out: &'a mut CodeBuffers,
) -> Result<CodeText<'a>, Unreadable> {
    let at = &layout.code;
    // SAFETY: every object has its type at this offset.
    let object_type = unsafe { memory.word(code.wrapping_add(at.ob_type)) };
    if object_type.ok_or(Unreadable::Address)? != at.type_address {
        return Err(Unreadable::NotCode);
    }
    // 3.11 drops a returning frame's code while the frame is still in the chain; then the strings may be freed already.
    // In every version an object starts with the low half of its reference count, which is not zero for immortal ones.
    // SAFETY: as for the type.
    let (references, first_line) = unsafe {
        (
            memory.half(code),
            memory.half(code.wrapping_add(at.first_line)),
        )
    };
    if references.ok_or(Unreadable::Address)? == 0 {
        return Err(Unreadable::Dying);
    }
    let first_line = first_line.ok_or(Unreadable::Address)? as i32;
    // SAFETY: the object is a code object that has references, so its fields refer to live strings and bytes.
    let (name, filename, linetable, qualname) = unsafe {
        (
            text_at(memory, layout, code.wrapping_add(at.name), &mut out.name)?,
            text_at(
                memory,
                layout,
                code.wrapping_add(at.filename),
                &mut out.filename,
            )?,
            bytes_at(memory, layout, code.wrapping_add(at.linetable))?,
            match at.qualname {
                Some(offset) => Some(text_at(
                    memory,
                    layout,
                    code.wrapping_add(offset),
                    &mut out.qualname,
                )?),
                None => None,
            },
        )
    };
    let name = text(&out.name, name);
    let qualname = qualname.map_or(name, |written| text(&out.qualname, written));
    Ok(CodeText {
        name,
        qualname,
        filename: text(&out.filename, filename),
        first_line,
        linetable,
    })
}

/// # Safety
/// The word at `field` is the address of a live string, unless `memory` checks addresses.
unsafe fn text_at<M: Memory>(
    memory: &mut M,
    layout: &Layout,
    field: usize,
    out: &mut [u8],
) -> Result<Written, Unreadable> {
    // SAFETY: passed on from the caller.
    unsafe {
        let object = memory.word(field).ok_or(Unreadable::Address)?;
        read_text(memory, &layout.unicode, object, out)
    }
}

/// # Safety
/// The word at `field` is the address of a live bytes object, unless `memory` checks addresses.
unsafe fn bytes_at<M: Memory>(
    memory: &mut M,
    layout: &Layout,
    field: usize,
) -> Result<RawBytes, Unreadable> {
    // SAFETY: passed on from the caller.
    let (object, len) = unsafe {
        let object = memory.word(field).ok_or(Unreadable::Address)?;
        (
            object,
            memory.word(object.wrapping_add(layout.bytes.length)),
        )
    };
    let len = len.ok_or(Unreadable::Address)?;
    if len > MAX_LINETABLE {
        return Err(Unreadable::Length);
    }
    Ok(RawBytes {
        address: object.wrapping_add(layout.bytes.data),
        len,
    })
}

fn text(buffer: &[u8], written: Written) -> Text<'_> {
    Text {
        utf8: buffer.get(..written.len).unwrap_or_default(),
        cut: written.cut,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake_objects::{FakeCode, LAYOUTS};
    use super::*;

    #[test]
    fn a_code_object_is_read_completely_in_every_layout() {
        for layout in LAYOUTS {
            let code = FakeCode::new(
                layout,
                "<lambda>",
                "Klasse.métier.<locals>.<lambda>",
                "/srv/漢字/🦀.py",
                1207,
                &[1, 2, 3],
            );
            let mut buffers = CodeBuffers::new();
            // SAFETY: the fake objects are alive and laid out as the layout says.
            let text = unsafe { read_code(&code.layout, code.address(), &mut buffers) }.unwrap();
            assert_eq!(text.name.utf8, b"<lambda>");
            let qualname = if layout.version == (3, 10) {
                "<lambda>"
            } else {
                "Klasse.métier.<locals>.<lambda>"
            };
            assert_eq!(text.qualname.utf8, qualname.as_bytes());
            assert_eq!(text.filename.utf8, "/srv/漢字/🦀.py".as_bytes());
            assert!(!text.name.cut && !text.qualname.cut && !text.filename.cut);
            assert_eq!(text.first_line, 1207);
            // SAFETY: the fake code object outlives the slice.
            assert_eq!(unsafe { text.linetable.as_slice() }, [1, 2, 3]);
        }
    }

    #[test]
    fn an_overlong_path_is_cut_and_marked() {
        let layout = LAYOUTS[1];
        let path = "é".repeat(3000);
        let code = FakeCode::new(layout, "f", "f", &path, 1, &[]);
        let mut buffers = CodeBuffers::new();
        // SAFETY: the fake objects are alive and laid out as the layout says.
        let text = unsafe { read_code(&code.layout, code.address(), &mut buffers) }.unwrap();
        assert!(text.filename.cut);
        assert_eq!(
            text.filename.utf8,
            "é".repeat(FILENAME_CAPACITY / 2).as_bytes()
        );
    }

    #[test]
    fn an_object_of_another_type_is_refused() {
        let mut code = FakeCode::new(LAYOUTS[0], "f", "f", "f.py", 1, &[]);
        code.layout.code.type_address += 8;
        let mut buffers = CodeBuffers::new();
        // SAFETY: the fake objects are alive and laid out as the layout says.
        let result = unsafe { read_code(&code.layout, code.address(), &mut buffers) }.map(|_| ());
        assert_eq!(result, Err(Unreadable::NotCode));
    }

    #[test]
    fn an_impossible_line_table_is_refused() {
        let mut code = FakeCode::new(LAYOUTS[0], "f", "f", "f.py", 1, &[]);
        code.set_linetable_length(usize::MAX);
        let mut buffers = CodeBuffers::new();
        // SAFETY: the fake objects are alive and laid out as the layout says.
        let result = unsafe { read_code(&code.layout, code.address(), &mut buffers) }.map(|_| ());
        assert_eq!(result, Err(Unreadable::Length));
    }

    #[test]
    fn a_code_object_without_references_is_refused() {
        let mut code = FakeCode::new(LAYOUTS[1], "f", "f", "f.py", 1, &[]);
        code.set_references(0);
        let mut buffers = CodeBuffers::new();
        // SAFETY: the fake objects are alive and laid out as the layout says.
        let result = unsafe { read_code(&code.layout, code.address(), &mut buffers) }.map(|_| ());
        assert_eq!(result, Err(Unreadable::Dying));
    }
}
