//! The value of one context variable in the calling thread, read without calling Python.
//!
//! Each thread, greenlet and asyncio task has its own context, and the code that switches between them puts the current
//! one into the thread state. The path is: thread state → context → its map of variables → value. A task that a job
//! starts gets a copy of the job's context, so its allocations belong to the job.
//!
//! ```text
//! PyThreadState ─[found by search]→ PyContext ─[24]→ Hamt ─[16]→ node ─ … → (variable, value)
//! bitmap node     [16] number of words   [32] key, value, key, value, …   (key 0: value is a node)
//! array node      [16] 32 nodes or 0
//! collision node  [16] number of words   [32] key, value, …
//! ```
//! No header shows where a thread state stores its context, and the map is private, so both are determined at run time.
//! The caller runs [`learn`] in contexts whose address is known, compares the results of [`value_of`] with Python's in
//! maps of all sizes, and then calls [`trust`]. Without trust, jobs are distinguished by thread.
//!
//! The calling thread keeps its context alive, and a map never changes, so reads need no GIL. Allocates: never. Locks:
//! none.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::offsets::{TypeField, object};

/// Range of the search. A thread state has at least 280 bytes in every supported version; its first words have other uses.
const FIRST_OFFSET: usize = 128;
const LAST_OFFSET: usize = 264;
const CONTEXT_VARS: usize = 24;
const MAP_ROOT: usize = 16;
const N_NODE_WORDS: usize = 16;
const NODE_WORDS: usize = 32;
const ARRAY_NODES: usize = 16;
const ARRAY_LEN: usize = 32;
/// No map is deeper: it has seven levels of five bits each of a hash, and one for collisions.
const MAX_DEPTH: u32 = 9;
/// A bitmap node has no more words: at most one key and one value for each number of five bits. Of a collision node,
/// whose keys have equal hashes, only the first 32 keys are read.
const MAX_NODE_WORDS: usize = 64;

/// Bit i: the word at `FIRST_OFFSET + 8 i` was the context in every call of [`learn`] so far.
static CANDIDATES: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The offset of the context in a thread state, which hooks use; 0 without trust.
static OFFSET: AtomicUsize = AtomicUsize::new(0);
static BITMAP_NODE: AtomicUsize = AtomicUsize::new(0);
static ARRAY_NODE: AtomicUsize = AtomicUsize::new(0);
static COLLISION_NODE: AtomicUsize = AtomicUsize::new(0);

/// # Safety
/// A live object or struct of the interpreter is at `address` and has a word at `offset`.
#[inline(always)]
unsafe fn word(address: usize, offset: usize) -> usize {
    // SAFETY: passed on from the caller.
    unsafe { (address.wrapping_add(offset) as *const usize).read() }
}

/// Compares the words of the calling thread's state with the context that it has entered. Returns the number of possible
/// offsets of the context; 1 is a success.
///
/// # Safety
/// `thread_state` is the calling thread's own, and the GIL is held.
pub unsafe fn learn(thread_state: usize, context: usize) -> u32 {
    let mut present = 0;
    for (i, offset) in (FIRST_OFFSET..=LAST_OFFSET).step_by(8).enumerate() {
        // SAFETY: every supported thread state is longer than that.
        if unsafe { word(thread_state, offset) } == context {
            present |= 1 << i;
        }
    }
    let left = CANDIDATES.fetch_and(present, Ordering::AcqRel) & present;
    left.count_ones()
}

/// The offset that [`learn`] found; 0 if it found none or several.
fn learnt_offset() -> usize {
    let left = CANDIDATES.load(Ordering::Acquire);
    match left.count_ones() {
        1 => FIRST_OFFSET + 8 * left.trailing_zeros() as usize,
        _ => 0,
    }
}

/// Sets whether the results of [`value_of`] match Python's.
pub fn trust(trusted: bool) {
    let offset = if trusted { learnt_offset() } else { 0 };
    OFFSET.store(offset, Ordering::Release);
}

/// Whether hooks may read contexts.
#[inline(always)]
pub fn is_trusted() -> bool {
    OFFSET.load(Ordering::Acquire) != 0
}

/// Returns the addresses of the context that the thread has entered and of its map of variables; 0 where there is none,
/// and without trust.
///
/// # Safety
/// `thread_state` is 0 or the calling thread's own.
#[inline(always)]
pub unsafe fn entered(thread_state: usize) -> (usize, usize) {
    // SAFETY: passed on from the caller. `trust` stores only an offset whose words gave the right values.
    unsafe { entered_at(thread_state, OFFSET.load(Ordering::Relaxed)) }
}

/// Does the same as [`entered`] before the results are trusted, and returns only the map. Only for comparing values.
///
/// # Safety
/// As for [`entered`], and [`learn`] has just been called for several contexts.
pub unsafe fn map_to_compare(thread_state: usize) -> usize {
    // SAFETY: passed on from the caller. At this offset `learn` has found each of several contexts.
    unsafe { entered_at(thread_state, learnt_offset()) }.1
}

/// # Safety
/// `thread_state` is 0 or the calling thread's own. `offset` is 0 or that of the context in it.
#[inline(always)]
unsafe fn entered_at(thread_state: usize, offset: usize) -> (usize, usize) {
    if thread_state == 0 || offset == 0 {
        return (0, 0);
    }
    // SAFETY: the caller promises that the word is null or a context. A context has its map at the same offset in all
    // versions.
    unsafe {
        let context = word(thread_state, offset);
        if context == 0 {
            return (0, 0);
        }
        (context, word(context, CONTEXT_VARS))
    }
}

/// Returns the address of a variable's value in a map; 0 if the map does not contain it.
///
/// # Safety
/// `map` is 0 or the map of a context that the calling thread has entered.
pub unsafe fn value_of(map: usize, variable: usize) -> usize {
    if map == 0 {
        return 0;
    }
    // SAFETY: a map always has a root, and nodes live as long as the map.
    unsafe { find(word(map, MAP_ROOT), variable, 0) }
}

/// # Safety
/// `node` is 0 or a live node of a map.
unsafe fn find(node: usize, variable: usize, depth: u32) -> usize {
    if node == 0 || depth > MAX_DEPTH {
        return 0;
    }
    // SAFETY: the node is alive, and each type of node has the words that the diagram above shows.
    unsafe {
        match node_of(word(node, object::TYPE)) {
            Node::Pairs => {
                let n_words = word(node, N_NODE_WORDS).min(MAX_NODE_WORDS);
                for i in (0..n_words.saturating_sub(1)).step_by(2) {
                    let key = word(node, NODE_WORDS + 8 * i);
                    let value = word(node, NODE_WORDS + 8 * i + 8);
                    if key == variable {
                        return value;
                    }
                    if key == 0 {
                        let nested = find(value, variable, depth + 1);
                        if nested != 0 {
                            return nested;
                        }
                    }
                }
                0
            }
            Node::Nodes => (0..ARRAY_LEN)
                .map(|i| find(word(node, ARRAY_NODES + 8 * i), variable, depth + 1))
                .find(|&nested| nested != 0)
                .unwrap_or(0),
            Node::Unknown => 0,
        }
    }
}

enum Node {
    Pairs,
    Nodes,
    Unknown,
}

/// # Safety
/// `type_address` is a live type object.
unsafe fn node_of(type_address: usize) -> Node {
    if type_address == BITMAP_NODE.load(Ordering::Relaxed)
        || type_address == COLLISION_NODE.load(Ordering::Relaxed)
    {
        return Node::Pairs;
    }
    if type_address == ARRAY_NODE.load(Ordering::Relaxed) {
        return Node::Nodes;
    }
    // SAFETY: every type object has a name, a C string.
    let name = unsafe {
        std::ffi::CStr::from_ptr(word(type_address, TypeField::Name as usize) as *const _)
    };
    let (known, node) = match name.to_bytes() {
        b"hamt_bitmap_node" => (&BITMAP_NODE, Node::Pairs),
        b"hamt_collision_node" => (&COLLISION_NODE, Node::Pairs),
        b"hamt_array_node" => (&ARRAY_NODE, Node::Nodes),
        _ => return Node::Unknown,
    };
    known.store(type_address, Ordering::Relaxed);
    node
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_is_read_only_while_it_is_trusted() {
        const MAP: usize = 0x7000;
        let (context, other) = ([MAP; 8], [MAP + 8; 8]);
        let (context, other) = (context.as_ptr() as usize, other.as_ptr() as usize);
        let mut state = [0; LAST_OFFSET / 8 + 1];
        state[FIRST_OFFSET / 8 + 3] = context;
        let state = state.as_ptr() as usize;
        // SAFETY: the arrays are as long as a thread state and a context as far as these functions read them.
        unsafe {
            assert_eq!(learn(state, context), 1);
            assert_eq!(map_to_compare(state), MAP);
            assert_eq!(entered(state), (0, 0));
            trust(true);
            assert!(is_trusted());
            assert_eq!(entered(state), (context, MAP));
            trust(false);
            assert!(!is_trusted());
            assert_eq!(entered(state), (0, 0));
            // No offset is right for both contexts.
            assert_eq!(learn(state, other), 0);
            assert_eq!(learn(state, context), 0);
            assert_eq!(map_to_compare(state), 0);
            trust(true);
            assert!(!is_trusted());
        }
    }
}
