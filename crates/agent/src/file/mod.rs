//! The capture file while it is being written: slots in shared memory that threads fill, and blocks packed from them.

pub(crate) mod checkpoint;
pub(crate) mod compaction;
pub(crate) mod keeper;
pub(crate) mod new_file;
pub(crate) mod registry;
pub(crate) mod slot;
pub(crate) mod store;
