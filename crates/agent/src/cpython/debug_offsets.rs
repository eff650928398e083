//! The debug offsets that CPython 3.13 and later publish at the start of `_PyRuntime`.
//!
//! The struct differs between minor versions and is fixed within one; a [`DebugOffsetsMap`] has the position of each
//! number. Every number must fit the others and the size of its struct, or the interpreter is refused.

use super::layout::{BytesLayout, CodeLayout, CurrentFrame, Evaluations, Layout, UnicodeLayout};
use super::unsupported::Unsupported;

/// Position in bytes of each number that is used from one version's `_Py_DebugOffsets`.
#[derive(Clone, Copy, Debug)]
pub struct DebugOffsetsMap {
    pub version: (u8, u8),
    /// Size of the whole struct.
    pub size: usize,
    pub thread_state_size: usize,
    pub thread_state_current_frame: usize,
    pub frame_size: usize,
    pub frame_previous: usize,
    pub frame_executable: usize,
    pub frame_instr_ptr: usize,
    pub frame_owner: usize,
    pub code_size: usize,
    pub code_filename: usize,
    pub code_name: usize,
    pub code_qualname: usize,
    pub code_linetable: usize,
    pub code_firstlineno: usize,
    pub code_co_code_adaptive: usize,
    pub object_size: usize,
    pub object_ob_type: usize,
    pub bytes_size: usize,
    pub bytes_ob_size: usize,
    pub bytes_ob_sval: usize,
    pub unicode_size: usize,
    pub unicode_state: usize,
    pub unicode_length: usize,
    pub unicode_asciiobject_size: usize,
    pub unpublished: Unpublished,
}

/// Numbers that the struct does not contain, from the version's headers.
#[derive(Clone, Copy, Debug)]
pub struct Unpublished {
    /// Tag bits in a frame's code pointer.
    pub frame_code_tag_bits: usize,
    pub first_shim_owner: u8,
    pub first_traceable: usize,
    pub compact_data: usize,
    pub kind_mask: u32,
    pub compact_mask: u32,
    pub ascii_mask: u32,
}

/// The first eight bytes of `_PyRuntime`.
const COOKIE: &[u8] = b"xdebugpy";
const VERSION: usize = 8;
const FREE_THREADED: usize = 16;

/// Sizes that no struct of any version reaches.
const MAX_THREAD_STATE: usize = 1 << 16;
const MAX_OBJECT: usize = 1 << 12;

const POINTER: usize = size_of::<usize>();

/// Converts the published bytes to a layout, or names the first number that cannot be right.
pub fn layout_from(map: &DebugOffsetsMap, published: &[u8]) -> Result<Layout, Unsupported> {
    let read = Published(published);
    if published.get(..COOKIE.len()) != Some(COOKIE) {
        return Err(Unsupported::DebugOffsets { what: "cookie" });
    }
    if published.len() < map.size {
        return Err(Unsupported::DebugOffsets {
            what: "size of the struct",
        });
    }
    // The version is PY_VERSION_HEX: major, minor, micro and level, one byte each.
    if read.number(VERSION, "version")? >> 16
        != u64::from(map.version.0) << 8 | u64::from(map.version.1)
    {
        return Err(Unsupported::DebugOffsets { what: "version" });
    }
    match read.number(FREE_THREADED, "free-threaded flag")? {
        0 => {}
        1 => return Err(Unsupported::FreeThreaded),
        _ => {
            return Err(Unsupported::DebugOffsets {
                what: "free-threaded flag",
            });
        }
    }

    let object = read.structure(map.object_size, MAX_OBJECT, 0, "size of an object")?;
    let ob_type = object.field(map.object_ob_type, POINTER, "type of an object")?;
    let thread = read.structure(
        map.thread_state_size,
        MAX_THREAD_STATE,
        0,
        "size of a thread state",
    )?;
    let frame = read.structure(map.frame_size, MAX_OBJECT, 0, "size of a frame")?;
    let code = read.structure(
        map.code_size,
        MAX_OBJECT,
        object.size,
        "size of a code object",
    )?;
    let bytes = read.structure(
        map.bytes_size,
        MAX_OBJECT,
        object.size,
        "size of a bytes object",
    )?;
    let unicode = read.structure(
        map.unicode_size,
        MAX_OBJECT,
        object.size,
        "size of a string",
    )?;
    let extra = &map.unpublished;
    let code_bytes = code.field(map.code_co_code_adaptive, 1, "bytecode of a code object")?;
    let layout = Layout {
        version: map.version,
        current_frame: CurrentFrame::Direct(thread.field(
            map.thread_state_current_frame,
            POINTER,
            "current frame of a thread state",
        )?),
        frame_previous: frame.field(map.frame_previous, POINTER, "previous of a frame")?,
        frame_code: frame.field(map.frame_executable, POINTER, "executable of a frame")?,
        frame_code_mask: !extra.frame_code_tag_bits,
        frame_instr: frame.field(map.frame_instr_ptr, POINTER, "instruction of a frame")?,
        evaluations: Evaluations::Shims,
        frame_owner: Some(frame.field(map.frame_owner, 1, "owner of a frame")?),
        first_shim_owner: extra.first_shim_owner,
        instr_is_index: false,
        code_bytes,
        code: CodeLayout {
            type_address: 0,
            basic_size: code_bytes,
            ob_type,
            name: code.field(map.code_name, POINTER, "name of a code object")?,
            qualname: Some(code.field(
                map.code_qualname,
                POINTER,
                "qualified name of a code object",
            )?),
            filename: code.field(map.code_filename, POINTER, "file name of a code object")?,
            first_line: code.field(map.code_firstlineno, 4, "first line of a code object")?,
            linetable: code.field(map.code_linetable, POINTER, "line table of a code object")?,
            first_traceable: Some(extra.first_traceable),
        },
        unicode: UnicodeLayout {
            length: unicode.field(map.unicode_length, POINTER, "length of a string")?,
            state: unicode.field(map.unicode_state, 4, "state of a string")?,
            ascii_data: unicode.field(map.unicode_asciiobject_size, 1, "characters of a string")?,
            compact_data: extra.compact_data,
            kind_mask: extra.kind_mask,
            compact_mask: extra.compact_mask,
            ascii_mask: extra.ascii_mask,
        },
        bytes: BytesLayout {
            length: bytes.field(map.bytes_ob_size, POINTER, "length of a bytes object")?,
            data: bytes.field(map.bytes_ob_sval, 1, "content of a bytes object")?,
        },
    };
    agree(&layout, unicode.size, code.size)?;
    Ok(layout)
}

/// Checks that fields of one struct have different offsets, and that the unpublished numbers fit the published ones.
fn agree(layout: &Layout, unicode_size: usize, code_size: usize) -> Result<(), Unsupported> {
    let code = &layout.code;
    let frame = [layout.frame_previous, layout.frame_code, layout.frame_instr];
    let texts = [
        code.name,
        code.qualname.unwrap_or(0),
        code.filename,
        code.linetable,
    ];
    if !all_differ(&frame) {
        return Err(Unsupported::DebugOffsets {
            what: "fields of a frame at the same offset",
        });
    }
    if !all_differ(&texts) {
        return Err(Unsupported::DebugOffsets {
            what: "fields of a code object at the same offset",
        });
    }
    if code
        .first_traceable
        .is_some_and(|offset| offset + 4 > code_size)
    {
        return Err(Unsupported::DebugOffsets {
            what: "size of a code object",
        });
    }
    // A string object that is not compact ends with the pointer to its characters.
    let unicode = &layout.unicode;
    if unicode.compact_data + POINTER != unicode_size || unicode.ascii_data >= unicode.compact_data
    {
        return Err(Unsupported::DebugOffsets {
            what: "size of a string",
        });
    }
    Ok(())
}

fn all_differ(offsets: &[usize]) -> bool {
    offsets
        .iter()
        .enumerate()
        .all(|(index, offset)| !offsets.iter().skip(index + 1).any(|other| other == offset))
}

/// The published bytes.
#[derive(Clone, Copy)]
struct Published<'a>(&'a [u8]);

/// One struct that the offsets describe: fields lie between `start` and `size`.
struct Structure<'a> {
    published: Published<'a>,
    start: usize,
    size: usize,
}

impl<'a> Published<'a> {
    fn number(self, at: usize, what: &'static str) -> Result<u64, Unsupported> {
        self.0
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .map(|bytes| u64::from_le_bytes(*bytes))
            .ok_or(Unsupported::DebugOffsets { what })
    }

    fn structure(
        self,
        at: usize,
        most: usize,
        start: usize,
        what: &'static str,
    ) -> Result<Structure<'a>, Unsupported> {
        match usize::try_from(self.number(at, what)?) {
            Ok(size) if size > start && size <= most => Ok(Structure {
                published: self,
                start,
                size,
            }),
            _ => Err(Unsupported::DebugOffsets { what }),
        }
    }
}

impl Structure<'_> {
    /// Returns an offset that is aligned to its field's width and leaves room for the field.
    fn field(&self, at: usize, width: usize, what: &'static str) -> Result<usize, Unsupported> {
        match usize::try_from(self.published.number(at, what)?) {
            Ok(offset)
                if offset >= self.start
                    && offset < self.size
                    && self.size - offset >= width
                    && offset % width == 0 =>
            {
                Ok(offset)
            }
            _ => Err(Unsupported::DebugOffsets { what }),
        }
    }
}

#[cfg(test)]
mod tests;
