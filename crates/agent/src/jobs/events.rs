//! The events that hooks report while jobs are traced, and the search for the job of an event.
//!
//! Runs on: any thread, in a hook. Locks: `ACCOUNTS`, for each event.

use std::sync::atomic::Ordering;

use heaptide_capture::Allocator;

use super::accounts::{Accounts, Block};
use super::{ACCOUNTS, GENERATION, NO_JOB, VARIABLE, is_active};
use crate::cpython::{context, interpreter};
use crate::hooks::events::Release;
use crate::record::threads::ThreadState;

/// The part of a thread's state that belongs to jobs. Zero bytes are a valid initial value.
#[repr(C)]
pub struct ThreadMemory {
    /// The context and its map of variables for which `job` was determined, and `GENERATION` at that time.
    context: usize,
    variables: usize,
    job: u32,
    generation: u32,
    /// The job that began on this thread, if contexts cannot be read.
    pub(super) thread_job: u32,
    /// Number of [`super::Excluded`] guards.
    pub(super) n_excluded: u32,
    /// Whether a capture contains the thread's last release.
    is_noted: u32,
    /// The thread's last release, in case it fails or is part of a `realloc`.
    released: Released,
    /// The address of the block that the thread allocated last; 0 if a release followed.
    newest: usize,
    /// The job of that block.
    newest_job: u32,
}

/// A release, in integers for which zero bytes are valid.
#[repr(C)]
#[derive(Clone, Copy)]
struct Released {
    address: usize,
    size: usize,
    job: u32,
    site: u32,
    number: u32,
    /// `NOTHING`, `UNKNOWN_BLOCK` or `KNOWN_BLOCK`.
    state: u32,
    allocator: u32,
}

const NOTHING: u32 = 0;
/// A block that was not in the table.
const UNKNOWN_BLOCK: u32 = 1;
/// A block that was in the table.
const KNOWN_BLOCK: u32 = 2;

impl Released {
    const NOTHING: Released = Released {
        address: 0,
        size: 0,
        job: 0,
        site: 0,
        number: 0,
        state: NOTHING,
        allocator: 0,
    };

    fn new(address: usize, block: Option<Block>) -> Released {
        match block {
            None => Released {
                address,
                state: UNKNOWN_BLOCK,
                ..Released::NOTHING
            },
            Some(block) => Released {
                address,
                size: block.size,
                job: block.job,
                site: block.site,
                number: block.number,
                state: KNOWN_BLOCK,
                allocator: block.allocator as u32,
            },
        }
    }

    fn known_block(&self) -> Option<Block> {
        (self.state == KNOWN_BLOCK).then_some(Block {
            size: self.size,
            job: self.job,
            site: self.site,
            number: self.number,
            allocator: Allocator::from_number(self.allocator as u8)?,
        })
    }
}

impl ThreadMemory {
    /// Returns the block that the thread released last if the allocation resizes it. Sets `job` to `NO_JOB` if that
    /// block belonged to no job.
    #[inline(never)]
    fn take_resized(&mut self, allocator: Allocator, job: &mut u32) -> Option<Block> {
        let released = std::mem::replace(&mut self.released, Released::NOTHING);
        let is_resized = matches!(
            allocator,
            Allocator::Realloc | Allocator::Reallocarray | Allocator::PymallocRealloc
        );
        if !is_resized {
            return None;
        }
        if released.state == UNKNOWN_BLOCK || released.job == NO_JOB {
            // The block belonged to no job, so most of its bytes do not belong to this one.
            *job = NO_JOB;
        }
        released.known_block()
    }
}

/// Returns whether jobs are traced and this thread's events count.
///
/// # Safety
/// `state` comes from `threads::enter` on this thread.
#[inline]
pub unsafe fn counts(state: *mut ThreadState) -> bool {
    // SAFETY: only its own thread uses an entered state.
    is_active() && unsafe { (*state).jobs.n_excluded } == 0
}

/// Stores whether a capture contains the release that is about to happen.
///
/// # Safety
/// As for [`counts`].
pub unsafe fn remember_noted(state: *mut ThreadState, is_noted: bool) {
    // SAFETY: as in `counts`.
    unsafe { (*state).jobs.is_noted = u32::from(is_noted) };
}

/// # Safety
/// As for [`counts`].
pub unsafe fn is_noted(state: *mut ThreadState) -> bool {
    // SAFETY: as in `counts`.
    unsafe { (*state).jobs.is_noted != 0 }
}

/// Returns the job that the calling thread works for.
///
/// # Safety
/// `thread_state` is 0 or the calling thread's own.
#[inline(always)]
unsafe fn current(memory: &mut ThreadMemory, thread_state: usize, accounts: &Accounts) -> u32 {
    if !context::is_trusted() {
        return match memory.thread_job {
            NO_JOB => accounts.job_of_thread(own_thread),
            job => job,
        };
    }
    // SAFETY: passed on from the caller.
    let (context, variables) = unsafe { context::entered(thread_state) };
    let generation = GENERATION.load(Ordering::Acquire);
    if context != memory.context || variables != memory.variables || generation != memory.generation
    {
        // SAFETY: the map belongs to the context that this thread has entered.
        memory.job = unsafe { find_job(variables, accounts) };
        memory.context = context;
        memory.variables = variables;
        memory.generation = generation;
    }
    memory.job
}

/// Returns the job whose token is in a map of variables, or the job that was begun for the calling thread.
///
/// # Safety
/// `variables` is 0 or the map of the context that the calling thread has entered.
#[cold]
#[inline(never)]
unsafe fn find_job(variables: usize, accounts: &Accounts) -> u32 {
    // SAFETY: passed on from the caller.
    let token = unsafe { context::value_of(variables, VARIABLE.load(Ordering::Relaxed)) };
    match accounts.job_of(token) {
        NO_JOB => accounts.job_of_thread(own_thread),
        job => job,
    }
}

/// The calling thread's `threading.get_ident()`.
fn own_thread() -> usize {
    // SAFETY: the function has no preconditions.
    unsafe { libc::pthread_self() as usize }
}

#[inline(always)]
fn thread_state() -> usize {
    if interpreter::layout().is_some() {
        interpreter::attached_thread_state()
    } else {
        0
    }
}

/// Records an allocation.
///
/// # Safety
/// `state` comes from `threads::enter` on this thread.
#[inline(never)]
pub unsafe fn allocated(
    state: *mut ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
) {
    if allocator == Allocator::MmapFile {
        return;
    }
    let mut accounts = ACCOUNTS.lock();
    let Some(accounts) = accounts.as_mut() else {
        return;
    };
    // SAFETY: only its own thread uses an entered state.
    let memory = unsafe { &mut (*state).jobs };
    let layout = interpreter::layout();
    let thread_state = layout.map_or(0, |_| interpreter::attached_thread_state());
    // SAFETY: the Python thread state is this thread's own.
    let mut job = unsafe { current(memory, thread_state, accounts) };
    // Most allocations are not part of a `realloc`, which would have noted a release.
    let old = match memory.released.state {
        NOTHING => None,
        _ => memory.take_resized(allocator, &mut job),
    };
    let site = match layout {
        // SAFETY: `thread_state` is this thread's own or 0, and the layout was checked. Only its own thread uses an entered
        // state, and `memory` refers to another field of it.
        Some(layout) if job != NO_JOB => unsafe {
            (*state)
                .chain
                .site(layout, thread_state, &mut accounts.sites)
        },
        _ => 0,
    };
    let block = Block {
        size,
        job,
        site,
        number: accounts.next_number(),
        allocator,
    };
    memory.newest = address;
    memory.newest_job = job;
    match old {
        Some(old) => accounts.resized(address, block, old),
        None => accounts.allocated(address, block),
    }
}

/// Records that a block is about to be freed or resized.
///
/// # Safety
/// As for [`allocated`].
#[inline(never)]
pub unsafe fn releasing(state: *mut ThreadState, address: usize, release: Release) {
    let mut accounts = ACCOUNTS.lock();
    let Some(accounts) = accounts.as_mut() else {
        return;
    };
    // SAFETY: as in `allocated`.
    let memory = unsafe { &mut (*state).jobs };
    let newest = std::mem::take(&mut memory.newest);
    // Usually one account changes, whichever job frees the block. Then the current job need not be determined.
    match release {
        Release::Final => {
            let newest_job = (newest != 0).then_some(memory.newest_job);
            if accounts.try_release(newest_job, address) {
                memory.released.state = NOTHING;
                return;
            }
        }
        Release::Resize => {
            if let Ok(block) = accounts.try_resizing(address) {
                memory.released = Released::new(address, block);
                return;
            }
        }
    }
    // SAFETY: as in `allocated`.
    let job = unsafe { current(memory, thread_state(), accounts) };
    memory.released = match release {
        Release::Resize => Released::new(address, accounts.resizing(address, job)),
        Release::Final => {
            accounts.released_after(newest, address, job);
            Released::NOTHING
        }
    };
}

/// Notes that the thread's last release is not part of a `realloc`.
///
/// # Safety
/// As for [`allocated`].
pub unsafe fn forget_released(state: *mut ThreadState) {
    // SAFETY: as in `allocated`.
    unsafe { (*state).jobs.released.state = NOTHING };
}

/// Records that an address range is about to be unmapped.
///
/// # Safety
/// As for [`allocated`].
pub unsafe fn releasing_range(state: *mut ThreadState, address: usize, length: usize) {
    let mut accounts = ACCOUNTS.lock();
    let Some(accounts) = accounts.as_mut() else {
        return;
    };
    // SAFETY: as in `allocated`.
    let memory = unsafe { &mut (*state).jobs };
    // SAFETY: as in `allocated`.
    let job = unsafe { current(memory, thread_state(), accounts) };
    memory.newest = 0;
    memory.released = match accounts.released_range(address, length, job) {
        Some((address, block)) => Released::new(address, Some(block)),
        None => Released::NOTHING,
    };
}

/// Undoes the thread's last release, which failed.
///
/// # Safety
/// As for [`allocated`].
pub unsafe fn not_released(state: *mut ThreadState) {
    let mut accounts = ACCOUNTS.lock();
    let Some(accounts) = accounts.as_mut() else {
        return;
    };
    // SAFETY: as in `allocated`.
    let memory = unsafe { &mut (*state).jobs };
    // SAFETY: as in `allocated`.
    let job = unsafe { current(memory, thread_state(), accounts) };
    let released = std::mem::replace(&mut memory.released, Released::NOTHING);
    if let Some(block) = released.known_block() {
        accounts.not_released(released.address, block, job);
    }
}
