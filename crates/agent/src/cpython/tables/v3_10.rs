//! The layout of CPython 3.10.
//!
//! Printed from the headers by `tests/layout/generate`; never edited by hand.

use super::super::layout::{
    BytesLayout, CodeLayout, CurrentFrame, Evaluations, Layout, UnicodeLayout,
};

pub const LAYOUT: Layout = Layout {
    version: (3, 10),
    current_frame: CurrentFrame::Direct(24), // PyThreadState.frame
    evaluations: Evaluations::CFrames {
        cframe: 48,          // PyThreadState.cframe
        previous: 8,         // CFrame.previous
        current_frame: None, // each runs one frame
    },
    frame_previous: 24, // PyFrameObject.f_back
    frame_code: 32,     // PyFrameObject.f_code
    frame_code_mask: !0,
    frame_instr: 96, // PyFrameObject.f_lasti
    frame_owner: None,
    first_shim_owner: u8::MAX,
    instr_is_index: true,
    code_bytes: 0,
    code: CodeLayout {
        type_address: 0,       // filled in at run time
        basic_size: 176,       // sizeof(PyCodeObject)
        ob_type: 8,            // PyObject.ob_type
        name: 112,             // PyCodeObject.co_name
        qualname: None,        // first in 3.11
        filename: 104,         // PyCodeObject.co_filename
        first_line: 40,        // PyCodeObject.co_firstlineno
        linetable: 120,        // PyCodeObject.co_linetable
        first_traceable: None, // first in 3.11
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
