//! The capture file while it is being written: threads fill slots in memory shared with it, the keeper packs them into
//! blocks.

pub(crate) mod checkpoint;
pub(crate) mod compaction;
pub(crate) mod keeper;
pub(crate) mod new_file;
pub(crate) mod registry;
pub(crate) mod slot;
pub(crate) mod stop_mark;
pub(crate) mod store;
