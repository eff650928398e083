//! Where the stack of the calling thread ends, so that a walk never reads beyond it.
//!
//! Asked of the kernel's list of mappings, once per thread: libc's own question for it may allocate and takes a lock that
//! the calling thread may hold.

use std::ops::Range;

use crate::host::sys::KeepErrno;

/// The readable memory around a stack pointer, cut where the thread's own control block begins.
pub fn around(stack_pointer: usize) -> Option<Range<usize>> {
    let _errno = KeepErrno::now();
    let mut found = mapping_of(stack_pointer)?;
    // libc puts a thread's control block at the outer end of its stack; what lies behind is somebody else's.
    let block = thread_pointer();
    if block > stack_pointer && found.contains(&block) {
        found.end = block & !7;
    }
    Some(found)
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

/// Reads `/proc/self/maps` piece by piece, without a heap.
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
    let mut found = None;
    while found.is_none() {
        // SAFETY: the pointer and length are those of a live array.
        let got = unsafe { libc::read(file, buffer.as_mut_ptr().cast(), buffer.len()) };
        let Some(bytes) = usize::try_from(got).ok().and_then(|got| buffer.get(..got)) else {
            break;
        };
        if bytes.is_empty() {
            break;
        }
        let mut readable = bytes.iter().filter_map(|&byte| scan.take(byte));
        found = readable.find(|range| range.contains(&address));
    }
    // SAFETY: opened above.
    unsafe { libc::close(file) };
    found
}

/// Lines such as `7ffc1000-7ffc3000 rw-p 00000000 00:00 0`, byte by byte.
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
    /// The range of a line, as soon as it is known to be readable.
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
    fn lines_are_read_whatever_pieces_they_come_in() {
        let mut scan = Scan::default();
        let text = b"1000-2000 r--p 00000000 08:01 77 /bin/x-y z\n2000-3000 ---p 0 0 0\nffff-1ffff rw-p 0 0 0\n";
        let ranges: Vec<_> = text.iter().filter_map(|&byte| scan.take(byte)).collect();
        assert_eq!(ranges, [0x1000..0x2000, 0xffff..0x1ffff]);
    }
}
