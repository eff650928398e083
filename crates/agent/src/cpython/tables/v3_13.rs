//! Positions of the required fields in `_Py_DebugOffsets`, and the offsets that it lacks, in CPython 3.13.
//!
//! Printed from the headers by `tests/layout/generate`; never edited by hand.

use super::super::debug_offsets::{DebugOffsetsMap, Unpublished};

pub const MAP: DebugOffsetsMap = DebugOffsetsMap {
    version: (3, 13),
    size: 584,                       // sizeof(_Py_DebugOffsets)
    thread_state_size: 152,          // _Py_DebugOffsets.thread_state.size
    thread_state_current_frame: 184, // _Py_DebugOffsets.thread_state.current_frame
    frame_size: 224,                 // _Py_DebugOffsets.interpreter_frame.size
    frame_previous: 232,             // _Py_DebugOffsets.interpreter_frame.previous
    frame_executable: 240,           // _Py_DebugOffsets.interpreter_frame.executable
    frame_instr_ptr: 248,            // _Py_DebugOffsets.interpreter_frame.instr_ptr
    frame_owner: 264,                // _Py_DebugOffsets.interpreter_frame.owner
    code_size: 272,                  // _Py_DebugOffsets.code_object.size
    code_filename: 280,              // _Py_DebugOffsets.code_object.filename
    code_name: 288,                  // _Py_DebugOffsets.code_object.name
    code_qualname: 296,              // _Py_DebugOffsets.code_object.qualname
    code_linetable: 304,             // _Py_DebugOffsets.code_object.linetable
    code_firstlineno: 312,           // _Py_DebugOffsets.code_object.firstlineno
    code_co_code_adaptive: 344,      // _Py_DebugOffsets.code_object.co_code_adaptive
    object_size: 352,                // _Py_DebugOffsets.pyobject.size
    object_ob_type: 360,             // _Py_DebugOffsets.pyobject.ob_type
    bytes_size: 512,                 // _Py_DebugOffsets.bytes_object.size
    bytes_ob_size: 520,              // _Py_DebugOffsets.bytes_object.ob_size
    bytes_ob_sval: 528,              // _Py_DebugOffsets.bytes_object.ob_sval
    unicode_size: 536,               // _Py_DebugOffsets.unicode_object.size
    unicode_state: 544,              // _Py_DebugOffsets.unicode_object.state
    unicode_length: 552,             // _Py_DebugOffsets.unicode_object.length
    unicode_asciiobject_size: 560,   // _Py_DebugOffsets.unicode_object.asciiobject_size
    unpublished: Unpublished {
        frame_code_tag_bits: 0, // f_executable is a plain pointer
        first_shim_owner: 3,    // FRAME_OWNED_BY_CSTACK
        first_traceable: 184,   // PyCodeObject._co_firsttraceable
        compact_data: 56,       // sizeof(PyCompactUnicodeObject)
        kind_mask: 0x1c,        // PyASCIIObject.state.kind
        compact_mask: 0x20,     // PyASCIIObject.state.compact
        ascii_mask: 0x40,       // PyASCIIObject.state.ascii
    },
};
