//! The layout of CPython 3.12.
//!
//! Printed from the headers by `tests/layout/generate`; never edited by hand.

use super::super::layout::{
    BytesLayout, CodeLayout, CurrentFrame, Evaluations, Layout, UnicodeLayout,
};

pub const LAYOUT: Layout = Layout {
    version: (3, 12),
    current_frame: CurrentFrame::ViaCFrame {
        cframe: 56,       // PyThreadState.cframe
        current_frame: 0, // _PyCFrame.current_frame
    },
    evaluations: Evaluations::Shims,
    frame_previous: 8, // _PyInterpreterFrame.previous
    frame_code: 0,     // _PyInterpreterFrame.f_code
    frame_code_mask: !0,
    frame_instr: 56,       // _PyInterpreterFrame.prev_instr
    frame_owner: Some(70), // _PyInterpreterFrame.owner
    first_shim_owner: 3,   // FRAME_OWNED_BY_CSTACK
    instr_is_index: false,
    code_bytes: 192, // PyCodeObject.co_code_adaptive
    code: CodeLayout {
        type_address: 0,            // filled in at run time
        basic_size: 192,            // PyCode_Type.tp_basicsize
        ob_type: 8,                 // PyObject.ob_type
        name: 120,                  // PyCodeObject.co_name
        qualname: Some(128),        // PyCodeObject.co_qualname
        filename: 112,              // PyCodeObject.co_filename
        first_line: 68,             // PyCodeObject.co_firstlineno
        linetable: 136,             // PyCodeObject.co_linetable
        first_traceable: Some(176), // PyCodeObject._co_firsttraceable
    },
    unicode: UnicodeLayout {
        length: 16,         // PyASCIIObject.length
        state: 32,          // PyASCIIObject.state
        ascii_data: 40,     // sizeof(PyASCIIObject)
        compact_data: 56,   // sizeof(PyCompactUnicodeObject)
        kind_mask: 0x1c,    // PyASCIIObject.state.kind
        compact_mask: 0x20, // PyASCIIObject.state.compact
        ascii_mask: 0x40,   // PyASCIIObject.state.ascii
    },
    bytes: BytesLayout {
        length: 16, // PyBytesObject.ob_size
        data: 32,   // PyBytesObject.ob_sval
    },
};
