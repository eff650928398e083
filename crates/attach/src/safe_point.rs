//! Safe points. At a safe point, a thread can start another one: it holds no lock of the C library or the dynamic linker.
//!
//! There are two sorts: inside the function that evaluates Python code, and inside a blocking system call made by the C
//! library itself. A thread at any other point is continued and tried again.

use heaptide_procfs as procfs;

use crate::preflight::Target;
use crate::tracee::Tracee;

/// Internal results of the kernel for a system call that the stop interrupted and that it will restart.
const INTERRUPTED: [i64; 5] = [
    -(libc::EINTR as i64),
    -512, // ERESTARTSYS
    -513, // ERESTARTNOINTR
    -514, // ERESTARTNOHAND
    -516, // ERESTART_RESTARTBLOCK
];

/// Blocking calls that the kernel restarts after a stop.
const REPEATED: [libc::c_long; 24] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pause,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_flock,
    libc::SYS_futex,
];

/// Blocking calls that return EINTR after a stop, as after any signal. Python calls them again.
const NOT_REPEATED: [libc::c_long; 7] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semtimedop,
    libc::SYS_msgrcv,
    libc::SYS_io_uring_enter,
];

/// The futex operation of conditions and semaphores. Plain locks, such as malloc's, use another one.
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_OPERATION: u64 = 0x7f;

/// Returns whether a stopped thread is at a safe point.
pub fn is_safe(target: &Target, tracee: &Tracee) -> bool {
    let registers = &tracee.registers;
    let Some(number) = tracee.system_call() else {
        return target.interpreter.evaluation.contains(registers.rip);
    };
    waits(number, registers.rsi)
        && INTERRUPTED.contains(&(registers.rax as i64))
        && target.libc.contains(registers.rip)
}

fn waits(number: u64, second_argument: u64) -> bool {
    let number = number as libc::c_long;
    if number == libc::SYS_futex {
        return second_argument & FUTEX_OPERATION == FUTEX_WAIT_BITSET;
    }
    REPEATED.contains(&number) || NOT_REPEATED.contains(&number)
}

/// Returns the threads of a process except Heaptide's own. Threads that a stop disturbs least come first.
pub fn candidates(pid: u32) -> Vec<u32> {
    let threads = procfs::threads(pid).into_iter();
    let mut ranked: Vec<(u8, u32)> = threads
        .filter_map(|thread| {
            let name = procfs::thread_name(pid, thread)?;
            let call = procfs::system_call(pid, thread);
            (!is_own_thread(pid, thread, &name)).then(|| (rank(&call), thread))
        })
        .collect();
    ranked.sort_by_key(|&(rank, _)| rank);
    ranked.into_iter().map(|(_, thread)| thread).collect()
}

/// Returns whether a thread is Heaptide's own, by its name. The main thread never is: in a program started by `heaptide run`
/// it has the name of the command.
fn is_own_thread(pid: u32, thread: u32, name: &str) -> bool {
    thread != pid && name == "heaptide"
}

/// Ranks a thread by its `/proc/PID/task/TID/syscall`: the number and arguments of its system call, or `running`.
fn rank(call: &str) -> u8 {
    let mut words = call.split_ascii_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<u64>().ok()) else {
        return 1;
    };
    let second = words.nth(1).and_then(|word| word.strip_prefix("0x"));
    let second = second.and_then(|word| u64::from_str_radix(word, 16).ok());
    let is_repeated = REPEATED.contains(&(number as libc::c_long));
    match (waits(number, second.unwrap_or(0)), is_repeated) {
        (true, true) => 0,
        (true, false) => 2,
        (false, _) => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_least_disturbed_by_a_stop_come_first() {
        let condition = "202 0x7f0 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd 0x7f1";
        assert_eq!(rank(condition), 0);
        assert_eq!(rank("230 0x1 0x1 0x7ffd 0x0 0x0 0x0 0x7ffd 0x7f1"), 0);
        assert_eq!(rank("running"), 1);
        assert_eq!(rank("232 0x4 0x7f 0x3 0x1 0x0 0x8 0x7ffd 0x7f1"), 2);
        // A plain lock, and a call that changes memory: the thread may be inside malloc.
        assert_eq!(rank("202 0x7f0 0x80 0x2 0x0 0x0 0x0 0x7ffd 0x7f1"), 3);
        assert_eq!(rank("9 0x0 0x1000 0x3 0x22 0x0 0x0 0x7ffd 0x7f1"), 3);
    }

    #[test]
    fn main_thread_named_heaptide_belongs_to_the_program() {
        assert!(!is_own_thread(4711, 4711, "heaptide"));
        assert!(is_own_thread(4711, 4712, "heaptide"));
        assert!(!is_own_thread(4711, 4713, "python3"));
    }
}
