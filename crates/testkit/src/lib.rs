//! Support for the tests of several crates: captures written as text, heap snapshots built object by object,
//! captures of memray, and files changed at random.
//!
//! A dev-dependency only: no shipped crate depends on it.
#![forbid(unsafe_code)]

mod captures;
mod heap_builder;
mod heaps;
pub mod memray_files;
pub mod mutation;

pub use captures::{capture, capture_bytes, header};
pub use heap_builder::{Added, HeapBuilder};
pub use heaps::shop;
