//! SIGBUS in memory that is shared with the capture ends the recording, not the program.
//!
//! When another process truncates the capture, or its disk fails, the next access to the mapping raises SIGBUS. The handler
//! here replaces the mapping by private memory and ends the recording; the interrupted access then continues. Every other
//! SIGBUS goes to the program's own action.
//!
//! While a recording has mappings, Heaptide's handler is installed, with the mask and the flags of the program's action.
//! The kernel therefore prepares the program's handler as it would without Heaptide. The program does not see this:
//! `sigaction` and `signal` are hooked and only change and return the program's action. So a handler that is installed
//! later, such as `faulthandler`'s, does not take Heaptide's faults.
//!
//! Limits: a raw system call, or a constructor of a library that is being loaded, can replace Heaptide's handler. If the
//! new handler passes the signal on, the recording ends as described; if not, the new handler decides. If the program
//! ignores SIGBUS, programs that it executes meanwhile have the default action instead.
//!
//! Runs on: any thread, also in a signal handler. Allocates: when a mapping is added. Locks: `INSTALLED`, with all signals
//! blocked; the handler takes no lock. During fork: `INSTALLED` is held across it.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use crate::hooks::real;
use crate::host::locks::ForkMutex;
use crate::host::signals::{self, TemporaryMask};
use crate::host::sys::{self, KeepErrno};
use crate::session;

/// Whether the kernel has Heaptide's handler.
pub(crate) static INSTALLED: ForkMutex<bool> = ForkMutex::new(false);
/// The process whose action [`PROGRAM`] is.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static PROGRAM: PublishedAction = PublishedAction::new();
/// A mapping of the current recording was replaced.
static FAULTED: AtomicBool = AtomicBool::new(false);
static RANGES: AtomicPtr<Range> = AtomicPtr::new(null_mut());

/// A mapping, or an unused entry. Entries are never freed, because the handler walks the list without a lock.
struct Range {
    /// The page number and the number of pages in one word, so that the handler never sees half of a change; 0 is unused.
    pages: AtomicU64,
    next: *const Range,
}

const PAGE_BITS: u32 = 12;
const COUNT_BITS: u32 = 28;

/// Adds a mapping whose faults end the recording.
pub(crate) fn add_range(memory: *mut u8, len: usize) {
    let pages = (memory as u64 >> PAGE_BITS) << COUNT_BITS | len as u64 >> PAGE_BITS;
    let mut range = RANGES.load(Ordering::Acquire);
    // SAFETY: null, or an entry, which is never freed.
    while let Some(entry) = unsafe { range.as_ref() } {
        let unused = entry
            .pages
            .compare_exchange(0, pages, Ordering::AcqRel, Ordering::Relaxed);
        if unused.is_ok() {
            return;
        }
        range = entry.next.cast_mut();
    }
    let mut next = RANGES.load(Ordering::Acquire);
    let entry = Box::leak(Box::new(Range {
        pages: AtomicU64::new(pages),
        next,
    }));
    loop {
        entry.next = next;
        match RANGES.compare_exchange(next, entry, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(newer) => next = newer,
        }
    }
}

/// Removes a mapping. Call before it is unmapped.
pub(crate) fn remove_range(memory: *mut u8) {
    for_each_range(|entry, start, _| {
        if start == memory as usize {
            entry.pages.store(0, Ordering::Release);
        }
    });
}

fn for_each_range(mut visit: impl FnMut(&Range, usize, usize)) {
    let mut range = RANGES.load(Ordering::Acquire).cast_const();
    // SAFETY: null, or an entry, which is never freed.
    while let Some(entry) = unsafe { range.as_ref() } {
        let pages = entry.pages.load(Ordering::Acquire);
        if pages != 0 {
            let n_pages = pages & ((1 << COUNT_BITS) - 1);
            visit(
                entry,
                (pages >> COUNT_BITS << PAGE_BITS) as usize,
                (n_pages << PAGE_BITS) as usize,
            );
        }
        range = entry.next;
    }
}

/// Replaces the mapping that contains `address` by private memory. Returns `false` if no mapping of Heaptide contains it.
fn replace_mapping_at(address: usize) -> bool {
    let mut mapping = None;
    for_each_range(|_, start, len| {
        if address.wrapping_sub(start) < len {
            mapping = Some((start, len));
        }
    });
    // SAFETY: the range is a mapping of Heaptide that the interrupted thread is using, so it stays mapped meanwhile.
    mapping.is_some_and(|(start, len)| unsafe { sys::replace_by_private(start as *mut u8, len) })
}

/// Replaces all mappings by private memory, in a forked child. They are not unmapped: the child may have been forked in a
/// signal handler that interrupted an event.
pub(crate) fn replace_all_mappings() {
    for_each_range(|entry, start, len| {
        // SAFETY: the range is a mapping of Heaptide, and the child's only thread is here, so nothing unmaps it.
        unsafe { sys::replace_by_private(start as *mut u8, len) };
        entry.pages.store(0, Ordering::Release);
    });
}

/// Whether a mapping of the current recording was replaced.
pub(crate) fn has_faulted() -> bool {
    FAULTED.load(Ordering::Acquire)
}

/// Lets the kernel call Heaptide's handler. Does nothing if it does already.
pub(crate) fn install() {
    FAULTED.store(false, Ordering::Release);
    claim_process();
    let _blocked = TemporaryMask::all();
    let mut installed = INSTALLED.lock();
    if *installed {
        return;
    }
    let Some(current) = exchange(None) else {
        return;
    };
    if !current.is_heaptides() {
        PROGRAM.set(current);
    }
    *installed = exchange(Some(PROGRAM.get().with_heaptides_handler())).is_some();
}

/// Makes the calling process the one whose action is known. A forked child has the action of its parent.
pub(crate) fn claim_process() {
    PROCESS.store(std::process::id(), Ordering::Release);
}

/// Whether this is the process whose action is known. If not, it was created by `vfork`, as `subprocess` does, and uses the
/// memory of its parent: a change of its action must not change the parent's data.
pub(crate) fn is_this_process() -> bool {
    PROCESS.load(Ordering::Acquire) == std::process::id()
}

/// Restores the program's action, unless something that bypasses the hooks has installed another one.
pub(crate) fn uninstall() {
    let _blocked = TemporaryMask::all();
    let mut installed = INSTALLED.lock();
    if *installed && exchange(None).is_some_and(|current| current.is_heaptides()) {
        exchange(Some(PROGRAM.get()));
    }
    *installed = false;
}

/// The action of a signal, without the parts that the C library adds.
#[derive(Clone, Copy)]
struct Action {
    /// SIG_DFL, SIG_IGN or the address of a function.
    handler: usize,
    flags: c_int,
    /// A complete mask, because the kernel has 64 signals.
    mask: u64,
}

impl Action {
    const DEFAULT: Action = Action {
        handler: libc::SIG_DFL,
        flags: 0,
        mask: 0,
    };

    fn is_heaptides(self) -> bool {
        self.handler == on_bus_error as *const () as usize
    }

    fn has_function(self) -> bool {
        !matches!(self.handler, libc::SIG_DFL | libc::SIG_IGN)
    }

    /// Heaptide's handler for a program with this action: the kernel then applies the mask and the flags of the program.
    fn with_heaptides_handler(self) -> Action {
        let (flags, mask) = if self.has_function() {
            // The handler itself applies SA_RESETHAND, because a fault of Heaptide must not reset the program's handler.
            (self.flags & !libc::SA_RESETHAND, self.mask)
        } else {
            (libc::SA_ONSTACK | libc::SA_RESTART, 0)
        };
        Action {
            handler: on_bus_error as *const () as usize,
            flags: flags | libc::SA_SIGINFO,
            mask,
        }
    }

    fn from_libc(action: &libc::sigaction) -> Action {
        Action {
            handler: action.sa_sigaction,
            flags: action.sa_flags,
            mask: signals::first_word(&action.sa_mask),
        }
    }

    fn to_libc(self) -> libc::sigaction {
        // SAFETY: the struct consists of numbers and an optional function, for which zero bytes are valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = self.handler;
        action.sa_flags = self.flags;
        action.sa_mask = signals::set_of_word(self.mask);
        action
    }
}

/// The program's action, which the handler reads without a lock. Holders of `INSTALLED` write it.
struct PublishedAction {
    /// Odd while a writer changes the fields.
    version: AtomicU32,
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

impl PublishedAction {
    const fn new() -> Self {
        PublishedAction {
            version: AtomicU32::new(0),
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicI32::new(0),
            mask: AtomicU64::new(0),
        }
    }

    fn set(&self, action: Action) {
        self.version.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.handler.store(action.handler, Ordering::Relaxed);
        self.flags.store(action.flags, Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The action. Waits for a writer on another thread. A writer on this thread cannot have been interrupted: it blocks
    /// all signals and accesses no file mapping.
    fn get(&self) -> Action {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let action = Action {
                handler: self.handler.load(Ordering::Relaxed),
                flags: self.flags.load(Ordering::Relaxed),
                mask: self.mask.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if version % 2 == 0 && version == self.version.load(Ordering::Relaxed) {
                return action;
            }
            std::hint::spin_loop();
        }
    }

    /// The action for one signal. As the kernel does, this resets the handler if the program asked for that.
    fn take(&self) -> Action {
        let action = self.get();
        if action.has_function() && action.flags & libc::SA_RESETHAND != 0 {
            let reset = self.handler.compare_exchange(
                action.handler,
                libc::SIG_DFL,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if reset.is_err() {
                return Action::DEFAULT;
            }
        }
        action
    }
}

/// Sets the kernel's action for SIGBUS if `new` is given. Returns the previous action; `None` if the kernel refuses.
fn exchange(new: Option<Action>) -> Option<Action> {
    let new = new.map(Action::to_libc);
    // SAFETY: the struct consists of numbers and an optional function, for which zero bytes are valid.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are null or those of live variables, and every action given here is the program's or Heaptide's.
    let result = unsafe {
        real_sigaction(
            libc::SIGBUS,
            new.as_ref().map_or(null(), |new| new),
            &mut old,
        )
    };
    (result == 0).then(|| Action::from_libc(&old))
}

/// # Safety
/// As for `sigaction`.
unsafe fn real_sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    match real::sigaction.get_if_found() {
        Some(function) => function(signal, new, old),
        // SAFETY: the caller keeps the contract of `sigaction`.
        None => unsafe { libc::sigaction(signal, new, old) },
    }
}

/// Changes the program's action if `new` is given, while the kernel has Heaptide's handler. Returns the previous action;
/// `None` if the kernel has another handler: then `bypass` makes the change.
fn exchange_programs_action(new: Option<Action>, bypass: impl FnOnce()) -> Option<Action> {
    let _blocked = TemporaryMask::all();
    let installed = INSTALLED.lock();
    if !*installed || !exchange(None).is_some_and(|current| current.is_heaptides()) {
        bypass();
        return None;
    }
    let before = PROGRAM.get();
    // A program that read the action by a raw system call may put Heaptide's handler back, which is there already.
    if let Some(new) = new.filter(|new| !new.is_heaptides()) {
        PROGRAM.set(new);
        exchange(Some(new.with_heaptides_handler()));
    }
    Some(before)
}

/// The hook of `sigaction`.
pub(crate) unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if signal != libc::SIGBUS || !is_this_process() {
        // SAFETY: the program called `sigaction` with these arguments.
        return unsafe { real_sigaction(signal, new, old) };
    }
    // SAFETY: null, or an action, as `sigaction` requires.
    let action = unsafe { new.as_ref() }.map(Action::from_libc);
    let mut result = 0;
    let before = exchange_programs_action(action, || {
        // SAFETY: the program called `sigaction` with these arguments.
        result = unsafe { real_sigaction(signal, new, old) };
    });
    // SAFETY: null, or memory for an action, as `sigaction` requires.
    if let (Some(before), Some(old)) = (before, unsafe { old.as_mut() }) {
        *old = before.to_libc();
    }
    result
}

/// The hook of `signal`.
pub(crate) unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    let call = || match real::signal.get_if_found() {
        Some(function) => function(signal, handler),
        // SAFETY: the program called `signal` with these arguments.
        None => unsafe { libc::signal(signal, handler) },
    };
    if signal != libc::SIGBUS || handler == libc::SIG_ERR || !is_this_process() {
        return call();
    }
    let action = Action {
        handler,
        flags: libc::SA_RESTART,
        mask: signals::bit(libc::SIGBUS),
    };
    let mut result = libc::SIG_ERR;
    match exchange_programs_action(Some(action), || result = call()) {
        Some(before) => before.handler,
        None => result,
    }
}

/// Heaptide's handler.
extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid information for a handler with SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let is_access = is_raised_by_access(code);
    if is_access && end_recording_at(address) {
        return;
    }
    let action = PROGRAM.take();
    if action.has_function() {
        // The program's handler may leave by `longjmp`, so no value here needs to be dropped.
        // SAFETY: the program gave this function as its handler, and SA_SIGINFO states its type.
        unsafe { call_programs_handler(action, signal, info, context) };
    } else if is_access || action.handler == libc::SIG_DFL {
        let _errno = KeepErrno::now();
        // An access that fails ends the process even if SIGBUS is ignored. It fails again when this handler returns.
        exchange(Some(Action::DEFAULT));
        if !is_access {
            // SAFETY: `info` is valid, and the process sends the signal to itself.
            unsafe { signals::send_to_own_thread(signal, info) };
        }
    }
}

/// Replaces the mapping that contains `address` and ends the recording. Returns `false` if no mapping of Heaptide contains
/// it.
fn end_recording_at(address: usize) -> bool {
    let _errno = KeepErrno::now();
    if !replace_mapping_at(address) {
        return false;
    }
    FAULTED.store(true, Ordering::Release);
    session::end_after_fault();
    true
}

/// # Safety
/// The action's handler is a function that fits its flags.
unsafe fn call_programs_handler(
    action: Action,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: an address has the size and the bits of a function pointer, and SA_SIGINFO distinguishes the two types.
    unsafe {
        if action.flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                std::mem::transmute(action.handler);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(c_int) = std::mem::transmute(action.handler);
            handler(signal);
        }
    }
}

/// Whether an instruction raised the signal and will raise it again. If not, another process or the kernel sent it.
fn is_raised_by_access(code: c_int) -> bool {
    const BUS_MCEERR_AO: c_int = 5;
    code > 0 && code != BUS_MCEERR_AO
}
