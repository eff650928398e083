//! One code object to the texts and bytes a capture keeps of it.
//!
//! [`read_code`] runs inside allocation hooks: it takes no lock, allocates nothing, calls nothing of Python and cannot
//! panic. Decoding the line table is left to the analysis, which has the version and the raw bytes.

use super::layout::Layout;
use super::memory::{Direct, Memory};
use super::text::{Written, read_text};
use std::fmt;

const NAME_CAPACITY: usize = 1024;
const FILENAME_CAPACITY: usize = 4096;

/// No compiler output comes near; a larger length means that this is not a bytes object.
const MAX_LINETABLE: usize = 1 << 28;

/// Room for the texts of one code object, owned by the caller and used again for the next one.
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

/// The content of a bytes object, still where the interpreter keeps it.
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

/// What a capture keeps of a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeText<'a> {
    pub name: Text<'a>,
    /// The name again on 3.10, which has no qualified names in code objects.
    pub qualname: Text<'a>,
    pub filename: Text<'a>,
    pub first_line: i32,
    pub linetable: RawBytes,
}

/// Why a code object could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// A pointer on the way is null or cannot be read.
    Address,
    /// The object's type is not `PyCode_Type`.
    NotCode,
    /// The object's last reference is gone: it is being freed right now.
    Dying,
    /// A length is negative or larger than any real one.
    Length,
    /// A string is in none of the canonical forms.
    StringKind,
    /// A string holds a value that is no character.
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
            Self::Character => "a string of the code object holds a value that is no character",
        })
    }
}

impl std::error::Error for Unreadable {}

/// Reads one code object without the GIL and without allocating. Safe to call in a hook.
///
/// # Safety
/// `code` must be the address of a live Python object for which `layout` was checked in this process. A frame of the
/// calling thread that refers to it keeps it alive; its names, file name and line table are set before it first runs.
pub unsafe fn read_code<'a>(
    layout: &Layout,
    code: usize,
    out: &'a mut CodeBuffers,
) -> Result<CodeText<'a>, Unreadable> {
    // SAFETY: the object is alive and the layout is right, so each pointer followed leads to an object that the code
    // object owns. They are immutable, so nobody writes them at the same time.
    let mut memory = unsafe { Direct::trusting() };
    read_code_from(&mut memory, layout, code, out)
}

/// The same over any memory; the self-check reads through the kernel.
pub fn read_code_from<'a, M: Memory>(
    memory: &mut M,
    layout: &Layout,
    code: usize,
    out: &'a mut CodeBuffers,
) -> Result<CodeText<'a>, Unreadable> {
    let at = &layout.code;
    if memory
        .word(code.wrapping_add(at.ob_type))
        .ok_or(Unreadable::Address)?
        != at.type_address
    {
        return Err(Unreadable::NotCode);
    }
    // 3.11 drops a returning frame's code while the frame is still in the chain; then the strings may be gone already.
    // The low half of the count is at the start of an object in every version, and is not zero for immortal ones.
    if memory.half(code).ok_or(Unreadable::Address)? == 0 {
        return Err(Unreadable::Dying);
    }
    let first_line = memory
        .half(code.wrapping_add(at.first_line))
        .ok_or(Unreadable::Address)? as i32;
    let name = text_at(memory, layout, code.wrapping_add(at.name), &mut out.name)?;
    let filename = text_at(
        memory,
        layout,
        code.wrapping_add(at.filename),
        &mut out.filename,
    )?;
    let linetable = bytes_at(memory, layout, code.wrapping_add(at.linetable))?;
    let name = text(&out.name, name);
    let qualname = match at.qualname {
        Some(offset) => {
            let written = text_at(memory, layout, code.wrapping_add(offset), &mut out.qualname)?;
            text(&out.qualname, written)
        }
        None => name,
    };
    Ok(CodeText {
        name,
        qualname,
        filename: text(&out.filename, filename),
        first_line,
        linetable,
    })
}

fn text_at<M: Memory>(
    memory: &mut M,
    layout: &Layout,
    field: usize,
    out: &mut [u8],
) -> Result<Written, Unreadable> {
    let object = memory.word(field).ok_or(Unreadable::Address)?;
    read_text(memory, &layout.unicode, object, out)
}

fn bytes_at<M: Memory>(
    memory: &mut M,
    layout: &Layout,
    field: usize,
) -> Result<RawBytes, Unreadable> {
    let object = memory.word(field).ok_or(Unreadable::Address)?;
    let len = memory
        .word(object.wrapping_add(layout.bytes.length))
        .ok_or(Unreadable::Address)?;
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
    fn a_code_object_comes_out_whole_in_every_layout() {
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
