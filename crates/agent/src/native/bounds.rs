//! The bounds of the calling thread's stack, so that a walk never reads beyond them.
//!
//! They come from the kernel's list of mappings, once per thread. The C library's function for them may allocate, and takes a
//! lock that the calling thread may hold.

use std::ops::Range;

use heaptide_procfs::readable_mapping;

use crate::host::sys::KeepErrno;

/// The readable memory around a stack pointer, up to the thread's control block.
pub fn around(stack_pointer: usize) -> Option<Range<usize>> {
    let _errno = KeepErrno::now();
    let mut range = readable_mapping(stack_pointer)?;
    // The C library puts a thread's control block at the outer end of its stack; memory after it is not part of the stack.
    let block = thread_pointer();
    if block > stack_pointer && range.contains(&block) {
        range.end = block & !7;
    }
    Some(range)
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the first word of a thread's control block is its own address, on every thread of a Linux process.
    unsafe {
        core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags, pure));
    }
    pointer
}

#[cfg(not(target_arch = "x86_64"))]
fn thread_pointer() -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_of_a_thread_holds_its_locals_and_ends_before_its_control_block() {
        let check = || {
            let local = 0u64;
            let address = &raw const local as usize;
            let range = around(address).unwrap();
            assert!(range.contains(&address));
            assert!(!range.contains(&thread_pointer()));
            range
        };
        check();
        let end = move || (check().end, thread_pointer());
        let (end, block) = std::thread::spawn(end).join().unwrap();
        // Without the control block, the range would reach to the end of the mapping, which contains the block.
        if cfg!(target_arch = "x86_64") {
            assert_eq!(end, block & !7);
        }
        assert_eq!(around(16), None);
    }
}
