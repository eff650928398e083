//! One word per thread, read with two instructions.
//!
//! A `thread_local!` in a library loaded by `dlopen` costs a call to `__tls_get_addr` for every access. Every event needs
//! the word, so it is declared in assembly with the *initial-exec* model. The loader takes eight bytes from the space that
//! the C library reserves for such libraries, and an access is two loads. There is no destructor here: [`super::threads`]
//! owns the word and defines its small values.
//!
//! Runs on: any thread. Allocates: never. Locks: never. During fork/exit: the word keeps its value.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
core::arch::global_asm!(
    ".pushsection .tbss.heaptide_thread,\"awT\",@nobits",
    ".p2align 3",
    ".globl heaptide_thread",
    ".hidden heaptide_thread",
    ".type heaptide_thread,@object",
    ".size heaptide_thread,8",
    "heaptide_thread:",
    ".zero 8",
    ".popsection",
);

#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
core::arch::global_asm!(
    ".pushsection .tbss.heaptide_thread,\"awT\",%nobits",
    ".p2align 3",
    ".globl heaptide_thread",
    ".hidden heaptide_thread",
    ".type heaptide_thread,%object",
    ".size heaptide_thread,8",
    "heaptide_thread:",
    ".zero 8",
    ".popsection",
);

#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn get() -> usize {
    let value: usize;
    // SAFETY: the linker fills the GOT entry with the word's offset from the thread pointer, and `fs` holds that pointer on
    // every thread of a Linux process. So this reads the calling thread's word.
    unsafe {
        core::arch::asm!(
            "mov {value}, qword ptr [rip + heaptide_thread@GOTTPOFF]",
            "mov {value}, qword ptr fs:[{value}]",
            value = out(reg) value,
            options(nostack, readonly, preserves_flags, pure)
        );
    }
    value
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn set(value: usize) {
    // SAFETY: the address is found as in `get`, and no other thread accesses the calling thread's word.
    unsafe {
        core::arch::asm!(
            "mov {offset}, qword ptr [rip + heaptide_thread@GOTTPOFF]",
            "mov qword ptr fs:[{offset}], {value}",
            offset = out(reg) _,
            value = in(reg) value,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn get() -> usize {
    let value: usize;
    // SAFETY: the linker fills the GOT entry with the word's offset from the thread pointer, and `tpidr_el0` holds that
    // pointer; so this reads the calling thread's word.
    unsafe {
        core::arch::asm!(
            "adrp {offset}, :gottprel:heaptide_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:heaptide_thread]",
            "mrs {value}, tpidr_el0",
            "ldr {value}, [{value}, {offset}]",
            offset = out(reg) _,
            value = out(reg) value,
            options(nostack, readonly, preserves_flags, pure)
        );
    }
    value
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn set(value: usize) {
    // SAFETY: the address is found as in `get`, and no other thread accesses the calling thread's word.
    unsafe {
        core::arch::asm!(
            "adrp {offset}, :gottprel:heaptide_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:heaptide_thread]",
            "mrs {base}, tpidr_el0",
            "str {value}, [{base}, {offset}]",
            offset = out(reg) _,
            base = out(reg) _,
            value = in(reg) value,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_thread_has_its_own_word() {
        super::set(7);
        std::thread::spawn(|| {
            assert_eq!(super::get(), 0);
            super::set(9);
            assert_eq!(super::get(), 9);
        })
        .join()
        .unwrap();
        assert_eq!(super::get(), 7);
        super::set(0);
    }
}
