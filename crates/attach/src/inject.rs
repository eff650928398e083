//! Runs Python code in another process, on a new thread of that process. x86-64 only.
//!
//! ```text
//! a thread at a safe point, stopped:  mmap, pthread_create, then it continues where it was
//! the new thread:                     PyGILState_Ensure, PyRun_SimpleString, PyGILState_Release, munmap, end
//! ```
//! The mapped memory holds a table, the Python code and the new thread's few instructions. The last instruction jumps
//! to `munmap`, which returns to the C library, so that nothing remains in the process.

use std::io;
use std::time::{Duration, Instant};

use heaptide_procfs::Status;

use crate::memory::Memory;
use crate::preflight::{Target, forbidden};
use crate::refusal::{Forbidding, Refusal};
use crate::safe_point;
use crate::tracee::{Caller, Tracee, TraceeError};

const PAGE: u64 = 4096;
/// Pause between two rounds through all threads.
const FIRST_PAUSE: Duration = Duration::from_micros(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// The table: eight words, then the new thread's handle and the state of the GIL, then the Python code.
const TEXT_AT: usize = 80;
const HANDLE_AT: u64 = 64;

/// The instructions of the new thread; `rbx` holds the address of the table.
const CODE: &[u8] = &[
    0x53, // push rbx
    0x48, 0x89, 0xfb, // mov rbx, rdi
    0xff, 0x53, 0x38, // call [rbx+56]       heaptide_leave_out_thread
    0xff, 0x13, // call [rbx]          pthread_self
    0x48, 0x89, 0xc7, // mov rdi, rax
    0xff, 0x53, 0x08, // call [rbx+8]        pthread_detach
    0xff, 0x53, 0x10, // call [rbx+16]       PyGILState_Ensure
    0x89, 0x43, 0x48, // mov [rbx+72], eax
    0x48, 0x8d, 0x7b, 0x50, // lea rdi, [rbx+80]
    0xff, 0x53, 0x18, // call [rbx+24]       PyRun_SimpleString
    0x8b, 0x7b, 0x48, // mov edi, [rbx+72]
    0xff, 0x53, 0x20, // call [rbx+32]       PyGILState_Release
    0x48, 0x89, 0xdf, // mov rdi, rbx
    0x48, 0x8b, 0x73, 0x30, // mov rsi, [rbx+48]
    0x48, 0x8b, 0x43, 0x28, // mov rax, [rbx+40]
    0x5b, // pop rbx
    0xff, 0xe0, // jmp rax             munmap
];

/// Makes the process run Python code as soon as possible. Returns the longest pause of a thread.
pub fn run(target: &Target, text: &str, timeout: Duration) -> Result<Duration, Refusal> {
    let deadline = Instant::now() + timeout;
    let mut pause = FIRST_PAUSE;
    let mut longest = Duration::ZERO;
    loop {
        for thread in safe_point::candidates(target.pid) {
            let done = try_thread(target, thread, text, &mut longest)?;
            if done {
                return Ok(longest);
            }
        }
        match Status::of(target.pid) {
            Ok(status) if !status.has_ended() => {}
            _ => return Err(Refusal::EndedMeanwhile(target.pid)),
        }
        if Instant::now() > deadline {
            return Err(Refusal::NoSafePoint(target.pid));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Stops one thread and uses it if it is at a safe point. Returns false if it is not, has ended or is busy.
fn try_thread(
    target: &Target,
    thread: u32,
    text: &str,
    longest: &mut Duration,
) -> Result<bool, Refusal> {
    // Signals are blocked until the thread's registers are restored.
    let _held = HeldSignals::hold();
    let mut tracee = match Tracee::stop(thread) {
        Ok(tracee) => tracee,
        Err(TraceeError::Gone | TraceeError::Busy) => return Ok(false),
        Err(TraceeError::System(error)) => return Err(explain(target.pid, &error)),
    };
    let result = if safe_point::is_safe(target, &tracee) {
        tracee
            .borrow(|caller| start_thread(target, caller, text))
            .map(|()| true)
    } else {
        Ok(false)
    };
    *longest = tracee.paused_for().max(*longest);
    drop(tracee);
    match result {
        Ok(done) => Ok(done),
        Err(TraceeError::Gone) => Ok(false),
        Err(TraceeError::Busy) => Err(Refusal::NoSafePoint(target.pid)),
        Err(TraceeError::System(error)) => Err(Refusal::failed(
            target.pid,
            "starting a thread in it",
            &error,
        )),
    }
}

fn start_thread(target: &Target, caller: &mut Caller<'_>, text: &str) -> Result<(), TraceeError> {
    let libc = &target.libc;
    let data_len = ((TEXT_AT + text.len() + 1) as u64).next_multiple_of(PAGE);
    let len = data_len + PAGE;
    // One call for writable and executable memory: a second call would pause the thread longer. A policy that forbids
    // such memory also forbids making it executable later.
    let rights = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as u64;
    let map_flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let base = caller.call(libc.mmap, &[0, len, rights, map_flags, u64::MAX, 0])?;
    if base % PAGE != 0 {
        return Err(TraceeError::System(io::Error::other(
            "it cannot get executable memory",
        )));
    }
    let begun = fill_and_start(target, caller, text, base, data_len, len);
    if matches!(begun, Err(TraceeError::System(_))) {
        // No thread uses the memory.
        caller.call(libc.munmap, &[base, len])?;
    }
    begun
}

fn fill_and_start(
    target: &Target,
    caller: &mut Caller<'_>,
    text: &str,
    base: u64,
    data_len: u64,
    len: u64,
) -> Result<(), TraceeError> {
    let (libc, python) = (&target.libc, &target.interpreter);
    let table = [
        libc.pthread_self,
        libc.pthread_detach,
        python.ensure_gil,
        python.run_text,
        python.release_gil,
        libc.munmap,
        len,
        // Called first: an active recording must not contain this thread.
        target.leave_out_thread.unwrap_or(libc.pthread_self),
        0,
        0,
    ];
    let mut data: Vec<u8> = table.iter().flat_map(|word| word.to_le_bytes()).collect();
    data.extend_from_slice(text.as_bytes());
    data.push(0);
    let code = base + data_len;
    let memory = Memory::of(target.pid);
    memory.write(base, &data).map_err(TraceeError::System)?;
    memory.write(code, CODE).map_err(TraceeError::System)?;
    let returned = caller.call(libc.pthread_create, &[base + HANDLE_AT, 0, code, base])?;
    match returned as i32 {
        0 => Ok(()),
        errno => Err(TraceeError::System(io::Error::from_raw_os_error(errno))),
    }
}

fn explain(pid: u32, error: &io::Error) -> Refusal {
    if error.raw_os_error() != Some(libc::EPERM) {
        return Refusal::failed(pid, "stopping a thread of it", error);
    }
    match Status::of(pid) {
        Ok(status) if status.tracer != 0 => Refusal::Traced {
            pid,
            tracer: status.tracer,
        },
        _ => forbidden(pid, Forbidding::Capability),
    }
}

/// Blocks all signals of this thread until it is dropped.
struct HeldSignals {
    before: libc::sigset_t,
}

impl HeldSignals {
    fn hold() -> HeldSignals {
        // SAFETY: signal sets are plain bits, for which zero bytes are valid, and both pointers are those of live
        // variables.
        unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            HeldSignals { before }
        }
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        // SAFETY: `before` is a live signal set, and a null pointer asks for no old mask.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}
