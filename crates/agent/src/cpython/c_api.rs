//! The calling thread's stack and a code object's attributes, as the interpreter's public C API reports them.
//!
//! The C API is right on any build, so the self-check compares the layouts with it. It is far too slow for a hook, may
//! allocate and may run Python code.

use super::code::{RawBytes, Text};
use super::layout::BEFORE_START;
use super::symbols::{Opaque, Symbols};
use super::unsupported::Unsupported;
use std::ffi::CStr;

/// Largest number of frames that are compared; the outer frames of a deeper stack are not.
pub const MAX_FRAMES: usize = 64;

/// One frame as the interpreter's functions describe it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameInfo {
    pub code: usize,
    pub instr: u32,
}

/// The innermost frames of a thread; `whole` is true if there are no others.
pub struct Stack {
    frames: [FrameInfo; MAX_FRAMES],
    len: usize,
    pub whole: bool,
}

impl Stack {
    pub fn empty() -> Self {
        Self {
            frames: [FrameInfo::default(); MAX_FRAMES],
            len: 0,
            whole: true,
        }
    }

    /// Adds a frame. Returns `false`, and clears `whole`, if there is no room.
    pub fn push(&mut self, frame: FrameInfo) -> bool {
        match self.frames.get_mut(self.len) {
            Some(slot) => {
                *slot = frame;
                self.len += 1;
                true
            }
            None => {
                self.whole = false;
                false
            }
        }
    }

    pub fn frames(&self) -> &[FrameInfo] {
        self.frames.get(..self.len).unwrap_or_default()
    }
}

/// The interpreter's own functions. All methods need the GIL and leave no error set.
pub struct Python<'a> {
    symbols: &'a Symbols,
}

/// A reference that is released when it goes out of scope.
struct Owned<'a> {
    object: Opaque,
    symbols: &'a Symbols,
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: the value holds one reference, which `owned` took over. It lives only while the GIL is held.
        unsafe { (self.symbols.dec_ref)(self.object) };
    }
}

impl<'a> Python<'a> {
    /// # Safety
    /// The GIL must be held as long as the value lives.
    pub unsafe fn with_gil(symbols: &'a Symbols) -> Self {
        Self { symbols }
    }

    /// # Safety
    /// `object` must be null or a reference that no other code releases.
    unsafe fn owned(&self, object: Opaque) -> Option<Owned<'a>> {
        (!object.is_null()).then(|| Owned {
            object,
            symbols: self.symbols,
        })
    }

    /// Returns the calling thread's frames as Python shows them.
    ///
    /// # Safety
    /// The GIL must be held.
    pub unsafe fn stack(&self) -> Result<Stack, Unsupported> {
        let mut stack = Stack::empty();
        // SAFETY: the GIL is held; the frame is borrowed from the thread, whose frames do not change during this call.
        let mut frame = unsafe { (self.symbols.eval_frame)() };
        let mut holder: Option<Owned<'_>> = None;
        while !frame.is_null() {
            // SAFETY: the frame is alive: the thread or `holder` has a reference. The code object is released at once:
            // only its address is compared, and the frame keeps it alive.
            let (code, instr) = unsafe {
                (
                    self.owned((self.symbols.frame_code)(frame)),
                    self.integer(frame, c"f_lasti")?,
                )
            };
            let code = code
                .ok_or(Unsupported::CheckFailed {
                    what: "a frame without code",
                })?
                .object as usize;
            if !stack.push(FrameInfo {
                code,
                instr: u32::try_from(instr).unwrap_or(BEFORE_START),
            }) {
                break;
            }
            // SAFETY: the frame is alive as above, and the function returns a new reference.
            let back = unsafe { self.owned((self.symbols.frame_back)(frame)) };
            frame = back
                .as_ref()
                .map_or(std::ptr::null_mut(), |back| back.object);
            holder = back;
        }
        drop(holder);
        Ok(stack)
    }

    /// # Safety
    /// The GIL must be held and `object` be alive.
    unsafe fn attribute(&self, object: Opaque, name: &CStr) -> Result<Owned<'a>, Unsupported> {
        // SAFETY: the object is alive, the name is a C string, and the function returns a new reference.
        let value = unsafe { self.owned((self.symbols.get_attribute)(object, name.as_ptr())) };
        value.ok_or_else(|| {
            self.clear_error();
            Unsupported::CheckFailed {
                what: "an attribute is missing",
            }
        })
    }

    /// # Safety
    /// The GIL must be held and `object` be alive.
    pub unsafe fn integer(&self, object: Opaque, name: &CStr) -> Result<i64, Unsupported> {
        // SAFETY: passed on from the caller.
        let value = unsafe { self.attribute(object, name) }?;
        // SAFETY: the attribute is alive until the end of this function.
        let number = unsafe { (self.symbols.long_value)(value.object) };
        self.clear_error();
        Ok(number)
    }

    /// # Safety
    /// The GIL must be held and `object` be alive.
    pub unsafe fn same_text(
        &self,
        object: Opaque,
        name: &CStr,
        read: Text<'_>,
        what: &'static str,
    ) -> Result<(), Unsupported> {
        // SAFETY: passed on from the caller.
        let value = unsafe { self.attribute(object, name) }?;
        let mut len = 0;
        // SAFETY: the attribute is alive until the end of this function, and `len` receives the length.
        let utf8 = unsafe { (self.symbols.unicode_utf8)(value.object, &mut len) };
        if utf8.is_null() {
            // A lone surrogate: Python has no UTF-8 form of it, and `text` reads a replacement.
            self.clear_error();
            return Ok(());
        }
        // SAFETY: the interpreter returned this many bytes, which belong to the live string.
        let reported = unsafe {
            std::slice::from_raw_parts(utf8.cast::<u8>(), usize::try_from(len).unwrap_or(0))
        };
        let same = if read.cut {
            reported.len() > read.utf8.len() && reported.starts_with(read.utf8)
        } else {
            reported == read.utf8
        };
        if same {
            Ok(())
        } else {
            Err(Unsupported::LayoutMismatch { what })
        }
    }

    /// Checks that a bytes attribute is the object whose content was read.
    ///
    /// # Safety
    /// The GIL must be held and `object` be alive.
    pub unsafe fn same_bytes(
        &self,
        object: Opaque,
        name: &CStr,
        read: RawBytes,
        what: &'static str,
    ) -> Result<(), Unsupported> {
        // SAFETY: passed on from the caller.
        let value = unsafe { self.attribute(object, name) }?;
        // SAFETY: the attribute is alive until the end of this function.
        let (data, size) = unsafe {
            (
                (self.symbols.bytes_data)(value.object),
                (self.symbols.bytes_size)(value.object),
            )
        };
        self.clear_error();
        if data as usize == read.address && usize::try_from(size) == Ok(read.len) {
            Ok(())
        } else {
            Err(Unsupported::LayoutMismatch { what })
        }
    }

    fn clear_error(&self) {
        // SAFETY: a value of this type is used only with the GIL held; both functions have no other precondition.
        unsafe {
            if !(self.symbols.error_occurred)().is_null() {
                (self.symbols.error_clear)();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_has_a_bounded_number_of_frames() {
        let mut stack = Stack::empty();
        assert_eq!(
            (0..1000)
                .take_while(|&code| stack.push(FrameInfo { code, instr: 0 }))
                .count(),
            MAX_FRAMES
        );
        assert!(!stack.whole);
        assert_eq!(stack.frames().len(), MAX_FRAMES);
    }
}
