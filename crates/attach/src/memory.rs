//! Reads and writes another process's memory without stopping it.

use std::io;

/// The maximum length of a read. No symbol table or name table is longer.
const MAX_LEN: usize = 64 << 20;

#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pid: libc::pid_t,
}

impl Memory {
    pub fn of(pid: u32) -> Memory {
        Memory {
            pid: pid as libc::pid_t,
        }
    }

    pub fn read(&self, address: u64, len: usize) -> io::Result<Vec<u8>> {
        if len > MAX_LEN {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; len];
        let local = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: len,
        };
        let remote = libc::iovec {
            iov_base: address as *mut libc::c_void,
            iov_len: len,
        };
        // SAFETY: the local part is a live buffer of that length; the kernel checks the remote one.
        let n = unsafe { libc::process_vm_readv(self.pid, &local, 1, &remote, 1, 0) };
        complete(n, len).map(|()| bytes)
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        let local = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let remote = libc::iovec {
            iov_base: address as *mut libc::c_void,
            iov_len: bytes.len(),
        };
        // SAFETY: the local part is a live buffer that is only read; the kernel checks the remote one.
        let n = unsafe { libc::process_vm_writev(self.pid, &local, 1, &remote, 1, 0) };
        complete(n, bytes.len())
    }

    pub fn word(&self, address: u64) -> io::Result<u64> {
        let bytes = self.read(address, 8)?;
        Ok(word_at(&bytes, 0).unwrap_or(0))
    }
}

fn complete(n: isize, len: usize) -> io::Result<()> {
    match usize::try_from(n) {
        Ok(n) if n == len => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Returns the word at offset `at` of `bytes`.
pub fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_this_process_is_read_and_written() {
        let memory = Memory::of(std::process::id());
        let mut value = 7u64;
        let address = &raw mut value as u64;
        assert_eq!(memory.word(address).ok(), Some(7));
        memory
            .write(address, &9u64.to_le_bytes())
            .expect("own memory is writable");
        assert_eq!(std::hint::black_box(value), 9);
        assert!(memory.read(8, 8).is_err());
        assert!(memory.read(address, usize::MAX).is_err());
    }
}
