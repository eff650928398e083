//! One thread of another process, stopped and made to call functions, then left as it was. x86-64 only.
//!
//! A thread that the kernel stops inside a system call goes on with that call when it gets its registers back exactly,
//! `orig_rax` included: the kernel looks at them on the way back and repeats the call where it would have.

use std::io;
use std::time::{Duration, Instant};

/// Registers of the vector units take at most this; the kernel says how much it was.
const MAX_VECTOR_BYTES: usize = 16 << 10;
/// A thread that does not stop within this sleeps uninterruptibly in the kernel.
const STOP_PATIENCE: Duration = Duration::from_millis(200);
/// A call of ours takes microseconds; on a machine that swaps, perhaps a second.
const CALL_PATIENCE: Duration = Duration::from_secs(10);
/// Leaf functions may use this much below the stack pointer.
const RED_ZONE: u64 = 128;
const DIRECTION_FLAG: u64 = 1 << 10;
const NT_PRSTATUS: usize = 1;
const NT_X86_XSTATE: usize = 0x202;
/// Where a function of ours returns to: nothing is mapped there, so the thread stops again.
const NOWHERE: u64 = 0;

/// A thread that is stopped.
pub struct Tracee {
    thread: libc::pid_t,
    pub registers: libc::user_regs_struct,
    stopped_at: Instant,
    is_gone: bool,
    /// A signal that cannot be blocked came while the thread was ours; it gets it when it is let go.
    kept_signal: i32,
}

/// Why a thread was not stopped, or not called.
#[derive(Debug)]
pub enum Trouble {
    /// It does not exist any more.
    Gone,
    /// It does not react just now.
    Busy,
    System(io::Error),
}

impl Tracee {
    /// Stops a thread. Nothing else of the process is stopped.
    pub fn stop(thread: u32) -> Result<Tracee, Trouble> {
        let thread = thread as libc::pid_t;
        // SAFETY: seizing takes numbers only.
        unsafe { ptrace(libc::PTRACE_SEIZE, thread, 0, 0) }?;
        let mut tracee = Tracee {
            thread,
            // SAFETY: registers are plain numbers.
            registers: unsafe { std::mem::zeroed() },
            stopped_at: Instant::now(),
            is_gone: false,
            kept_signal: 0,
        };
        tracee.interrupt()?;
        Ok(tracee)
    }

    fn interrupt(&mut self) -> Result<(), Trouble> {
        // SAFETY: takes numbers only.
        unsafe { ptrace(libc::PTRACE_INTERRUPT, self.thread, 0, 0) }?;
        self.stopped_at = Instant::now();
        loop {
            let status = self.wait(STOP_PATIENCE)?;
            if status >> 16 == libc::PTRACE_EVENT_STOP {
                break;
            }
            // A signal on its way to the program: it shall have it.
            self.go_on(libc::WSTOPSIG(status))?;
        }
        self.read_registers()
    }

    /// Waits for the next stop.
    fn wait(&mut self, timeout: Duration) -> Result<i32, Trouble> {
        let deadline = Instant::now() + timeout;
        loop {
            let mut status = 0;
            // SAFETY: the pointer is to a live integer.
            let answer =
                unsafe { libc::waitpid(self.thread, &mut status, libc::__WALL | libc::WNOHANG) };
            if answer == self.thread {
                if libc::WIFSTOPPED(status) {
                    return Ok(status);
                }
                self.is_gone = true;
                return Err(Trouble::Gone);
            }
            if answer < 0 {
                self.is_gone = true;
                return Err(Trouble::Gone);
            }
            if Instant::now() > deadline {
                return Err(Trouble::Busy);
            }
            rest_until_news();
        }
    }

    fn go_on(&self, signal: i32) -> Result<(), Trouble> {
        // SAFETY: takes numbers only.
        unsafe { ptrace(libc::PTRACE_CONT, self.thread, 0, signal as usize) }
    }

    /// The system call that the thread is in, if it is in one.
    pub fn system_call(&self) -> Option<u64> {
        let number = self.registers.orig_rax;
        (number as i64 >= 0).then_some(number)
    }

    /// Since when the thread has been standing still.
    pub fn stood_for(&self) -> Duration {
        self.stopped_at.elapsed()
    }

    /// Calls functions of the process on this thread, one after the other, with everything it holds put back at the end:
    /// registers, those of the vector units, and which signals are blocked. `work` is given the caller.
    pub fn borrow<T>(
        &mut self,
        work: impl FnOnce(&mut Caller<'_>) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let mut vectors = vec![0u8; MAX_VECTOR_BYTES];
        // SAFETY: the buffer is as long as is said.
        let len =
            unsafe { self.get_set(NT_X86_XSTATE, vectors.as_mut_ptr().cast(), vectors.len())? };
        let mut blocked = 0u64;
        // SAFETY: a mask is eight bytes, and the kernel is told so.
        unsafe {
            ptrace(
                libc::PTRACE_GETSIGMASK as _,
                self.thread,
                size_of::<u64>(),
                &raw mut blocked as usize,
            )
        }?;
        // Handlers of the program have no business in the middle of our call. The stop at its end must not be blocked.
        let all = !(1u64 << (libc::SIGSEGV - 1));
        self.set_mask(all)?;
        let saved = self.registers;
        let result = work(&mut Caller { tracee: self });
        if self.is_gone {
            return Err(Trouble::Gone);
        }
        self.registers = saved;
        self.write_registers()?;
        // SAFETY: the buffer holds what the kernel gave for this very set.
        unsafe { self.put_set(NT_X86_XSTATE, vectors.as_mut_ptr().cast(), len)? };
        self.set_mask(blocked)?;
        result
    }

    fn set_mask(&self, mut mask: u64) -> Result<(), Trouble> {
        // SAFETY: a mask is eight bytes, and the kernel is told so.
        unsafe {
            ptrace(
                libc::PTRACE_SETSIGMASK as _,
                self.thread,
                size_of::<u64>(),
                &raw mut mask as usize,
            )
        }
    }

    fn read_registers(&mut self) -> Result<(), Trouble> {
        let registers: *mut libc::user_regs_struct = &mut self.registers;
        // SAFETY: the struct is the one that the kernel fills for this set.
        unsafe {
            self.get_set(
                NT_PRSTATUS,
                registers.cast(),
                size_of::<libc::user_regs_struct>(),
            )
        }?;
        Ok(())
    }

    fn write_registers(&mut self) -> Result<(), Trouble> {
        let registers: *mut libc::user_regs_struct = &mut self.registers;
        // SAFETY: as above; the kernel only reads it.
        unsafe {
            self.put_set(
                NT_PRSTATUS,
                registers.cast(),
                size_of::<libc::user_regs_struct>(),
            )
        }
    }

    /// # Safety
    /// `buffer` is writable for `len` bytes.
    unsafe fn get_set(
        &self,
        set: usize,
        buffer: *mut libc::c_void,
        len: usize,
    ) -> Result<usize, Trouble> {
        let mut part = libc::iovec {
            iov_base: buffer,
            iov_len: len,
        };
        // SAFETY: as the caller says; the part lives through the call.
        unsafe {
            ptrace(
                libc::PTRACE_GETREGSET,
                self.thread,
                set,
                &raw mut part as usize,
            )
        }?;
        Ok(part.iov_len)
    }

    /// # Safety
    /// `buffer` is readable for `len` bytes.
    unsafe fn put_set(
        &self,
        set: usize,
        buffer: *mut libc::c_void,
        len: usize,
    ) -> Result<(), Trouble> {
        let mut part = libc::iovec {
            iov_base: buffer,
            iov_len: len,
        };
        // SAFETY: as the caller says; the part lives through the call.
        unsafe {
            ptrace(
                libc::PTRACE_SETREGSET,
                self.thread,
                set,
                &raw mut part as usize,
            )
        }
    }
}

impl Drop for Tracee {
    /// Lets the thread go on by itself.
    fn drop(&mut self) {
        if self.is_gone {
            return;
        }
        let signal = self.kept_signal as usize;
        // SAFETY: takes numbers only.
        if unsafe { ptrace(libc::PTRACE_DETACH, self.thread, 0, signal) }.is_err() {
            // It was not stopped, because it did not react: the stop that was asked for comes later, and only a stopped
            // thread can be let go.
            if self.wait(CALL_PATIENCE).is_ok() {
                // SAFETY: as above.
                let _ = unsafe { ptrace(libc::PTRACE_DETACH, self.thread, 0, signal) };
            }
        }
    }
}

/// A thread whose registers are ours for a while.
pub struct Caller<'a> {
    tracee: &'a mut Tracee,
}

impl Caller<'_> {
    /// Calls a function of the process and returns what it returned.
    pub fn call(&mut self, function: u64, arguments: &[u64]) -> Result<u64, Trouble> {
        let tracee = &mut *self.tracee;
        let before = tracee.registers;
        let registers = &mut tracee.registers;
        // A function is entered with a return address on a stack that was aligned before.
        let stack = ((before.rsp - RED_ZONE) & !0xf) - 8;
        registers.rsp = stack;
        registers.rip = function;
        registers.rax = 0;
        // Not inside a system call: the kernel repeats none.
        registers.orig_rax = u64::MAX;
        registers.eflags &= !DIRECTION_FLAG;
        let places = [
            &mut registers.rdi,
            &mut registers.rsi,
            &mut registers.rdx,
            &mut registers.rcx,
            &mut registers.r8,
            &mut registers.r9,
        ];
        for (place, &argument) in places.into_iter().zip(arguments) {
            *place = argument;
        }
        // SAFETY: takes an address of the other process, which lies below its stack and belongs to nobody.
        unsafe {
            ptrace(
                libc::PTRACE_POKEDATA,
                tracee.thread,
                stack as usize,
                NOWHERE as usize,
            )
        }?;
        tracee.write_registers()?;
        tracee.go_on(0)?;
        loop {
            let status = match tracee.wait(CALL_PATIENCE) {
                Err(Trouble::Busy) => {
                    // It waits for something that does not come: it is taken out of the call, and no harm is done.
                    tracee.interrupt()?;
                    tracee.registers = before;
                    return Err(Trouble::Busy);
                }
                other => other?,
            };
            let is_signal = status >> 16 == 0;
            match libc::WSTOPSIG(status) {
                libc::SIGSEGV if is_signal => break,
                signal if is_signal => tracee.kept_signal = signal,
                // The whole process is being stopped, which waits for the end of this call.
                _ => {}
            }
            tracee.go_on(0)?;
        }
        tracee.read_registers()?;
        let after = tracee.registers;
        tracee.registers = before;
        if after.rip != NOWHERE {
            return Err(Trouble::System(io::Error::other(
                "a function of the process did not return",
            )));
        }
        Ok(after.rax)
    }
}

/// Returns when a child or a thread that we trace has changed, or after a moment: whoever sleeps until the kernel has news
/// is woken before those who only compute. The signal is held back, as all are while a thread stands still.
fn rest_until_news() {
    const MOMENT: libc::timespec = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    // SAFETY: the set is filled before it is used; nothing is written but the set.
    unsafe {
        let mut news: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut news);
        libc::sigaddset(&mut news, libc::SIGCHLD);
        libc::sigtimedwait(&news, std::ptr::null_mut(), &MOMENT);
    }
}

/// # Safety
/// What the request says of `address` and `data`.
unsafe fn ptrace(
    request: libc::c_uint,
    thread: libc::pid_t,
    address: usize,
    data: usize,
) -> Result<(), Trouble> {
    // SAFETY: as the caller says.
    let answer = unsafe { libc::ptrace(request, thread, address, data) };
    if answer == -1 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::ESRCH) => Trouble::Gone,
            _ => Trouble::System(error),
        });
    }
    Ok(())
}
