/* Prints the Rust table of one CPython version, as in crates/agent/src/cpython/tables.
 *
 * The numbers come from the interpreter's headers by offsetof, so nothing in the tables is typed by hand. The script
 * `generate` in this folder builds and runs this program; it requires a build with the GIL on a 64-bit machine. */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_debug_offsets.h>
#include <internal/pycore_interpframe_structs.h>
#include <internal/pycore_stackref.h>
#elif PY_VERSION_HEX >= 0x030D0000
#include <internal/pycore_frame.h>
#include <internal/pycore_runtime.h>
#elif PY_VERSION_HEX >= 0x030B0000
#include <internal/pycore_frame.h>
#else
#include <frameobject.h>
#include <internal/pycore_pystate.h>
#endif

#ifdef Py_GIL_DISABLED
#error "the tables describe builds with the GIL"
#endif

#define FIELD(indent, rust, number, origin) \
    printf("%*s%s: %zu, // %s\n", indent, "", rust, (size_t)(number), origin)
#define OFFSET(indent, rust, type, field) FIELD(indent, rust, offsetof(type, field), #type "." #field)
#define SIZE(indent, rust, type) FIELD(indent, rust, sizeof(type), "sizeof(" #type ")")

/* Bit fields have no offsetof: set one to all ones in a cleared object and read the word that contains it. */
#define STATE_MASK(rust, bits)                                                                  \
    do {                                                                                        \
        PyASCIIObject text;                                                                     \
        unsigned int word;                                                                      \
        memset(&text, 0, sizeof text);                                                          \
        text.state.bits = (unsigned int)-1;                                                     \
        memcpy(&word, &text.state, sizeof word);                                                \
        printf("        %s: %#x, // PyASCIIObject.state.%s\n", rust, word, #bits);              \
    } while (0)

static void header(const char *what) {
    printf("//! %s CPython %d.%d.\n//!\n"
           "//! Printed from the headers by `tests/layout/generate`; never edited by hand.\n\n",
           what, PY_MAJOR_VERSION, PY_MINOR_VERSION);
}

static void state_bits(void) {
    STATE_MASK("kind_mask", kind);
    STATE_MASK("compact_mask", compact);
    STATE_MASK("ascii_mask", ascii);
}

#if PY_VERSION_HEX < 0x030D0000

static void frame_fields(void) {
#if PY_VERSION_HEX < 0x030B0000
    printf("    current_frame: CurrentFrame::Direct(%zu), // PyThreadState.frame\n", offsetof(PyThreadState, frame));
    puts("    evaluations: Evaluations::CFrames {");
    OFFSET(8, "cframe", PyThreadState, cframe);
    OFFSET(8, "previous", CFrame, previous);
    puts("        current_frame: None, // each runs one frame");
    puts("    },");
    OFFSET(4, "frame_previous", PyFrameObject, f_back);
    OFFSET(4, "frame_code", PyFrameObject, f_code);
    puts("    frame_code_mask: !0,");
    OFFSET(4, "frame_instr", PyFrameObject, f_lasti);
    puts("    frame_owner: None,\n    first_shim_owner: u8::MAX,\n    instr_is_index: true,\n    code_bytes: 0,");
#else
    puts("    current_frame: CurrentFrame::ViaCFrame {");
    OFFSET(8, "cframe", PyThreadState, cframe);
    OFFSET(8, "current_frame", _PyCFrame, current_frame);
    puts("    },");
#if PY_VERSION_HEX < 0x030C0000
    puts("    evaluations: Evaluations::CFrames {");
    OFFSET(8, "cframe", PyThreadState, cframe);
    OFFSET(8, "previous", _PyCFrame, previous);
    printf("        current_frame: Some(%zu), // _PyCFrame.current_frame\n", offsetof(_PyCFrame, current_frame));
    puts("    },");
#else
    puts("    evaluations: Evaluations::Shims,");
#endif
    OFFSET(4, "frame_previous", _PyInterpreterFrame, previous);
    OFFSET(4, "frame_code", _PyInterpreterFrame, f_code);
    puts("    frame_code_mask: !0,");
    OFFSET(4, "frame_instr", _PyInterpreterFrame, prev_instr);
#if PY_VERSION_HEX < 0x030C0000
    puts("    frame_owner: None,\n    first_shim_owner: u8::MAX,");
#else
    printf("    frame_owner: Some(%zu), // _PyInterpreterFrame.owner\n", offsetof(_PyInterpreterFrame, owner));
    FIELD(4, "first_shim_owner", FRAME_OWNED_BY_CSTACK, "FRAME_OWNED_BY_CSTACK");
#endif
    puts("    instr_is_index: false,");
    OFFSET(4, "code_bytes", PyCodeObject, co_code_adaptive);
#endif
}

int main(void) {
    header("The layout of");
    puts("use super::super::layout::{BytesLayout, CodeLayout, CurrentFrame, Evaluations, Layout, UnicodeLayout};\n");
    puts("pub const LAYOUT: Layout = Layout {");
    printf("    version: (%d, %d),\n", PY_MAJOR_VERSION, PY_MINOR_VERSION);
    frame_fields();
    puts("    code: CodeLayout {\n        type_address: 0, // filled in at run time");
#if PY_VERSION_HEX < 0x030B0000
    SIZE(8, "basic_size", PyCodeObject);
#else
    FIELD(8, "basic_size", offsetof(PyCodeObject, co_code_adaptive), "PyCode_Type.tp_basicsize");
#endif
    OFFSET(8, "ob_type", PyObject, ob_type);
    OFFSET(8, "name", PyCodeObject, co_name);
#if PY_VERSION_HEX < 0x030B0000
    puts("        qualname: None, // first in 3.11");
#else
    printf("        qualname: Some(%zu), // PyCodeObject.co_qualname\n", offsetof(PyCodeObject, co_qualname));
#endif
    OFFSET(8, "filename", PyCodeObject, co_filename);
    OFFSET(8, "first_line", PyCodeObject, co_firstlineno);
    OFFSET(8, "linetable", PyCodeObject, co_linetable);
#if PY_VERSION_HEX < 0x030B0000
    puts("        first_traceable: None, // first in 3.11");
#else
    printf("        first_traceable: Some(%zu), // PyCodeObject._co_firsttraceable\n",
           offsetof(PyCodeObject, _co_firsttraceable));
#endif
    puts("    },\n    unicode: UnicodeLayout {");
    OFFSET(8, "length", PyASCIIObject, length);
    OFFSET(8, "state", PyASCIIObject, state);
    SIZE(8, "ascii_data", PyASCIIObject);
    SIZE(8, "compact_data", PyCompactUnicodeObject);
    state_bits();
    puts("    },\n    bytes: BytesLayout {");
    FIELD(8, "length", offsetof(PyVarObject, ob_size), "PyBytesObject.ob_size");
    OFFSET(8, "data", PyBytesObject, ob_sval);
    puts("    },\n};");
    return 0;
}

#else

#define PUBLISHED(rust, field) OFFSET(4, rust, _Py_DebugOffsets, field)

int main(void) {
    header("Positions of the required fields in `_Py_DebugOffsets`, and the offsets that it lacks, in");
    puts("use super::super::debug_offsets::{DebugOffsetsMap, Unpublished};\n");
    puts("pub const MAP: DebugOffsetsMap = DebugOffsetsMap {");
    printf("    version: (%d, %d),\n", PY_MAJOR_VERSION, PY_MINOR_VERSION);
    SIZE(4, "size", _Py_DebugOffsets);
    PUBLISHED("thread_state_size", thread_state.size);
    PUBLISHED("thread_state_current_frame", thread_state.current_frame);
    PUBLISHED("frame_size", interpreter_frame.size);
    PUBLISHED("frame_previous", interpreter_frame.previous);
    PUBLISHED("frame_executable", interpreter_frame.executable);
    PUBLISHED("frame_instr_ptr", interpreter_frame.instr_ptr);
    PUBLISHED("frame_owner", interpreter_frame.owner);
    PUBLISHED("code_size", code_object.size);
    PUBLISHED("code_filename", code_object.filename);
    PUBLISHED("code_name", code_object.name);
    PUBLISHED("code_qualname", code_object.qualname);
    PUBLISHED("code_linetable", code_object.linetable);
    PUBLISHED("code_firstlineno", code_object.firstlineno);
    PUBLISHED("code_co_code_adaptive", code_object.co_code_adaptive);
    PUBLISHED("object_size", pyobject.size);
    PUBLISHED("object_ob_type", pyobject.ob_type);
    PUBLISHED("bytes_size", bytes_object.size);
    PUBLISHED("bytes_ob_size", bytes_object.ob_size);
    PUBLISHED("bytes_ob_sval", bytes_object.ob_sval);
    PUBLISHED("unicode_size", unicode_object.size);
    PUBLISHED("unicode_state", unicode_object.state);
    PUBLISHED("unicode_length", unicode_object.length);
    PUBLISHED("unicode_asciiobject_size", unicode_object.asciiobject_size);
    puts("    unpublished: Unpublished {");
#if PY_VERSION_HEX >= 0x030E0000
    FIELD(8, "frame_code_tag_bits", Py_TAG_BITS, "Py_TAG_BITS");
    FIELD(8, "first_shim_owner", FRAME_OWNED_BY_INTERPRETER, "FRAME_OWNED_BY_INTERPRETER");
#else
    puts("        frame_code_tag_bits: 0, // f_executable is a plain pointer");
    FIELD(8, "first_shim_owner", FRAME_OWNED_BY_CSTACK, "FRAME_OWNED_BY_CSTACK");
#endif
    OFFSET(8, "first_traceable", PyCodeObject, _co_firsttraceable);
    SIZE(8, "compact_data", PyCompactUnicodeObject);
    state_bits();
    puts("    },\n};");
    return 0;
}

#endif
