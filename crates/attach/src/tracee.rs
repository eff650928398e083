//! Stops one thread of another process, makes it call functions, and restores it. x86-64 only.
//!
//! A thread that is stopped inside a system call continues the call if its registers, including `orig_rax`, are
//! restored exactly. The kernel checks them on return and restarts the call.

use std::io;
use std::time::{Duration, Instant};

/// Largest size of the vector registers; the kernel returns the actual size.
const MAX_VECTOR_BYTES: usize = 16 << 10;
/// A thread that does not stop within this time sleeps uninterruptibly in the kernel.
const STOP_TIMEOUT: Duration = Duration::from_millis(200);
/// A call takes microseconds, or perhaps a second on a machine that swaps.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Leaf functions may use this much below the stack pointer.
const RED_ZONE: u64 = 128;
const DIRECTION_FLAG: u64 = 1 << 10;
const NT_PRSTATUS: usize = 1;
const NT_X86_XSTATE: usize = 0x202;
/// Return address of called functions: nothing is mapped there, so the thread stops again.
const NOWHERE: u64 = 0;

/// A stopped thread.
pub struct Tracee {
    thread: libc::pid_t,
    pub registers: libc::user_regs_struct,
    stopped_at: Instant,
    is_gone: bool,
    /// A signal that arrived while the thread was stopped and could not be blocked; delivered when it is released.
    kept_signal: i32,
}

/// The reason why a thread was not stopped, or a call on it failed.
#[derive(Debug)]
pub enum TraceeError {
    /// The thread has ended.
    Gone,
    /// The thread did not stop, or did not return from the call, in time.
    Busy,
    System(io::Error),
}

impl Tracee {
    /// Stops one thread; the other threads of the process continue.
    pub fn stop(thread: u32) -> Result<Tracee, TraceeError> {
        let thread = thread as libc::pid_t;
        // SAFETY: seizing takes numbers only.
        unsafe { ptrace(libc::PTRACE_SEIZE, thread, 0, 0) }?;
        let mut tracee = Tracee {
            thread,
            // SAFETY: registers are plain numbers, for which zero bytes are valid.
            registers: unsafe { std::mem::zeroed() },
            stopped_at: Instant::now(),
            is_gone: false,
            kept_signal: 0,
        };
        tracee.interrupt()?;
        Ok(tracee)
    }

    fn interrupt(&mut self) -> Result<(), TraceeError> {
        // SAFETY: this request takes numbers only.
        unsafe { ptrace(libc::PTRACE_INTERRUPT, self.thread, 0, 0) }?;
        self.stopped_at = Instant::now();
        loop {
            let status = self.wait(STOP_TIMEOUT)?;
            if status >> 16 == libc::PTRACE_EVENT_STOP {
                break;
            }
            // This signal is for the program: deliver it.
            self.resume(libc::WSTOPSIG(status))?;
        }
        self.read_registers()
    }

    /// Waits for the next stop.
    fn wait(&mut self, timeout: Duration) -> Result<i32, TraceeError> {
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
                return Err(TraceeError::Gone);
            }
            if answer < 0 {
                self.is_gone = true;
                return Err(TraceeError::Gone);
            }
            if Instant::now() > deadline {
                return Err(TraceeError::Busy);
            }
            wait_for_child_event();
        }
    }

    fn resume(&self, signal: i32) -> Result<(), TraceeError> {
        // SAFETY: this request takes numbers only.
        unsafe { ptrace(libc::PTRACE_CONT, self.thread, 0, signal as usize) }
    }

    /// Returns the system call that the thread is in.
    pub fn system_call(&self) -> Option<u64> {
        let number = self.registers.orig_rax;
        (number as i64 >= 0).then_some(number)
    }

    /// Returns how long the thread has been stopped.
    pub fn paused_for(&self) -> Duration {
        self.stopped_at.elapsed()
    }

    /// Lets `work` call functions of the process on this thread. Restores registers, vector registers and the signal mask
    /// afterwards.
    pub fn borrow<T>(
        &mut self,
        work: impl FnOnce(&mut Caller<'_>) -> Result<T, TraceeError>,
    ) -> Result<T, TraceeError> {
        let mut vectors = vec![0u8; MAX_VECTOR_BYTES];
        // SAFETY: the buffer is live and writable for the given length.
        let len =
            unsafe { self.get_set(NT_X86_XSTATE, vectors.as_mut_ptr().cast(), vectors.len())? };
        let mut blocked = 0u64;
        // SAFETY: the mask is eight bytes, which is the length passed to the kernel.
        unsafe {
            ptrace(
                libc::PTRACE_GETSIGMASK as _,
                self.thread,
                size_of::<u64>(),
                &raw mut blocked as usize,
            )
        }?;
        // No signal handler of the program may run during the calls. The SIGSEGV that ends a call must not be blocked.
        let all = !(1u64 << (libc::SIGSEGV - 1));
        self.set_mask(all)?;
        let saved = self.registers;
        let result = work(&mut Caller { tracee: self });
        if self.is_gone {
            return Err(TraceeError::Gone);
        }
        self.registers = saved;
        self.write_registers()?;
        // SAFETY: the buffer is live for the given length and holds what the kernel returned for this register set.
        unsafe { self.put_set(NT_X86_XSTATE, vectors.as_mut_ptr().cast(), len)? };
        self.set_mask(blocked)?;
        result
    }

    fn set_mask(&self, mut mask: u64) -> Result<(), TraceeError> {
        // SAFETY: the mask is eight bytes, which is the length passed to the kernel.
        unsafe {
            ptrace(
                libc::PTRACE_SETSIGMASK as _,
                self.thread,
                size_of::<u64>(),
                &raw mut mask as usize,
            )
        }
    }

    fn read_registers(&mut self) -> Result<(), TraceeError> {
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

    fn write_registers(&mut self) -> Result<(), TraceeError> {
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
    ) -> Result<usize, TraceeError> {
        let mut part = libc::iovec {
            iov_base: buffer,
            iov_len: len,
        };
        // SAFETY: the caller guarantees that `buffer` is valid for `len` bytes; `part` outlives the call.
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
    ) -> Result<(), TraceeError> {
        let mut part = libc::iovec {
            iov_base: buffer,
            iov_len: len,
        };
        // SAFETY: the caller guarantees that `buffer` is valid for `len` bytes; `part` outlives the call.
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
    /// Releases the thread.
    fn drop(&mut self) {
        if self.is_gone {
            return;
        }
        let signal = self.kept_signal as usize;
        // SAFETY: this request takes numbers only.
        if unsafe { ptrace(libc::PTRACE_DETACH, self.thread, 0, signal) }.is_err() {
            // The thread did not react yet: the requested stop comes later, and only a stopped thread can be released.
            if self.wait(CALL_TIMEOUT).is_ok() {
                // SAFETY: as above.
                let _ = unsafe { ptrace(libc::PTRACE_DETACH, self.thread, 0, signal) };
            }
        }
    }
}

/// Calls functions on a stopped thread.
pub struct Caller<'a> {
    tracee: &'a mut Tracee,
}

impl Caller<'_> {
    /// Calls a function of the process; returns its result.
    pub fn call(&mut self, function: u64, arguments: &[u64]) -> Result<u64, TraceeError> {
        let tracee = &mut *self.tracee;
        let before = tracee.registers;
        let registers = &mut tracee.registers;
        // At function entry, the return address lies on a stack that was aligned before the call.
        let stack = ((before.rsp - RED_ZONE) & !0xf) - 8;
        registers.rsp = stack;
        registers.rip = function;
        registers.rax = 0;
        // Marks the thread as not in a system call, so that the kernel restarts none.
        registers.orig_rax = u64::MAX;
        registers.eflags &= !DIRECTION_FLAG;
        let argument_registers = [
            &mut registers.rdi,
            &mut registers.rsi,
            &mut registers.rdx,
            &mut registers.rcx,
            &mut registers.r8,
            &mut registers.r9,
        ];
        for (register, &argument) in argument_registers.into_iter().zip(arguments) {
            *register = argument;
        }
        // SAFETY: the address is in the other process, below its stack pointer, where no live data is.
        unsafe {
            ptrace(
                libc::PTRACE_POKEDATA,
                tracee.thread,
                stack as usize,
                NOWHERE as usize,
            )
        }?;
        tracee.write_registers()?;
        tracee.resume(0)?;
        loop {
            let status = match tracee.wait(CALL_TIMEOUT) {
                Err(TraceeError::Busy) => {
                    // The function is blocked: restoring the registers aborts the call.
                    tracee.interrupt()?;
                    tracee.registers = before;
                    return Err(TraceeError::Busy);
                }
                other => other?,
            };
            let is_signal = status >> 16 == 0;
            match libc::WSTOPSIG(status) {
                libc::SIGSEGV if is_signal => break,
                signal if is_signal => tracee.kept_signal = signal,
                // The whole process is being stopped; that completes after this call.
                _ => {}
            }
            tracee.resume(0)?;
        }
        tracee.read_registers()?;
        let after = tracee.registers;
        tracee.registers = before;
        if after.rip != NOWHERE {
            return Err(TraceeError::System(io::Error::other(
                "a function of the process did not return",
            )));
        }
        Ok(after.rax)
    }
}

/// Waits for SIGCHLD, or for a short time. A wait is better than a loop: the kernel schedules a process that wakes up
/// before processes that compute. The signal is blocked, like all signals while a thread is stopped.
fn wait_for_child_event() {
    const SHORT_WAIT: libc::timespec = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    // SAFETY: the set is filled before it is used; nothing is written but the set.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, libc::SIGCHLD);
        libc::sigtimedwait(&signals, std::ptr::null_mut(), &SHORT_WAIT);
    }
}

/// # Safety
/// `address` and `data` must be valid for the request, as ptrace(2) describes.
unsafe fn ptrace(
    request: libc::c_uint,
    thread: libc::pid_t,
    address: usize,
    data: usize,
) -> Result<(), TraceeError> {
    // SAFETY: the caller guarantees that the arguments are valid for the request.
    let answer = unsafe { libc::ptrace(request, thread, address, data) };
    if answer == -1 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::ESRCH) => TraceeError::Gone,
            _ => TraceeError::System(error),
        });
    }
    Ok(())
}
