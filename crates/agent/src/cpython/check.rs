//! The self-check of a layout, which runs before hooks use the layout.
//!
//! It walks the calling thread's frames by offsets and compares them with the results of the interpreter's own functions.
//! Code objects and their order, instructions, names, first lines and line tables must be equal. All reads by offset go
//! through the kernel, so that a wrong offset causes an error, not a crash. The check leaves no Python error set and keeps
//! no reference.

use super::c_api::{FrameInfo, MAX_FRAMES, Python, Stack};
use super::code::{CodeBuffers, read_code_from};
use super::frames::frames_from;
use super::layout::{BEFORE_START, Layout};
use super::memory::Probed;
use super::symbols::{Opaque, Symbols};
use super::unsupported::Unsupported;
use std::ops::ControlFlow;

/// Value of a frame's owner byte for generators and coroutines, the same in all versions that have the byte.
const OWNED_BY_GENERATOR: u8 = 1;

/// Compares the calling thread's frames, read by the layout, with those that the interpreter reports.
///
/// # Safety
/// The GIL must be held, and no Python error may be set.
pub unsafe fn self_check(layout: &Layout) -> Result<(), Unsupported> {
    let symbols = Symbols::resolve()?;
    // SAFETY: neither function has a precondition beyond the GIL, which the caller holds.
    let (state, current) = unsafe {
        (
            (symbols.this_thread_state)(),
            (symbols.current_thread_state)(),
        )
    };
    if state.is_null() {
        return Err(Unsupported::NoThreadState);
    }
    // Hooks use the thread's own state, which belongs to the main interpreter.
    if state != current {
        return Err(Unsupported::SubInterpreter);
    }
    let mut memory = Probed::open().ok_or(Unsupported::CheckFailed {
        what: "no file descriptor left for a pipe",
    })?;
    // SAFETY: the caller holds the GIL to the end of this function.
    let python = unsafe { Python::with_gil(&symbols) };
    // SAFETY: as above.
    let reported = unsafe { python.stack() }?;
    let read = stack_by_offsets(&mut memory, layout, state as usize)?;
    compare_stacks(&reported, &read)?;
    let mut buffers = CodeBuffers::new();
    for (index, frame) in reported.frames().iter().enumerate() {
        // Recursion repeats code objects; each is compared once.
        if !reported
            .frames()
            .iter()
            .take(index)
            .any(|earlier| earlier.code == frame.code)
        {
            // SAFETY: the GIL is held, and a frame of the calling thread keeps the code object alive.
            unsafe { compare_code(&mut memory, layout, &python, frame.code, &mut buffers) }?;
        }
    }
    Ok(())
}

fn compare_stacks(reported: &Stack, read: &Stack) -> Result<(), Unsupported> {
    for (reported, read) in reported.frames().iter().zip(read.frames()) {
        if reported.code != read.code {
            return Err(Unsupported::LayoutMismatch {
                what: "the code of a frame",
            });
        }
        if reported.instr != read.instr {
            return Err(Unsupported::LayoutMismatch {
                what: "the instruction of a frame",
            });
        }
    }
    if reported.frames().len() != read.frames().len() || reported.whole != read.whole {
        return Err(Unsupported::LayoutMismatch {
            what: "the number of frames",
        });
    }
    Ok(())
}

const BROKEN: Unsupported = Unsupported::LayoutMismatch {
    what: "the chain of frames",
};

/// Reads the stack by the layout that the hooks use, and leaves out frames that the interpreter hides.
fn stack_by_offsets(
    memory: &mut Probed,
    layout: &Layout,
    state: usize,
) -> Result<Stack, Unsupported> {
    let mut chain = [(0, FrameInfo::default()); 2 * MAX_FRAMES];
    let (len, _) = chain_by_offsets(memory, layout, state, &mut chain)?;
    let mut stack = Stack::empty();
    for &(frame, seen) in chain.iter().take(len) {
        if !is_hidden(memory, layout, frame, seen)? && !stack.push(seen) {
            break;
        }
    }
    confirm_shims(memory, layout, state, &mut chain)?;
    Ok(stack)
}

/// Fills `chain` with frames, innermost first. Returns their number, and whether these are all.
fn chain_by_offsets(
    memory: &mut Probed,
    layout: &Layout,
    state: usize,
    chain: &mut [(usize, FrameInfo)],
) -> Result<(usize, bool), Unsupported> {
    let (mut len, mut whole) = (0, true);
    let mut visit = |frame, code, instr| match chain.get_mut(len) {
        Some(entry) => {
            *entry = (frame, FrameInfo { code, instr });
            len += 1;
            ControlFlow::Continue(())
        }
        None => {
            whole = false;
            ControlFlow::Break(())
        }
    };
    // SAFETY: `Probed` checks every address.
    unsafe { frames_from(memory, layout, state, &mut visit) }.map_err(|_| BROKEN)?;
    Ok((len, whole))
}

/// Checks that the outermost frame is a shim where shim frames exist: every entry from C into Python makes one.
///
/// Without this check a wrong offset of the owner byte could pass: a shim never runs a visible instruction, so
/// [`is_hidden`] leaves it out even if its owner byte is misread.
fn confirm_shims(
    memory: &mut Probed,
    layout: &Layout,
    state: usize,
    chain: &mut [(usize, FrameInfo)],
) -> Result<(), Unsupported> {
    let Some(offset) = layout.frame_owner else {
        return Ok(());
    };
    let everything = Layout {
        frame_owner: None,
        ..*layout
    };
    let (len, whole) = chain_by_offsets(memory, &everything, state, chain)?;
    let Some(&(outermost, _)) = chain.iter().take(len).next_back() else {
        return Ok(());
    };
    if whole && memory.byte(outermost.wrapping_add(offset)).ok_or(BROKEN)? < layout.first_shim_owner
    {
        return Err(Unsupported::LayoutMismatch {
            what: "the owner of a frame",
        });
    }
    Ok(())
}

/// Returns whether the interpreter hides a frame because it has not run its first visible instruction.
fn is_hidden(
    memory: &mut Probed,
    layout: &Layout,
    frame: usize,
    seen: FrameInfo,
) -> Result<bool, Unsupported> {
    let code_type = memory
        .word(seen.code.wrapping_add(layout.code.ob_type))
        .ok_or(BROKEN)?;
    if code_type != layout.code.type_address {
        return Err(Unsupported::LayoutMismatch {
            what: "the code of a frame",
        });
    }
    let Some(offset) = layout.code.first_traceable else {
        return Ok(false);
    };
    if let Some(owner) = layout.frame_owner {
        if memory.byte(frame.wrapping_add(owner)).ok_or(BROKEN)? == OWNED_BY_GENERATOR {
            return Ok(false);
        }
    }
    let units = memory.half(seen.code.wrapping_add(offset)).ok_or(BROKEN)?;
    Ok(seen.instr == BEFORE_START || u64::from(seen.instr) < u64::from(units) * 2)
}

/// # Safety
/// The GIL must be held and `code` be a live code object.
unsafe fn compare_code(
    memory: &mut Probed,
    layout: &Layout,
    python: &Python<'_>,
    code: usize,
    buffers: &mut CodeBuffers,
) -> Result<(), Unsupported> {
    // SAFETY: `Probed` checks every address.
    let read = unsafe { read_code_from(memory, layout, code, buffers) }.map_err(|_| {
        Unsupported::LayoutMismatch {
            what: "the form of a code object",
        }
    })?;
    let code = code as Opaque;
    // SAFETY: the object is alive and the GIL is held, for this and all calls below.
    unsafe {
        python.same_text(code, c"co_name", read.name, "the name of a code object")?;
        python.same_text(
            code,
            c"co_filename",
            read.filename,
            "the file name of a code object",
        )?;
        if layout.code.qualname.is_some() {
            python.same_text(
                code,
                c"co_qualname",
                read.qualname,
                "the qualified name of a code object",
            )?;
        }
        if python.integer(code, c"co_firstlineno")? != i64::from(read.first_line) {
            return Err(Unsupported::LayoutMismatch {
                what: "the first line of a code object",
            });
        }
        python.same_bytes(
            code,
            c"co_linetable",
            read.linetable,
            "the line table of a code object",
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[(usize, u32)], whole: bool) -> Stack {
        let mut stack = Stack::empty();
        for &(code, instr) in frames {
            assert!(stack.push(FrameInfo { code, instr }));
        }
        stack.whole = whole;
        stack
    }

    #[test]
    fn equal_stacks_pass_and_any_difference_is_named() {
        let reported = stack(&[(1, 10), (2, 20)], true);
        assert_eq!(
            compare_stacks(&reported, &stack(&[(1, 10), (2, 20)], true)),
            Ok(())
        );
        for (read, what) in [
            (stack(&[(1, 10), (3, 20)], true), "the code of a frame"),
            (
                stack(&[(1, 10), (2, 22)], true),
                "the instruction of a frame",
            ),
            (stack(&[(1, 10)], true), "the number of frames"),
            (
                stack(&[(1, 10), (2, 20), (3, 30)], true),
                "the number of frames",
            ),
            (stack(&[(1, 10), (2, 20)], false), "the number of frames"),
        ] {
            assert_eq!(
                compare_stacks(&reported, &read),
                Err(Unsupported::LayoutMismatch { what })
            );
        }
    }
}
