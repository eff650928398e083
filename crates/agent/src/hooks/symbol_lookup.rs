//! The hook of `dlsym`: hooks new libraries, then *jumps* to the real function.
//!
//! `dlsym` reads its return address to identify its caller, so the hook must not call it. The hook saves the arguments,
//! calls `libraries`, restores the arguments and jumps, so the real function sees its true caller. If `ctypes` or a
//! just-in-time compiler looks up a hooked function, the hook itself returns the address of that function's hook.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::real;
use crate::libraries;

/// The two addresses that the assembly below reads.
static HEAPTIDE_REAL_DLSYM: AtomicUsize = AtomicUsize::new(0);
static HEAPTIDE_ON_LOOKUP: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    #[link_name = "heaptide_dlsym_hook"]
    fn dlsym_hook();
}

pub fn hook() -> *const () {
    dlsym_hook as *const ()
}

/// Stores the addresses that the assembly reads.
pub fn prepare() {
    HEAPTIDE_ON_LOOKUP.store(
        libraries::on_symbol_lookup as *const () as usize,
        Ordering::Release,
    );
    let real = real::dlsym.address.load(Ordering::Acquire);
    HEAPTIDE_REAL_DLSYM.store(real, Ordering::Release);
}

// On entry the stack is 8 bytes off its 16-byte alignment; three pushes align it for the call.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.heaptide_dlsym_hook,\"ax\",@progbits",
    ".globl heaptide_dlsym_hook",
    ".hidden heaptide_dlsym_hook",
    ".type heaptide_dlsym_hook,@function",
    "heaptide_dlsym_hook:",
    ".cfi_startproc",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "push rdx",
    ".cfi_adjust_cfa_offset 8",
    "call [rip + {on_lookup}]",
    "pop rdx",
    ".cfi_adjust_cfa_offset -8",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "test rax, rax",
    "jz 2f",
    "ret",
    "2:",
    "jmp [rip + {real}]",
    ".cfi_endproc",
    ".size heaptide_dlsym_hook, . - heaptide_dlsym_hook",
    ".popsection",
    on_lookup = sym HEAPTIDE_ON_LOOKUP,
    real = sym HEAPTIDE_REAL_DLSYM,
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.heaptide_dlsym_hook,\"ax\",%progbits",
    ".globl heaptide_dlsym_hook",
    ".hidden heaptide_dlsym_hook",
    ".type heaptide_dlsym_hook,%function",
    ".p2align 2",
    "heaptide_dlsym_hook:",
    ".cfi_startproc",
    "hint #34",
    "stp x29, x30, [sp, #-48]!",
    ".cfi_adjust_cfa_offset 48",
    "stp x0, x1, [sp, #16]",
    "str x2, [sp, #32]",
    "adrp x16, {on_lookup}",
    "ldr x16, [x16, :lo12:{on_lookup}]",
    "blr x16",
    "mov x17, x0",
    "ldr x2, [sp, #32]",
    "ldp x0, x1, [sp, #16]",
    "ldp x29, x30, [sp], #48",
    ".cfi_adjust_cfa_offset -48",
    "cbz x17, 2f",
    "mov x0, x17",
    "ret",
    "2:",
    "adrp x16, {real}",
    "ldr x16, [x16, :lo12:{real}]",
    "br x16",
    ".cfi_endproc",
    ".size heaptide_dlsym_hook, . - heaptide_dlsym_hook",
    ".popsection",
    on_lookup = sym HEAPTIDE_ON_LOOKUP,
    real = sym HEAPTIDE_REAL_DLSYM,
);
