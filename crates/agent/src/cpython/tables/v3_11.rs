//! The layout of CPython 3.11.
//!
//! Printed from the headers by `tests/layout/generate`; never edited by hand.

use super::super::layout::{
    BytesLayout, CodeLayout, CurrentFrame, Evaluations, Layout, UnicodeLayout,
};

pub const LAYOUT: Layout = Layout {
    version: (3, 11),
    current_frame: CurrentFrame::ViaCFrame {
        cframe: 56,       // PyThreadState.cframe
        current_frame: 8, // _PyCFrame.current_frame
    },
    evaluations: Evaluations::CFrames {
        cframe: 56,             // PyThreadState.cframe
        previous: 16,           // _PyCFrame.previous
        current_frame: Some(8), // _PyCFrame.current_frame
    },
    frame_previous: 48, // _PyInterpreterFrame.previous
    frame_code: 32,     // _PyInterpreterFrame.f_code
    frame_code_mask: !0,
    frame_instr: 56, // _PyInterpreterFrame.prev_instr
    frame_owner: None,
    first_shim_owner: u8::MAX,
    instr_is_index: false,
    code_bytes: 184, // PyCodeObject.co_code_adaptive
    code: CodeLayout {
        type_address: 0,            // filled in at run time
        basic_size: 184,            // PyCode_Type.tp_basicsize
        ob_type: 8,                 // PyObject.ob_type
        name: 120,                  // PyCodeObject.co_name
        qualname: Some(128),        // PyCodeObject.co_qualname
        filename: 112,              // PyCodeObject.co_filename
        first_line: 72,             // PyCodeObject.co_firstlineno
        linetable: 136,             // PyCodeObject.co_linetable
        first_traceable: Some(168), // PyCodeObject._co_firsttraceable
    },
    unicode: UnicodeLayout {
        length: 16,         // PyASCIIObject.length
        state: 32,          // PyASCIIObject.state
        ascii_data: 48,     // sizeof(PyASCIIObject)
        compact_data: 72,   // sizeof(PyCompactUnicodeObject)
        kind_mask: 0x1c,    // PyASCIIObject.state.kind
        compact_mask: 0x20, // PyASCIIObject.state.compact
        ascii_mask: 0x40,   // PyASCIIObject.state.ascii
    },
    bytes: BytesLayout {
        length: 16, // PyBytesObject.ob_size
        data: 32,   // PyBytesObject.ob_sval
    },
};
