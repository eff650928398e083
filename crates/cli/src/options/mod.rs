//! Options that several commands share: their declarations and their meaning.

pub(crate) mod arguments;
pub(crate) mod filters;
pub(crate) mod layout;
pub(crate) mod memray_options;
pub(crate) mod metrics;
pub(crate) mod report_options;
pub(crate) mod sizes;
