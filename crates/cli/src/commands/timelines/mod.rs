//! Commands for memory over time, and for the files of a folder, as in mprof.

pub(crate) mod launch;
pub(crate) mod list;
pub(crate) mod peak;
pub(crate) mod plot;
pub(crate) mod record;
pub(crate) mod rm;
