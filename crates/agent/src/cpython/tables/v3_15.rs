//! Positions of the required fields in `_Py_DebugOffsets`, and the offsets that it lacks, in CPython 3.15.
//!
//! Printed from the headers by `tests/layout/generate`; never edited by hand.

use super::super::debug_offsets::{DebugOffsetsMap, Unpublished};

pub const MAP: DebugOffsetsMap = DebugOffsetsMap {
    version: (3, 15),
    size: 888,                       // sizeof(_Py_DebugOffsets)
    thread_state_size: 176,          // _Py_DebugOffsets.thread_state.size
    thread_state_current_frame: 208, // _Py_DebugOffsets.thread_state.current_frame
    frame_size: 312,                 // _Py_DebugOffsets.interpreter_frame.size
    frame_previous: 320,             // _Py_DebugOffsets.interpreter_frame.previous
    frame_executable: 328,           // _Py_DebugOffsets.interpreter_frame.executable
    frame_instr_ptr: 336,            // _Py_DebugOffsets.interpreter_frame.instr_ptr
    frame_owner: 352,                // _Py_DebugOffsets.interpreter_frame.owner
    code_size: 376,                  // _Py_DebugOffsets.code_object.size
    code_filename: 384,              // _Py_DebugOffsets.code_object.filename
    code_name: 392,                  // _Py_DebugOffsets.code_object.name
    code_qualname: 400,              // _Py_DebugOffsets.code_object.qualname
    code_linetable: 408,             // _Py_DebugOffsets.code_object.linetable
    code_firstlineno: 416,           // _Py_DebugOffsets.code_object.firstlineno
    code_co_code_adaptive: 448,      // _Py_DebugOffsets.code_object.co_code_adaptive
    object_size: 464,                // _Py_DebugOffsets.pyobject.size
    object_ob_type: 472,             // _Py_DebugOffsets.pyobject.ob_type
    bytes_size: 688,                 // _Py_DebugOffsets.bytes_object.size
    bytes_ob_size: 696,              // _Py_DebugOffsets.bytes_object.ob_size
    bytes_ob_sval: 704,              // _Py_DebugOffsets.bytes_object.ob_sval
    unicode_size: 712,               // _Py_DebugOffsets.unicode_object.size
    unicode_state: 720,              // _Py_DebugOffsets.unicode_object.state
    unicode_length: 728,             // _Py_DebugOffsets.unicode_object.length
    unicode_asciiobject_size: 736,   // _Py_DebugOffsets.unicode_object.asciiobject_size
    unpublished: Unpublished {
        frame_code_tag_bits: 3, // Py_TAG_BITS
        first_shim_owner: 3,    // FRAME_OWNED_BY_INTERPRETER
        first_traceable: 192,   // PyCodeObject._co_firsttraceable
        compact_data: 56,       // sizeof(PyCompactUnicodeObject)
        kind_mask: 0x1c,        // PyASCIIObject.state.kind
        compact_mask: 0x20,     // PyASCIIObject.state.compact
        ascii_mask: 0x40,       // PyASCIIObject.state.ascii
    },
};
