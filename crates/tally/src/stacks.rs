//! Every call stack of a capture as one tree: a stack is a frame and the stack it was called from.

use crate::encoding::{Decoder, Encoder};
use crate::index::{Index, hash};
use heaptide_capture::Frame;

/// The index of a stack in [`Stacks`]. Parents have smaller numbers than their children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

impl StackId {
    /// The stack without frames.
    pub const EMPTY: StackId = StackId(0);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    pub parent: StackId,
    pub frame: Frame,
}

pub struct Stacks {
    /// The first is the empty stack, its own parent.
    stacks: Vec<Stack>,
    index: Index,
}

impl Default for Stacks {
    fn default() -> Self {
        let empty = Stack {
            parent: StackId::EMPTY,
            frame: Frame::default(),
        };
        Stacks {
            stacks: vec![empty],
            index: Index::default(),
        }
    }
}

impl Stacks {
    /// Returns the stack of `frame` called from `parent`.
    #[inline]
    pub fn intern(&mut self, parent: StackId, frame: Frame) -> StackId {
        let key = hash_of(parent, frame);
        let stacks = &self.stacks;
        let same = |at: u32| {
            let stack = &stacks[at as usize];
            stack.parent == parent && stack.frame == frame
        };
        if let Some(at) = self.index.find(key, same) {
            return StackId(at);
        }
        let at = stacks.len() as u32;
        self.index.insert(key, at, |at| {
            let stack = &stacks[at as usize];
            hash_of(stack.parent, stack.frame)
        });
        self.stacks.push(Stack { parent, frame });
        StackId(at)
    }

    pub fn get(&self, id: StackId) -> Option<Stack> {
        if id == StackId::EMPTY {
            return None;
        }
        self.stacks.get(id.0 as usize).copied()
    }

    /// Returns all stacks except the empty one, parents before their children.
    pub fn iter(&self) -> impl Iterator<Item = (StackId, Stack)> + '_ {
        let numbered = self.stacks.iter().enumerate().skip(1);
        numbered.map(|(at, &stack)| (StackId(at as u32), stack))
    }

    pub(crate) fn write(&self, out: &mut Encoder) {
        out.number(self.stacks.len() as u64 - 1);
        for (id, stack) in self.iter() {
            // Most stacks are added right after the one they are called from.
            out.number(u64::from(id.0 - stack.parent.0));
            out.number(stack.frame.code.into());
            out.number(stack.frame.instruction.into());
        }
    }

    pub(crate) fn read(input: &mut Decoder) -> Option<Stacks> {
        let n_stacks = input.length(3)?;
        let mut stacks = Stacks::default();
        stacks.stacks.reserve_exact(n_stacks);
        for _ in 0..n_stacks {
            let id = stacks.stacks.len() as u32;
            let parent = StackId(id.checked_sub(input.number32()?)?);
            let frame = Frame {
                code: input.number32()?,
                instruction: input.number32()?,
            };
            if parent.0 == id || stacks.intern(parent, frame).0 != id {
                return None;
            }
        }
        Some(stacks)
    }

    /// Returns the number of stacks, the empty one included.
    pub fn n_stacks(&self) -> usize {
        self.stacks.len()
    }

    pub fn heap_bytes(&self) -> usize {
        self.stacks.capacity() * size_of::<Stack>() + self.index.heap_bytes()
    }
}

#[inline(always)]
fn hash_of(parent: StackId, frame: Frame) -> u64 {
    hash(u64::from(frame.code) << 32 | u64::from(frame.instruction)) ^ hash(u64::from(parent.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_frame_called_from_the_same_stack_is_one_stack() {
        let mut stacks = Stacks::default();
        let (main, load) = (
            Frame {
                code: 1,
                instruction: 4,
            },
            Frame {
                code: 2,
                instruction: 9,
            },
        );
        let outer = stacks.intern(StackId::EMPTY, main);
        let inner = stacks.intern(outer, load);
        assert_eq!(stacks.intern(outer, load), inner);
        assert_ne!(stacks.intern(StackId::EMPTY, load), inner);
        assert_ne!(stacks.intern(inner, load), inner, "recursion goes deeper");
        assert_eq!(stacks.get(inner).map(|stack| stack.parent), Some(outer));
        assert_eq!(stacks.get(StackId::EMPTY), None);
    }
}
