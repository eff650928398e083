//! The offsets a frame walker and a code reader need, as plain data.
//!
//! A [`Layout`] says where things are, never whether they are valid: `detect` fills it, `check` proves it. All offsets
//! are in bytes from the start of the struct named in the field's comment.

/// Where one interpreter keeps frames, code objects, strings and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Major and minor version of the interpreter.
    pub version: (u8, u8),
    /// The way from a thread state to its innermost frame.
    pub current_frame: CurrentFrame,
    /// How to tell which C function call runs which frames.
    pub evaluations: Evaluations,
    /// Pointer to the calling frame, in a frame.
    pub frame_previous: usize,
    /// Pointer to the code object, in a frame.
    pub frame_code: usize,
    /// What to AND to that pointer: 3.14 and later keep tags in its low bits.
    pub frame_code_mask: usize,
    /// The instruction, in a frame: a pointer, or an i32 where `instr_is_index` is true.
    ///
    /// A hot walker may read eight bytes in both cases: the index is followed by other fields of the same frame.
    pub frame_instr: usize,
    /// The byte that says who owns a frame; present where frames exist that are not Python's.
    pub frame_owner: Option<usize>,
    /// Owners from this value on mark a shim frame between C and Python, to be skipped.
    pub first_shim_owner: u8,
    /// True if the instruction is an index in code units (3.10), false if it points into the bytecode.
    pub instr_is_index: bool,
    /// Start of the bytecode in a code object; 0 where the instruction is an index.
    pub code_bytes: usize,
    pub code: CodeLayout,
    pub unicode: UnicodeLayout,
    pub bytes: BytesLayout,
}

/// How to get from a thread state to its innermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurrentFrame {
    /// The thread state points to the frame (3.10, 3.13 and later).
    Direct(usize),
    /// The thread state points to a C frame record, which points to the frame (3.11, 3.12).
    ViaCFrame { cframe: usize, current_frame: usize },
}

/// What a call of the interpreter's evaluation function leaves on the C stack, by which native frames of such calls are
/// recognised without knowing the function: an address within the call's own stack frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluations {
    /// A record for each call, chained from the thread state (3.10, 3.11). Where it points to a frame, that is the
    /// innermost one of the call; where it does not, each call runs one frame.
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
    /// What `PyCode_Type.tp_basicsize` must be if the other offsets are right.
    pub basic_size: usize,
    /// `ob_type` of any object.
    pub ob_type: usize,
    pub name: usize,
    /// Absent before 3.11, where the name stands in.
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
    /// Start of the characters of any other compact string; the pointer to them of a string that is not compact.
    pub compact_data: usize,
    pub kind_mask: u32,
    pub compact_mask: u32,
    pub ascii_mask: u32,
}

/// Offsets in a bytes object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesLayout {
    pub length: usize,
    pub data: usize,
}

/// The instruction offset of a frame that has not begun: it stands for the first line of the code.
pub const BEFORE_START: u32 = u32::MAX;

/// Bytes of one code unit, the same in all supported versions.
const CODE_UNIT: u64 = 2;

/// Offset in bytes of an instruction into its bytecode, or [`BEFORE_START`]. Safe to call in a hook.
///
/// `raw_instr` is the word at `frame_instr`; where the instruction is an index, only its low 32 bits count. A pointer
/// that lies before the bytecode, or further behind its start than any bytecode is long, counts as not begun.
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
    fn a_pointer_before_or_far_behind_the_bytecode_counts_as_not_begun() {
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
