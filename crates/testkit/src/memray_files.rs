//! Minimal captures of memray, built byte by byte.

/// A header of format 13 for Python 3.12, up to the records.
pub fn header(is_aggregated: bool) -> Vec<u8> {
    let mut bytes = b"memray\0".to_vec();
    bytes.extend(13u32.to_le_bytes());
    bytes.extend(0x030c_01f0u32.to_le_bytes());
    bytes.extend([0, u8::from(is_aggregated)]);
    for number in [0u64, 0, 1_000, 1_500] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(b"job.py --fast\0");
    bytes.extend(42u32.to_le_bytes());
    // Main thread 1, one frame of memray's own.
    for number in [1u64, 1] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend([1, 0, 0]);
    bytes.extend(b"/lib/python\0/lib/site-packages\0\0/srv/job\0\0");
    bytes
}

pub fn thread(number: u64) -> Vec<u8> {
    let mut bytes = vec![0x0c];
    bytes.extend(number.to_le_bytes());
    bytes
}

/// Code object 1 is memray's, 2 `load` on line 5, 3 `work` on line 9.
pub fn codes() -> Vec<u8> {
    let mut bytes = Vec::new();
    for (id, name, step) in [(1, "run", 2), (2, "load", 8), (3, "work", 8)] {
        bytes.extend([0x0e, id]);
        bytes.extend(name.as_bytes());
        bytes.extend(b"\0job.py\0");
        // One entry: two code units on the first line.
        bytes.extend([step, 2, 0x81, 0]);
    }
    bytes
}

/// Two threads: `load` keeps 100 bytes, `work` allocates and frees 50; 4096 are mapped and half of them unmapped.
pub fn events() -> Vec<u8> {
    let mut bytes = header(false);
    bytes.extend(codes());
    bytes.extend(thread(1));
    bytes.extend([0x41, 1, 2, 0x41, 2, 2]);
    // malloc, a new address: 0x1000 / 8 in zigzag.
    bytes.extend([0x80 | 15 << 3 | 6, 0x80, 0x08, 100]);
    bytes.extend(thread(2));
    bytes.extend([0x0a, b'w', 0, 0x41, 3, 2]);
    // realloc 0x800 further on.
    bytes.extend([0x80 | 15 << 3 | 7, 0x80, 0x04, 50]);
    bytes.extend([0x02, 0xe8, 0x07, 20]);
    // Free the block at the same address.
    bytes.extend([0x80 | 5]);
    // mmap by its number, 0x10000 / 8 further on, and munmap of its first half.
    bytes.extend([0x80 | 15 << 3, 0x80, 0x80, 0x01, 14, 0x80, 0x20]);
    bytes.extend([0x80, 15, 0x80, 0x10]);
    bytes.extend([0x10, 0x01]);
    bytes
}

pub fn aggregated() -> Vec<u8> {
    let mut bytes = header(true);
    bytes.push(1);
    for number in [1_200u64, 9_000, 160] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(codes());
    bytes.extend([4, 0, 1, 2, 1, 4, 1, 2, 2, 1, 3, 0, 0, 3, 1, 1]);
    for (thread, stack, at_peak, at_end) in [(1u64, 2u64, 100u64, 0u64), (2, 2, 60, 30)] {
        bytes.push(2);
        let sums = [
            thread,
            6,
            0,
            stack,
            0,
            at_peak / 10,
            at_end / 10,
            at_peak,
            at_end,
        ];
        for number in sums {
            bytes.extend(number.to_le_bytes());
        }
    }
    bytes.push(0x0f);
    bytes
}
