//! All knowledge of the layout of CPython's structs.
//!
//! The wheel is built once for all interpreters, so layouts are data, not headers. Layouts of 3.10 to 3.12 come from tables
//! printed from the headers, layouts of 3.13 and later from the debug offsets that the running interpreter publishes.
//! [`detect`] chooses, [`self_check`] verifies the choice with the interpreter's own API, and only then a hook may read
//! frames. An unknown interpreter is refused.

pub(crate) mod c_api;
pub(crate) mod check;
pub(crate) mod code;
pub mod context;
pub(crate) mod debug_offsets;
pub(crate) mod detect;
pub(crate) mod frames;
pub(crate) mod heap_layout;
pub mod interpreter;
pub(crate) mod layout;
pub(crate) mod line_table;
pub(crate) mod memory;
pub(crate) mod offsets;
pub mod references;
pub(crate) mod symbols;
pub(crate) mod tables;
pub(crate) mod text;
pub mod tracing;
pub(crate) mod unsupported;

#[cfg(test)]
mod fake_objects;

pub use check::self_check;
pub use code::{CodeBuffers, CodeText, RawBytes, Text, Unreadable, read_code};
pub use detect::detect;
pub use frames::thread_frames;
pub use layout::{
    BEFORE_START, BytesLayout, CodeLayout, CurrentFrame, Evaluations, Layout, UnicodeLayout,
    instr_offset,
};
pub use symbols::{MemAllocator, Symbols};
pub use unsupported::Unsupported;
