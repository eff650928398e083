//! Support for the tests of several crates: captures written as text, heap snapshots built object by object,
//! captures of memray, files changed at random, and an allocator that counts.
//!
//! A dev-dependency only: no shipped crate depends on it.

mod captures;
mod counting_allocator;
mod heap_builder;
mod heaps;
pub mod memray_files;
pub mod mutation;

pub use captures::{capture, capture_bytes, header};
pub use counting_allocator::CountingAllocator;
pub use heap_builder::{Added, HeapBuilder};
pub use heaps::shop;
