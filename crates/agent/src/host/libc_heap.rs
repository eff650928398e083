//! The heap of the C library, as glibc's `mallinfo2` describes it. glibc before 2.33 and musl do not have that function.

/// glibc's `struct mallinfo2`.
#[repr(C)]
struct Mallinfo2 {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

/// Bytes of the C library's heap.
pub struct LibcHeap {
    /// Allocated by the program: on the heaps, and in mappings of single blocks.
    pub in_use: u64,
    /// Free, and kept for later allocations.
    pub free: u64,
}

impl LibcHeap {
    /// Reads the sums. The C library takes the locks of its heaps one after the other, as `malloc` does.
    pub fn read() -> Option<LibcHeap> {
        // SAFETY: the name is a C string, and looking a symbol up has no other precondition.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
        if address.is_null() {
            return None;
        }
        // SAFETY: only glibc has a function of this name; it takes nothing and returns this struct by value.
        let mallinfo2: extern "C" fn() -> Mallinfo2 = unsafe { std::mem::transmute(address) };
        let info = mallinfo2();
        Some(LibcHeap {
            in_use: info.uordblks as u64 + info.hblkhd as u64,
            free: info.fordblks as u64,
        })
    }
}
