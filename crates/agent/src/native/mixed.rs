//! The mixed stack: native frames with the interpreter's evaluation frames replaced by the Python frames they run.
//!
//! Addresses, not names, connect native frames with the Python frames they evaluate, so this works for an interpreter without
//! symbols. Each call of the evaluation function keeps a struct of the interpreter in its own stack frame (see
//! [`Evaluations`]). The address of that struct is a *mark*: Python frames replace the native frame that contains it.
//!
//! ```text
//! native, by address      Python, outermost first         mixed
//! ────────────────────    ───────────────────────         ─────────────
//! main                                                    main
//! eval      mark a        a: <module>  load               <module> load
//! builtin_map                                             builtin_map
//! eval      mark b        b: parse                        parse
//! list_append                                             list_append
//! ```
//! Both stacks are compared with those of the last event. The mixed stack is written again from the first frame that changed
//! in either of them.

use heaptide_capture::Frame;
use heaptide_capture::event::MAX_RECORD_BYTES;

use super::walk::{NativeFrame, NativeStack, here};
use crate::cpython::interpreter;
use crate::cpython::{Evaluations, Layout};
use crate::record::Room;
use crate::record::stack::{self, Stack};

pub const MAX_PYTHON_DEPTH: usize = stack::MAX_DEPTH;

/// Writes the change of the calling thread's mixed stack since the last event. Returns `false` if the chunk is full: the
/// caller must begin a new one and call again.
///
/// # Safety
/// Called on the thread that both stacks belong to.
#[inline(never)]
pub unsafe fn sync(native: &mut NativeStack, stack: &mut Stack, room: &mut Room) -> bool {
    // SAFETY: `here` is inlined into this function, which is on the stack.
    let walked = unsafe { native.walk(here()) };
    let (layout, first_changed) = match interpreter::layout() {
        Some(layout) => {
            let thread_state = interpreter::thread_state();
            // SAFETY: `interpreter::thread_state` returns this thread's own state or 0, and `interpreter::layout` only a
            // layout that was checked against this interpreter.
            let changed = unsafe { stack.refresh(layout, thread_state) };
            if let Some(first) = changed {
                // SAFETY: `refresh` has just updated the entries from this thread state.
                unsafe { mark(native, stack, layout, thread_state, first) };
            }
            (Some(layout), changed)
        }
        None => (None, None),
    };
    if !walked.is_changed && first_changed.is_none() {
        return true;
    }
    // SAFETY: `refresh` has just updated the entries of `stack` from the live chain.
    unsafe {
        write_change(
            native,
            stack,
            layout,
            walked.first_changed,
            first_changed,
            room,
        )
    }
}

/// Finds the mark of each Python frame from `first` on that is the outermost of an evaluation.
///
/// # Safety
/// The entries of `stack` are the frames of `thread_state`, the calling thread's own.
unsafe fn mark(
    native: &mut NativeStack,
    stack: &Stack,
    layout: &Layout,
    thread_state: usize,
    first: usize,
) {
    let depth = stack.depth();
    match layout.evaluations {
        Evaluations::Shims => {
            for i in first..depth {
                // From 3.15 on the outermost shim of a thread is in its thread state and not in a stack frame.
                let is_mark = stack.is_shim(i) && native.is_on_stack(stack.frame(i));
                native.marks[i] = if is_mark { stack.frame(i) } else { 0 };
            }
            if first == 0 && depth > 0 && stack.is_cut() {
                // SAFETY: `refresh` has just updated the entries from the live chain.
                let shim = unsafe { stack.shim_outside(layout) };
                native.marks[0] = if native.is_on_stack(shim) { shim } else { 0 };
            }
        }
        Evaluations::CFrames {
            cframe,
            previous,
            current_frame,
        } => {
            native.marks[first..depth].fill(0);
            // SAFETY: a live thread state has a chain of live records, and `previous` of the last one is 0. The layout gives the
            // offsets of the fields.
            let word = |address: usize| unsafe { (address as *const usize).read() };
            let mut record = if thread_state == 0 {
                0
            } else {
                word(thread_state + cframe)
            };
            for i in (first..depth).rev() {
                if record == 0 {
                    break;
                }
                let Some(current_frame) = current_frame else {
                    native.marks[i] = record;
                    record = word(record + previous);
                    continue;
                };
                let caller = word(record + previous);
                let is_outermost =
                    i == 0 || (caller != 0 && word(caller + current_frame) == stack.frame(i - 1));
                if is_outermost {
                    native.marks[i] = record;
                    record = caller;
                }
            }
        }
    }
}

/// Pops down to the first change, then writes both stacks from there, interleaved. Both must be up to date.
///
/// # Safety
/// The entries of `stack` are the frames of the calling thread's live chain, if there is a layout. The layout fits the
/// interpreter.
unsafe fn write_change(
    native: &mut NativeStack,
    stack: &mut Stack,
    layout: Option<&Layout>,
    first_native: usize,
    first_python: Option<usize>,
    room: &mut Room,
) -> bool {
    let n_written = |i: usize, native: &NativeStack| match i {
        0 => 0,
        i => native.entries[i - 1].n_written,
    };
    let mut keep = native.n_total.min(n_written(first_native, native));
    if first_native == 0 {
        keep = 0;
    }
    if let Some(first_python) = first_python {
        keep = keep.min(stack.n_written(first_python));
    }
    if native.n_total > keep {
        room.pop((native.n_total - keep) as usize);
        native.n_total = keep;
    }
    // Begin at the native frame whose part of the mixed stack contains the change; the parts before it stay. That frame may
    // evaluate many Python frames, as in a deep recursion. If the first of them are unchanged, begin after these.
    let first = native.entries[..native.depth].partition_point(|entry| entry.n_written < keep);
    let is_within_frame = native.entries[..native.depth]
        .get(first)
        .is_some_and(|entry| entry.n_before < keep);
    let mut writer = Writer {
        count: if is_within_frame {
            keep
        } else {
            n_written(first, native)
        },
        keep,
        next: 0,
        depth: layout.map_or(0, |_| stack.depth()),
        is_full: false,
        room,
    };
    writer.next = stack.first_not_written(writer.count);
    let is_cut = native.is_cut;
    let cut_id = if is_cut { native.cut_id() } else { 0 };
    if is_cut {
        native.count_cut();
    }
    for i in first..native.depth {
        if i > first && writer.next >= writer.depth {
            // All Python frames are written: only native functions that the last one called remain.
            let depth = native.depth;
            writer.write_native(&mut native.entries[i..depth]);
            break;
        }
        let frame = native.entries[i];
        let is_begun = is_within_frame && i == first;
        if let Some(layout) = layout.filter(|_| !is_begun) {
            // Python frames that the previous native frame evaluates but did not evaluate at the last event.
            // SAFETY: passed on from the caller.
            unsafe { writer.write_rest_of_evaluation(native, stack, layout) };
            if i > 0 {
                native.entries[i - 1].n_written = writer.count;
            }
            while writer
                .next_mark(native)
                .is_some_and(|mark| mark >= frame.end)
            {
                // SAFETY: passed on from the caller.
                unsafe { writer.write_evaluation(native, stack, layout) };
            }
        }
        if i == 0 && is_cut && !is_begun {
            writer.push(Frame {
                code: cut_id,
                instruction: 0,
            });
        }
        let mut is_evaluation = is_begun;
        let n_before = if is_begun {
            frame.n_before
        } else {
            writer.count
        };
        if let Some(layout) = layout {
            if is_begun {
                // SAFETY: passed on from the caller.
                unsafe { writer.write_rest_of_evaluation(native, stack, layout) };
            }
            while writer
                .next_mark(native)
                .is_some_and(|mark| mark >= frame.sp && mark < frame.end)
            {
                is_evaluation = true;
                // SAFETY: passed on from the caller.
                unsafe { writer.write_evaluation(native, stack, layout) };
            }
        }
        if !is_evaluation && frame.module != 0 {
            writer.push(Frame {
                code: frame.module,
                instruction: frame.offset,
            });
        }
        native.entries[i].n_written = writer.count;
        native.entries[i].n_before = if is_evaluation { n_before } else { u32::MAX };
        if writer.is_full {
            return false;
        }
    }
    if let Some(layout) = layout {
        while writer.next < writer.depth {
            // SAFETY: passed on from the caller.
            unsafe { writer.write_python(stack, layout) };
        }
        if native.depth > 0 {
            native.entries[native.depth - 1].n_written = writer.count;
        }
    }
    native.n_total = writer.count;
    !writer.is_full
}

struct Writer<'a, 'b> {
    /// Frames of the mixed stack so far.
    count: u32,
    /// The number of these frames that are already in the chunk.
    keep: u32,
    /// The next Python frame.
    next: usize,
    depth: usize,
    is_full: bool,
    room: &'a mut Room<'b>,
}

impl Writer<'_, '_> {
    #[inline(always)]
    fn push(&mut self, frame: Frame) {
        self.count += 1;
        if self.count <= self.keep {
            return;
        }
        if self.room.left() < 2 * MAX_RECORD_BYTES {
            self.is_full = true;
            return;
        }
        self.room.push(frame);
    }

    /// The mark of the next Python frame, if it has one.
    fn next_mark(&self, native: &NativeStack) -> Option<usize> {
        let mark = native.marks[..self.depth].get(self.next);
        mark.copied().filter(|&mark| mark != 0)
    }

    /// Writes native frames that evaluate no Python.
    fn write_native(&mut self, frames: &mut [NativeFrame]) {
        for frame in frames {
            if frame.module != 0 {
                self.push(Frame {
                    code: frame.module,
                    instruction: frame.offset,
                });
            }
            frame.n_written = self.count;
            frame.n_before = u32::MAX;
        }
    }

    /// Writes the next Python frame.
    ///
    /// # Safety
    /// As for [`write_change`].
    #[inline(never)]
    unsafe fn write_python(&mut self, stack: &mut Stack, layout: &Layout) {
        let at = self.next;
        self.next += 1;
        // SAFETY: passed on from the caller.
        if let Some(frame) = unsafe { stack.frame_to_write(layout, at) } {
            self.push(frame);
        }
        stack.set_written(at, self.count);
    }

    /// Writes the next Python frame and the following ones that the same native frame evaluates.
    ///
    /// # Safety
    /// As for [`write_change`].
    unsafe fn write_evaluation(
        &mut self,
        native: &NativeStack,
        stack: &mut Stack,
        layout: &Layout,
    ) {
        // SAFETY: passed on from the caller.
        unsafe {
            self.write_python(stack, layout);
            self.write_rest_of_evaluation(native, stack, layout);
        }
    }

    /// # Safety
    /// As for [`write_change`].
    unsafe fn write_rest_of_evaluation(
        &mut self,
        native: &NativeStack,
        stack: &mut Stack,
        layout: &Layout,
    ) {
        while self.next < self.depth && self.next_mark(native).is_none() {
            // SAFETY: passed on from the caller.
            unsafe { self.write_python(stack, layout) };
        }
    }
}
