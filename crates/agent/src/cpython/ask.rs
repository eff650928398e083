//! What the interpreter itself says of the calling thread's stack and of a code object.
//!
//! Goes through the public C API only, so it is right on any build; the self-check compares the layouts with it. It
//! is far too slow for a hook, may allocate and may run Python code.

use super::code::{RawBytes, Text};
use super::layout::BEFORE_START;
use super::symbols::{Opaque, Symbols};
use super::unsupported::Unsupported;
use std::ffi::CStr;

/// Frames compared at most; the outer rest of a deeper stack is taken on trust.
pub const MAX_FRAMES: usize = 64;

/// One frame as the interpreter's functions describe it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    pub code: usize,
    pub instr: u32,
}

/// The innermost frames of a thread; `whole` if there are no others.
pub struct Stack {
    frames: [Seen; MAX_FRAMES],
    len: usize,
    pub whole: bool,
}

impl Stack {
    pub fn empty() -> Self {
        Self {
            frames: [Seen::default(); MAX_FRAMES],
            len: 0,
            whole: true,
        }
    }

    /// Adds a frame, or notes that there are more than fit and returns false.
    pub fn push(&mut self, frame: Seen) -> bool {
        match self.frames.get_mut(self.len) {
            Some(place) => {
                *place = frame;
                self.len += 1;
                true
            }
            None => {
                self.whole = false;
                false
            }
        }
    }

    pub fn frames(&self) -> &[Seen] {
        self.frames.get(..self.len).unwrap_or_default()
    }
}

/// The interpreter's own functions. All methods need the GIL and leave no error set.
pub struct Python<'a> {
    symbols: &'a Symbols,
}

/// A reference that is given back when it goes out of scope.
struct Owned<'a> {
    object: Opaque,
    symbols: &'a Symbols,
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: the value holds one reference and lives only while the GIL is held.
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
    /// `object` must be null or a reference that nobody else gives back.
    unsafe fn owned(&self, object: Opaque) -> Option<Owned<'a>> {
        (!object.is_null()).then_some(Owned {
            object,
            symbols: self.symbols,
        })
    }

    /// The calling thread's frames as Python shows them.
    ///
    /// # Safety
    /// The GIL must be held.
    pub unsafe fn stack(&self) -> Result<Stack, Unsupported> {
        let mut stack = Stack::empty();
        // SAFETY: the GIL is held; the frame is borrowed from the thread, which stands still during this call.
        let mut frame = unsafe { (self.symbols.eval_frame)() };
        let mut holder: Option<Owned<'_>> = None;
        while !frame.is_null() {
            // SAFETY: the frame is alive: the thread or `holder` has a reference. The code object is given back at
            // once, since only its address is compared and the frame keeps it alive.
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
            if !stack.push(Seen {
                code,
                instr: u32::try_from(instr).unwrap_or(BEFORE_START),
            }) {
                break;
            }
            // SAFETY: the frame is alive as said above, and the reference returned is ours.
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
        // SAFETY: the object is alive, the name is a C string, and the reference returned is ours.
        let value = unsafe { self.owned((self.symbols.get_attribute)(object, name.as_ptr())) };
        value.ok_or_else(|| {
            self.forget_error();
            Unsupported::CheckFailed {
                what: "Python did not give an attribute",
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
        self.forget_error();
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
        // SAFETY: the attribute is alive until the end of this function, and `len` is where the length goes.
        let utf8 = unsafe { (self.symbols.unicode_utf8)(value.object, &mut len) };
        if utf8.is_null() {
            // A lone surrogate: Python has no UTF-8 of it to compare with, and we read it as a replacement.
            self.forget_error();
            return Ok(());
        }
        // SAFETY: the interpreter returned so many bytes, owned by the string, which is alive.
        let said = unsafe {
            std::slice::from_raw_parts(utf8.cast::<u8>(), usize::try_from(len).unwrap_or(0))
        };
        let same = if read.cut {
            said.len() > read.utf8.len() && said.starts_with(read.utf8)
        } else {
            said == read.utf8
        };
        if same {
            Ok(())
        } else {
            Err(Unsupported::LayoutMismatch { what })
        }
    }

    /// Whether a bytes attribute is the very object whose content was found.
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
        self.forget_error();
        if data as usize == read.address && usize::try_from(size) == Ok(read.len) {
            Ok(())
        } else {
            Err(Unsupported::LayoutMismatch { what })
        }
    }

    fn forget_error(&self) {
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
    fn a_stack_holds_a_bounded_number_of_frames() {
        let mut stack = Stack::empty();
        assert_eq!(
            (0..1000)
                .take_while(|&code| stack.push(Seen { code, instr: 0 }))
                .count(),
            MAX_FRAMES
        );
        assert!(!stack.whole);
        assert_eq!(stack.frames().len(), MAX_FRAMES);
    }
}
