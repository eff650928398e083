//! Borrowed references to live objects, types and frames of the interpreter.
//!
//! A value of one of these types guarantees that its referent is alive and stays alive as long as the value is used. Only
//! `unsafe` code creates such values and must justify the guarantee. Other code may then read the fields that every object,
//! type or frame has. A reference is one word, as in C, and so is an `Option` of one.

use std::num::NonZeroUsize;

use super::offsets::TypeField;

/// A live Python object.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object(NonZeroUsize);

impl Object {
    /// Returns the object at an address; `None` for null.
    ///
    /// # Safety
    /// A Python object is at this address unless it is null. It stays alive as long as the value is used: the calling
    /// thread holds the GIL, and nothing runs that could free it.
    #[inline(always)]
    pub const unsafe fn at(address: usize) -> Option<Object> {
        match NonZeroUsize::new(address) {
            Some(address) => Some(Object(address)),
            None => None,
        }
    }

    /// Returns the objects whose addresses were stored in a list.
    ///
    /// # Safety
    /// Each number is the [`address`](Object::address) of an object that is still alive, as for [`Object::at`].
    #[inline(always)]
    pub unsafe fn list(addresses: &[usize]) -> &[Object] {
        // SAFETY: an `Object` has the layout of a `usize` other than 0, and no number is 0.
        unsafe { std::slice::from_raw_parts(addresses.as_ptr().cast(), addresses.len()) }
    }

    #[inline(always)]
    pub const fn address(self) -> usize {
        self.0.get()
    }
}

/// A live type object.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type(Object);

impl Type {
    /// Returns the type at an address; `None` for null.
    ///
    /// # Safety
    /// As for [`Object::at`], and the object is a type.
    #[inline(always)]
    pub const unsafe fn at(address: usize) -> Option<Type> {
        // SAFETY: passed on from the caller.
        match unsafe { Object::at(address) } {
            Some(object) => Some(Type(object)),
            None => None,
        }
    }

    /// # Safety
    /// The object is a type.
    #[inline(always)]
    pub const unsafe fn from_object(object: Object) -> Type {
        Type(object)
    }

    #[inline(always)]
    pub fn field(self, field: TypeField) -> usize {
        let address = self.address() + field as usize;
        // SAFETY: the type is alive, and every type has this field.
        unsafe { (address as *const usize).read() }
    }

    #[inline(always)]
    pub const fn object(self) -> Object {
        self.0
    }

    #[inline(always)]
    pub const fn address(self) -> usize {
        self.0.address()
    }
}

/// The memory of an interpreter frame: `_PyInterpreterFrame`, or a frame object in 3.10.
///
/// It is readable as long as the value is used. The frame of a finished generator is only memory: its fields may
/// contain addresses of objects that were freed.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(NonZeroUsize);

impl Frame {
    /// Returns the frame at an address; `None` for null.
    ///
    /// # Safety
    /// The address is null or that of a frame's memory. The memory stays readable as long as the value is used: the calling
    /// thread holds the GIL, and no Python code runs.
    #[inline(always)]
    pub const unsafe fn at(address: usize) -> Option<Frame> {
        match NonZeroUsize::new(address) {
            Some(address) => Some(Frame(address)),
            None => None,
        }
    }

    #[inline(always)]
    pub const fn address(self) -> usize {
        self.0.get()
    }
}
