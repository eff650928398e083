//! Captures of several processes as one download: a tar archive, written around files that are streamed.

const BLOCK: usize = 512;

/// The head of a file in the archive. Names are ours and short.
pub(crate) fn head(name: &str, length: u64, unix_seconds: u64) -> Vec<u8> {
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
        // Beyond eleven octal digits: a mark, and the number in binary.
        block[124] = 0x80;
        block[128..136].copy_from_slice(&length.to_be_bytes());
    }
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// What follows a file up to the next block.
pub(crate) fn padding(length: u64) -> Vec<u8> {
    vec![0; (BLOCK - length as usize % BLOCK) % BLOCK]
}

/// What follows the last file.
pub(crate) fn end() -> Vec<u8> {
    vec![0; 2 * BLOCK]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_has_the_sum_that_readers_check() {
        let head = head("a/4711.tide", 1000, 1_700_000_000);
        let told = std::str::from_utf8(&head[148..154]).unwrap();
        let mut blank = head.clone();
        blank[148..156].fill(b' ');
        let sum: u32 = blank.iter().map(|&byte| u32::from(byte)).sum();
        assert_eq!(u32::from_str_radix(told, 8).unwrap(), sum);
        assert_eq!(padding(1000).len() + 1000, 1024);
        assert!(padding(1024).is_empty());
    }
}
