//! Commands that read captures: reports, pages, records and exports.

pub(crate) mod diff;
pub(crate) mod pages;
pub(crate) mod parse;
pub(crate) mod stats;
pub(crate) mod summary;
pub(crate) mod symbols;
pub(crate) mod transform;
pub(crate) mod tree;
