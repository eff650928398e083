//! The bounds of the calling thread's stack, so that a walk never reads beyond them.
//!
//! They come from the kernel's list of mappings, once per thread. The C library's function for them may allocate, and takes a
//! lock that the calling thread may hold.

use std::ops::Range;

use crate::host::sys::KeepErrno;

/// The readable memory around a stack pointer, up to the thread's control block.
pub fn around(stack_pointer: usize) -> Option<Range<usize>> {
    let _errno = KeepErrno::now();
    let mut range = mapping_of(stack_pointer)?;
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

/// Reads `/proc/self/maps` in pieces, without allocating.
fn mapping_of(address: usize) -> Option<Range<usize>> {
    // SAFETY: the path is a C string.
    let file = unsafe {
        libc::open(
            c"/proc/self/maps".as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC,
        )
    };
    if file < 0 {
        return None;
    }
    let mut scan = Scan::default();
    let mut buffer = [0u8; 4096];
    let mut mapping = None;
    while mapping.is_none() {
        // SAFETY: the pointer and the length describe a live array.
        let got = unsafe { libc::read(file, buffer.as_mut_ptr().cast(), buffer.len()) };
        let Some(bytes) = usize::try_from(got).ok().and_then(|got| buffer.get(..got)) else {
            break;
        };
        if bytes.is_empty() {
            break;
        }
        let mut readable = bytes.iter().filter_map(|&byte| scan.take(byte));
        mapping = readable.find(|range| range.contains(&address));
    }
    // SAFETY: this function opened the descriptor.
    unsafe { libc::close(file) };
    mapping
}

/// Parses lines such as `7ffc1000-7ffc3000 rw-p 00000000 00:00 0` byte by byte.
#[derive(Default)]
struct Scan {
    part: Part,
    start: usize,
    end: usize,
}

#[derive(Default)]
enum Part {
    #[default]
    Start,
    End,
    Permissions,
    Rest,
}

impl Scan {
    /// Takes one byte. Returns the range of a readable mapping as soon as its permissions are known.
    fn take(&mut self, byte: u8) -> Option<Range<usize>> {
        let digit = (byte as char).to_digit(16).map(|digit| digit as usize);
        match (&self.part, byte) {
            (_, b'\n') => *self = Scan::default(),
            (Part::Start, b'-') => self.part = Part::End,
            (Part::Start, _) => self.start = self.start << 4 | digit?,
            (Part::End, b' ') => self.part = Part::Permissions,
            (Part::End, _) => self.end = self.end << 4 | digit?,
            (Part::Permissions, _) => {
                self.part = Part::Rest;
                return (byte == b'r').then_some(self.start..self.end);
            }
            (Part::Rest, _) => {}
        }
        None
    }
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
        };
        check();
        std::thread::spawn(check).join().unwrap();
        assert_eq!(around(16), None);
    }

    #[test]
    fn readable_mappings_are_parsed_byte_by_byte() {
        let mut scan = Scan::default();
        let text = b"1000-2000 r--p 00000000 08:01 77 /bin/x-y z\n2000-3000 ---p 0 0 0\nffff-1ffff rw-p 0 0 0\n";
        let ranges: Vec<_> = text.iter().filter_map(|&byte| scan.take(byte)).collect();
        assert_eq!(ranges, [0x1000..0x2000, 0xffff..0x1ffff]);
    }
}
