//! One pointer per thread, reached in two instructions.
//!
//! A `thread_local!` in a library loaded by `dlopen` costs a call to `__tls_get_addr` for every access. Every event
//! needs the pointer, so the word is declared in assembly with the *initial-exec* model: the loader takes eight bytes
//! from the space that libc keeps for such libraries, and an access is two loads. There is no destructor here: the
//! word belongs to `threads.rs`, which also decides what its small values mean.
//!
//! Runs on: any thread. Allocates: never. Locks: never. During fork/exit: the word stays as it is.

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
    // SAFETY: reads this thread's own word; the linker fills the GOT entry with the word's offset from the thread
    // pointer, which `fs` holds on every thread of a Linux process.
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
    // SAFETY: as in `get`; nobody but this thread can see the word.
    unsafe {
        core::arch::asm!(
            "mov {place}, qword ptr [rip + heaptide_thread@GOTTPOFF]",
            "mov qword ptr fs:[{place}], {value}",
            place = out(reg) _,
            value = in(reg) value,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn get() -> usize {
    let value: usize;
    // SAFETY: as on x86-64, with the thread pointer in `tpidr_el0`.
    unsafe {
        core::arch::asm!(
            "adrp {place}, :gottprel:heaptide_thread",
            "ldr {place}, [{place}, :gottprel_lo12:heaptide_thread]",
            "mrs {value}, tpidr_el0",
            "ldr {value}, [{value}, {place}]",
            place = out(reg) _,
            value = out(reg) value,
            options(nostack, readonly, preserves_flags, pure)
        );
    }
    value
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn set(value: usize) {
    // SAFETY: as in `get`; nobody but this thread can see the word.
    unsafe {
        core::arch::asm!(
            "adrp {place}, :gottprel:heaptide_thread",
            "ldr {place}, [{place}, :gottprel_lo12:heaptide_thread]",
            "mrs {base}, tpidr_el0",
            "str {value}, [{base}, {place}]",
            place = out(reg) _,
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
