//! Support for the tests of several crates: captures written as text, heap snapshots built object by object, and
//! captures of memray. Also random changes of files, an allocator that counts, and processor times.
//!
//! A dev-dependency only: no shipped crate depends on it.

mod captures;
mod counting_allocator;
mod cpu_time;
mod heap_builder;
mod heaps;
pub mod memray_files;
pub mod mutation;

pub use captures::{capture, capture_bytes, header};
pub use counting_allocator::CountingAllocator;
pub use cpu_time::thread_cpu_time;
pub use heap_builder::{Added, HeapBuilder};
pub use heaps::shop;
