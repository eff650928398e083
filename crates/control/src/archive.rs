//! A tar archive for downloads of several captures: headers and padding around streamed files.

const BLOCK: usize = 512;

/// Returns the header of a file. Heaptide chooses the names, so they fit into 99 bytes.
pub(crate) fn header(name: &str, length: u64, unix_seconds: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    let mut put = |at: usize, text: &str| {
        let end = (at + text.len()).min(BLOCK);
        block[at..end].copy_from_slice(&text.as_bytes()[..end - at]);
    };
    put(0, &name.chars().take(99).collect::<String>());
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    if length < 1 << 33 {
        put(124, &format!("{length:011o}\0"));
    }
    put(136, &format!("{unix_seconds:011o}\0"));
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    if length >= 1 << 33 {
        // Too large for eleven octal digits: a marker and the number in binary.
        block[124] = 0x80;
        block[128..136].copy_from_slice(&length.to_be_bytes());
    }
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Returns the zeros after a file, up to the next block.
pub(crate) fn padding(length: u64) -> Vec<u8> {
    vec![0; (BLOCK - length as usize % BLOCK) % BLOCK]
}

/// Returns the two empty blocks after the last file.
pub(crate) fn end() -> Vec<u8> {
    vec![0; 2 * BLOCK]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_has_a_valid_checksum() {
        let header = header("a/4711.tide", 1000, 1_700_000_000);
        let stored = std::str::from_utf8(&header[148..154]).unwrap();
        let mut blank = header.clone();
        blank[148..156].fill(b' ');
        let sum: u32 = blank.iter().map(|&byte| u32::from(byte)).sum();
        assert_eq!(u32::from_str_radix(stored, 8).unwrap(), sum);
        assert_eq!(padding(1000).len() + 1000, 1024);
        assert!(padding(1024).is_empty());
    }
}
