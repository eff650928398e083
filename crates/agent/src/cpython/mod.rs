//! All knowledge of the layout of CPython's structs.
//!
//! The wheel is built once for all interpreters, so layouts are data, not headers. Those of 3.10 to 3.12 come from tables
//! printed from the headers, those of 3.13 and later from the debug offsets that the running interpreter publishes.
//! [`detect`] chooses, [`self_check`] verifies the choice with the interpreter's own API, and only then a hook may read
//! frames. An unknown interpreter is refused.

pub mod c_api;
pub mod check;
pub mod code;
pub mod context;
pub mod debug_offsets;
pub mod detect;
pub mod frames;
pub mod heap_layout;
pub mod interpreter;
pub mod layout;
pub mod line_table;
pub mod memory;
pub mod offsets;
pub mod references;
pub mod symbols;
pub mod tables;
pub mod text;
pub mod unsupported;

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
