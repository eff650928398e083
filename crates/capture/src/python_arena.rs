//! The frame that marks arenas of Python's object allocator.
//!
//! A recording without objects sees only the memory that the allocator maps for them. The agent adds this frame to the
//! stack of such a mapping. Captures of earlier versions do not have the frame.

/// The name of the frame, as reports show it.
pub const PYTHON_ARENA_NAME: &str = "Python objects (arena)";
/// The file of the frame, by which readers recognize it.
pub const PYTHON_ARENA_FILE: &str = "<pymalloc>";
