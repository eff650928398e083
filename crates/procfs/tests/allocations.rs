//! Hooks inside `malloc` call functions of this crate, which must not allocate. This is a separate binary, because it counts
//! every byte that the process allocates.

use heaptide_procfs::readable_mapping;
use heaptide_testkit::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

#[test]
fn readable_mapping_is_found_without_allocating() {
    let local = 0u64;
    let address = &raw const local as usize;
    let (peak, found) = ALLOCATOR.peak_of(|| readable_mapping(address));
    assert!(found.unwrap().contains(&address));
    assert_eq!(peak, 0);
}
