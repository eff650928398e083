//! Which job the calling thread is working for: the value of one context variable, read without calling Python.
//!
//! A thread, a greenlet and an asyncio task each have a context of their own, and whoever switches between them puts the
//! right one into the thread state. So "whose is this allocation?" is: thread state → context → its map of variables →
//! the value of ours, which is a token that a job registered. A task that a job starts gets a copy of its context, and
//! with it the token: what it allocates is the job's.
//!
//! ```text
//! PyThreadState ─[found by trying]→ PyContext ─[24]→ Hamt ─[16]→ node ─ … → (variable, value)
//! bitmap node     [16] number of words   [32] key, value, key, value, …   (key 0: value is a node)
//! array node      [16] 32 nodes or 0
//! collision node  [16] number of words   [32] key, value, …
//! ```
//! No header says where a thread state keeps its context, and the map is private. Both are learnt from the interpreter:
//! [`learn`] is called inside contexts whose address is known, and whoever calls it compares what [`value_of`] finds
//! with what Python says, in maps of all sizes, before [`trust`] is called. Without trust, jobs are told apart by thread.
//!
//! The context that a thread has entered is kept alive by that thread, which is executing this very code, and the map in
//! it never changes: reading needs no GIL. Allocates: never. Locks: none.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A thread state is at least 280 bytes long in every supported version, and its first words are others.
const FIRST_OFFSET: usize = 128;
const LAST_OFFSET: usize = 264;
const CONTEXT_VARS: usize = 24;
const MAP_ROOT: usize = 16;
const OB_TYPE: usize = 8;
const TYPE_NAME: usize = 24;
const N_NODE_WORDS: usize = 16;
const NODE_WORDS: usize = 32;
const ARRAY_NODES: usize = 16;
const ARRAY_LEN: usize = 32;
/// Seven levels of five bits each of a hash, and one for collisions.
const MAX_DEPTH: u32 = 9;
/// A node has a key and a value for each of five bits' values; a longer collision node is not believed.
const MAX_NODE_WORDS: usize = 64;

/// Bit i: the word at `FIRST_OFFSET + 8 i` may be the context. 0 before anything was learnt.
static CANDIDATES: AtomicUsize = AtomicUsize::new(0);
static OFFSET: AtomicUsize = AtomicUsize::new(0);
static TRUSTED: AtomicBool = AtomicBool::new(false);
static BITMAP_NODE: AtomicUsize = AtomicUsize::new(0);
static ARRAY_NODE: AtomicUsize = AtomicUsize::new(0);
static COLLISION_NODE: AtomicUsize = AtomicUsize::new(0);

/// # Safety
/// A live object or struct of the interpreter stands at `address` and has a word at `offset`.
#[inline(always)]
unsafe fn word(address: usize, offset: usize) -> usize {
    // SAFETY: as the caller says.
    unsafe { (address.wrapping_add(offset) as *const usize).read() }
}

/// Compares the words of the calling thread's state with the context that it has entered. Returns how many places are left
/// at which the context may be kept; one is what is wanted.
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
    let before = CANDIDATES.load(Ordering::Relaxed);
    let left = if before == 0 {
        present
    } else {
        before & present
    };
    CANDIDATES.store(left, Ordering::Relaxed);
    if left.count_ones() == 1 {
        OFFSET.store(
            FIRST_OFFSET + 8 * left.trailing_zeros() as usize,
            Ordering::Release,
        );
    }
    left.count_ones()
}

/// Says that what [`value_of`] finds was compared with what Python says.
pub fn trust(trusted: bool) {
    TRUSTED.store(
        trusted && OFFSET.load(Ordering::Acquire) != 0,
        Ordering::Release,
    );
}

#[inline(always)]
pub fn is_trusted() -> bool {
    TRUSTED.load(Ordering::Acquire)
}

/// The context that the thread has entered and the map of its variables, as addresses; 0 where there is none.
///
/// # Safety
/// `thread_state` is 0 or the calling thread's own, and [`learn`] has found the place.
#[inline(always)]
pub unsafe fn entered(thread_state: usize) -> (usize, usize) {
    let offset = OFFSET.load(Ordering::Relaxed);
    if thread_state == 0 || offset == 0 {
        return (0, 0);
    }
    // SAFETY: as the caller says; a context has its map in the same place in all versions.
    unsafe {
        let context = word(thread_state, offset);
        if context == 0 {
            return (0, 0);
        }
        (context, word(context, CONTEXT_VARS))
    }
}

/// The address of a variable's value in a map; 0 if the map does not have it.
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
    // SAFETY: as the caller says; each kind of node is read as the picture above shows it.
    unsafe {
        match kind_of(word(node, OB_TYPE)) {
            Kind::Pairs => {
                let n_words = word(node, N_NODE_WORDS).min(MAX_NODE_WORDS);
                for i in (0..n_words.saturating_sub(1)).step_by(2) {
                    let key = word(node, NODE_WORDS + 8 * i);
                    let value = word(node, NODE_WORDS + 8 * i + 8);
                    if key == variable {
                        return value;
                    }
                    if key == 0 {
                        let found = find(value, variable, depth + 1);
                        if found != 0 {
                            return found;
                        }
                    }
                }
                0
            }
            Kind::Nodes => (0..ARRAY_LEN)
                .map(|i| find(word(node, ARRAY_NODES + 8 * i), variable, depth + 1))
                .find(|&found| found != 0)
                .unwrap_or(0),
            Kind::Unknown => 0,
        }
    }
}

enum Kind {
    Pairs,
    Nodes,
    Unknown,
}

/// # Safety
/// `type_address` is a live type object.
unsafe fn kind_of(type_address: usize) -> Kind {
    if type_address == BITMAP_NODE.load(Ordering::Relaxed)
        || type_address == COLLISION_NODE.load(Ordering::Relaxed)
    {
        return Kind::Pairs;
    }
    if type_address == ARRAY_NODE.load(Ordering::Relaxed) {
        return Kind::Nodes;
    }
    // SAFETY: every type object has a name, a C string.
    let name = unsafe { std::ffi::CStr::from_ptr(word(type_address, TYPE_NAME) as *const _) };
    let (place, kind) = match name.to_bytes() {
        b"hamt_bitmap_node" => (&BITMAP_NODE, Kind::Pairs),
        b"hamt_collision_node" => (&COLLISION_NODE, Kind::Pairs),
        b"hamt_array_node" => (&ARRAY_NODE, Kind::Nodes),
        _ => return Kind::Unknown,
    };
    place.store(type_address, Ordering::Relaxed);
    kind
}
