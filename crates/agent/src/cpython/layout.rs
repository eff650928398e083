//! The offsets that the readers of frames and code objects need, as plain data.
//!
//! `detect` fills a [`Layout`], and `check` verifies it. All offsets are in bytes from the start of the struct named in the
//! field's comment.

/// The layout of an interpreter's frames, code objects, strings and bytes objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Major and minor version of the interpreter.
    pub version: (u8, u8),
    /// The path from a thread state to its innermost frame.
    pub current_frame: CurrentFrame,
    /// How to recognise the Python frames that one call of the evaluation function runs.
    pub evaluations: Evaluations,
    /// Pointer to the calling frame, in a frame.
    pub frame_previous: usize,
    /// Pointer to the code object, in a frame.
    pub frame_code: usize,
    /// Mask for that pointer: 3.14 and later store tags in its low bits.
    pub frame_code_mask: usize,
    /// The instruction, in a frame: a pointer, or an i32 where `instr_is_index` is true.
    ///
    /// A reader may load eight bytes in both cases: other fields of the same frame follow the index.
    pub frame_instr: usize,
    /// The byte that identifies the owner of a frame, in versions with shim frames.
    pub frame_owner: Option<usize>,
    /// Owners from this value on mark a shim frame, which readers skip.
    pub first_shim_owner: u8,
    /// True if the instruction is an index in code units (3.10), false if it points into the bytecode.
    pub instr_is_index: bool,
    /// Start of the bytecode in a code object; 0 where the instruction is an index.
    pub code_bytes: usize,
    pub code: CodeLayout,
    pub unicode: UnicodeLayout,
    pub bytes: BytesLayout,
}

/// The path from a thread state to its innermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurrentFrame {
    /// The thread state points to the frame (3.10, 3.13 and later).
    Direct(usize),
    /// The thread state points to a C frame record, which points to the frame (3.11, 3.12).
    ViaCFrame { cframe: usize, current_frame: usize },
}

/// An address in the stack frame of each call of the interpreter's evaluation function. It identifies the native frames
/// of such calls without knowledge of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluations {
    /// A record for each call, linked from the thread state (3.10, 3.11). If it points to a frame, that is the innermost
    /// one of the call; if not, each call runs one frame.
    CFrames {
        cframe: usize,
        previous: usize,
        current_frame: Option<usize>,
    },
    /// The shim frame outside of the frames that the call runs (3.12 and later).
    Shims,
}

/// Offsets in a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeLayout {
    /// Address of `PyCode_Type` in this process; 0 in a table, filled in by `detect`.
    pub type_address: usize,
    /// The value of `PyCode_Type.tp_basicsize` if the other offsets are right.
    pub basic_size: usize,
    /// `ob_type` of any object.
    pub ob_type: usize,
    pub name: usize,
    /// Absent before 3.11; the name is used instead.
    pub qualname: Option<usize>,
    pub filename: usize,
    /// An i32.
    pub first_line: usize,
    pub linetable: usize,
    /// An i32: code units before the instruction that makes a frame visible to Python. The self-check needs it.
    pub first_traceable: Option<usize>,
}

/// Offsets in a string object, and the bits of its state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnicodeLayout {
    /// Length in characters.
    pub length: usize,
    /// A u32 of bit fields.
    pub state: usize,
    /// Start of the characters of a compact ASCII string.
    pub ascii_data: usize,
    /// Start of the characters of any other compact string; in a string that is not compact, the pointer to the characters.
    pub compact_data: usize,
    pub kind_mask: u32,
    pub compact_mask: u32,
    pub ascii_mask: u32,
}

impl UnicodeLayout {
    /// Length and address of the UTF-8 form, which follow the fields of an ASCII string.
    pub const fn utf8(&self) -> (usize, usize) {
        (self.ascii_data, self.ascii_data + size_of::<usize>())
    }
}

/// Offsets in a bytes object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesLayout {
    pub length: usize,
    pub data: usize,
}

/// The instruction offset of a frame that has not started. It means the first line of the code.
pub const BEFORE_START: u32 = u32::MAX;

/// Bytes of one code unit, the same in all supported versions.
const CODE_UNIT: u64 = 2;

/// Returns the offset in bytes of an instruction in its bytecode, or [`BEFORE_START`]. A hook may call it.
///
/// `raw_instr` is the word at `frame_instr`; if the instruction is an index, only its low 32 bits count. A pointer before
/// the bytecode, or further after its start than any bytecode is long, means that the frame has not started.
#[inline]
pub fn instr_offset(layout: &Layout, code: usize, raw_instr: usize) -> u32 {
    let offset = if layout.instr_is_index {
        let index = raw_instr as u32 as i32;
        if index < 0 {
            return BEFORE_START;
        }
        index as u64 * CODE_UNIT
    } else {
        let start = code.wrapping_add(layout.code_bytes);
        if raw_instr < start {
            return BEFORE_START;
        }
        (raw_instr - start) as u64
    };
    if offset > i32::MAX as u64 {
        BEFORE_START
    } else {
        offset as u32
    }
}

#[cfg(test)]
mod tests {
    use super::super::tables::{v3_10, v3_11};
    use super::*;

    #[test]
    fn a_pointer_becomes_its_distance_from_the_bytecode() {
        let layout = v3_11::LAYOUT;
        assert_eq!(
            instr_offset(&layout, 0x10_0000, 0x10_0000 + layout.code_bytes),
            0
        );
        assert_eq!(
            instr_offset(&layout, 0x10_0000, 0x10_0000 + layout.code_bytes + 14),
            14
        );
    }

    #[test]
    fn a_pointer_before_or_far_after_the_bytecode_means_not_started() {
        let layout = v3_11::LAYOUT;
        assert_eq!(
            instr_offset(&layout, 0x10_0000, 0x10_0000 + layout.code_bytes - 2),
            BEFORE_START
        );
        assert_eq!(instr_offset(&layout, 0x10_0000, 0), BEFORE_START);
        assert_eq!(instr_offset(&layout, 0x10_0000, usize::MAX), BEFORE_START);
    }

    #[test]
    fn an_index_counts_code_units_and_ignores_the_upper_half_of_the_word() {
        let layout = v3_10::LAYOUT;
        assert_eq!(instr_offset(&layout, 0x10_0000, 7), 14);
        assert_eq!(instr_offset(&layout, 0x10_0000, 0x2a_0000_0007), 14);
        assert_eq!(
            instr_offset(&layout, 0x10_0000, 0x2a_ffff_ffff),
            BEFORE_START
        );
        assert_eq!(instr_offset(&layout, 0x10_0000, 0x7fff_ffff), BEFORE_START);
    }
}
