//! A heap snapshot: every Python object of a process at one moment, and the references between them.
//!
//! The heap walk in the program fills a [`HeapSnapshot`], [`write`] makes a file of it, [`read`] reads the file, and
//! `analysis` evaluates it. `docs/reference/heap-format.md` describes the file. Objects are numbered in the order of their
//! addresses and stored in columns. The references of all objects are in one list, sorted by the referring object.
//!
//! This module does not depend on an interpreter and computes nothing, and it does not trust the contents of a file.

mod column;
mod error;
pub mod label;
mod names;
pub mod read;
pub mod write;

pub use error::{HeapError, HeapFailure};
pub use label::{EdgeType, Label};
pub use names::Names;
pub use read::is_heap_file;
pub use write::write_heap;

use crate::identity::{Facts, Identity};
use crate::numbered::numbered;

/// Means "no object" where the number of an object is expected.
pub const NO_OBJECT: u32 = u32::MAX;
/// The largest number of objects in a snapshot, so that their numbers fit a signed 32-bit integer.
pub const MAX_OBJECTS: usize = i32::MAX as usize;

/// Every object of a process at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapSnapshot {
    pub header: HeapHeader,
    pub types: Vec<TypeInfo>,
    /// Texts to which labels, roots and types refer by number.
    pub names: Names,
    pub objects: Objects,
    pub edges: Edges,
    /// In the order in which the walk read them.
    pub roots: Vec<Root>,
    /// Previews of objects' values, if requested; sorted by object.
    pub values: Vec<Value>,
    /// Allocation stacks of objects, if known.
    pub stacks: Option<AllocationStacks>,
}

/// The process of a snapshot, its time, and details of the walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapHeader {
    pub pid: u32,
    /// As `sys.hexversion`: 0x030b07f0 is 3.11.7.
    pub python_version: u32,
    /// Wall-clock time of the snapshot.
    pub taken_unix_ns: u64,
    /// How long the program was paused.
    pub paused_ns: u64,
    /// How long the walk took; with `forked`, the program ran meanwhile.
    pub walk_ns: u64,
    /// The walk ran in a forked child.
    pub forked: bool,
    /// Bytes that the walk itself needed, without edges and names.
    pub walker_bytes: u64,
    pub command: Vec<String>,
    pub executable: String,
    pub host: String,
    /// As in the header of a capture.
    pub facts: Facts,
    /// One sentence for each part that could not be read.
    pub notes: Vec<String>,
    /// The recording that was active when the snapshot was taken. It has the allocation stacks of the objects.
    pub recording: Option<RecordingPosition>,
}

impl HeapHeader {
    pub fn identity(&self) -> Identity {
        Identity::new(self.pid, &self.host, &self.facts)
    }
}

/// A moment in a running capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingPosition {
    pub path: String,
    /// Python's own allocators were recorded; otherwise few objects are in the capture.
    pub objects: bool,
    /// Segments before that moment have smaller numbers; segments after it have larger ones.
    pub segment: u64,
}

/// A Python type. Objects refer to it by its index in [`HeapSnapshot::types`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeInfo {
    /// `__qualname__`.
    pub name: String,
    /// `__module__`; empty if unknown.
    pub module: String,
    pub address: u64,
    /// The number of the type object in the snapshot, or [`NO_OBJECT`].
    pub object: u32,
    pub flags: u32,
}

impl TypeInfo {
    /// Created by a `class` statement, or by an extension at run time.
    pub const HEAP: u32 = 1;
    /// The garbage collector tracks its instances.
    pub const COLLECTED: u32 = 1 << 1;
    /// Instances have a `__dict__`.
    pub const DICT: u32 = 1 << 2;
    /// Instances support weak references.
    pub const WEAK: u32 = 1 << 3;

    pub fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns `module.name`, or the name alone for builtins and types without a module.
    pub fn full_name(&self) -> String {
        if self.module.is_empty() || self.module == "builtins" {
            self.name.clone()
        } else {
            format!("{}.{}", self.module, self.name)
        }
    }
}

/// The objects, in columns of equal length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Ascending; the same as `id()`.
    pub addresses: Vec<u64>,
    /// Indices into [`HeapSnapshot::types`].
    pub types: Vec<u32>,
    /// Bytes as in `sys.getsizeof`, including the header of the garbage collector.
    pub sizes: Vec<u64>,
    /// Bytes of the object that `sys.getsizeof` does not count, such as attribute values stored without a dict.
    pub extras: Vec<u64>,
    pub flags: Vec<u8>,
}

impl Objects {
    /// The garbage collector tracks this object.
    pub const TRACKED: u8 = 1;
    /// Unreachable from all roots: garbage that is not collected yet.
    pub const UNREACHABLE: u8 = 1 << 1;
    /// The object is never freed (3.12 and later).
    pub const IMMORTAL: u8 = 1 << 2;
    /// The size is an estimate: the type computes it with Python code, which a walk does not run.
    pub const ESTIMATED: u8 = 1 << 3;
    /// C code holds it: it has more references than the walk can see.
    pub const HELD_BY_C: u8 = 1 << 4;
    /// An instance whose attributes are stored without a dict.
    pub const INLINE_VALUES: u8 = 1 << 5;

    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Returns the bytes of an object, including those that `sys.getsizeof` does not count.
    pub fn bytes(&self, object: u32) -> u64 {
        let at = object as usize;
        let size = self.sizes.get(at).copied().unwrap_or(0);
        size.saturating_add(self.extras.get(at).copied().unwrap_or(0))
    }

    pub fn is(&self, object: u32, flag: u8) -> bool {
        self.flags
            .get(object as usize)
            .is_some_and(|flags| flags & flag != 0)
    }

    /// Returns the number of the object at an address.
    pub fn find(&self, address: u64) -> Option<u32> {
        self.addresses
            .binary_search(&address)
            .ok()
            .map(|at| at as u32)
    }
}

/// References between objects: those of object `n` are from `starts[n]` to `starts[n + 1]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edges {
    /// One more element than there are objects; the first is 0, the last is the number of references.
    pub starts: Vec<u32>,
    pub targets: Vec<u32>,
    pub labels: Vec<Label>,
}

impl Default for Edges {
    fn default() -> Self {
        Edges {
            starts: vec![0],
            targets: Vec::new(),
            labels: Vec::new(),
        }
    }
}

impl Edges {
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    fn range(&self, object: u32) -> std::ops::Range<usize> {
        let at = object as usize;
        match (self.starts.get(at), self.starts.get(at + 1)) {
            (Some(&start), Some(&end)) => start as usize..end as usize,
            _ => 0..0,
        }
    }

    /// Returns the objects that an object refers to, in the object's own order.
    pub fn targets_of(&self, object: u32) -> &[u32] {
        self.targets.get(self.range(object)).unwrap_or_default()
    }

    pub fn labels_of(&self, object: u32) -> &[Label] {
        self.labels.get(self.range(object)).unwrap_or_default()
    }

    /// Returns targets with their labels.
    pub fn of(&self, object: u32) -> impl Iterator<Item = (u32, Label)> + '_ {
        let labels = self.labels_of(object).iter().copied();
        self.targets_of(object).iter().copied().zip(labels)
    }
}

/// A root: it keeps an object alive and is not an object of the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    pub category: RootCategory,
    /// Index into [`HeapSnapshot::names`]; 0 if it has no name.
    pub name: u32,
    pub object: u32,
}

impl Root {
    /// The interpreter's table of interned strings: a dict. In the snapshot it refers only to strings that have no
    /// other reference; they stay until the process exits.
    pub const INTERNED_STRINGS: &str = "interned strings";
}

numbered! {
    /// The part of the process that keeps the object of a root alive.
    pub enum RootCategory {
        /// Kept by the interpreter; the name is that of its container: `sys.modules`, [`Root::INTERNED_STRINGS`].
        Interpreter = 0,
        /// An entry of `sys.modules`; the name is the module's.
        Module = 1,
        /// A built-in type, kept by the interpreter.
        Type = 2,
        /// A local variable of a frame on a thread's stack; the name is `thread/function.variable`.
        Frame = 3,
        /// Kept by a thread state: its dict, its exception.
        Thread = 4,
        /// Held by C code: it has more references than the snapshot contains.
        C = 5,
    }
}

/// A preview of an object's value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    pub object: u32,
    pub text: String,
}

/// Allocation stacks of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationStacks {
    /// For every object an index into `stacks`; 0, the empty stack, if unknown.
    pub of_objects: Vec<u32>,
    /// Indices into `frames`, outermost first. The first stack is empty.
    pub stacks: Vec<Vec<u32>>,
    pub frames: Vec<AllocationFrame>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationFrame {
    pub function: String,
    pub file: String,
    pub line: u32,
}

impl HeapSnapshot {
    /// Returns the type of an object; a type without name if the number is invalid.
    pub fn type_of(&self, object: u32) -> &TypeInfo {
        static NONE: TypeInfo = TypeInfo {
            name: String::new(),
            module: String::new(),
            address: 0,
            object: NO_OBJECT,
            flags: 0,
        };
        let number = self.objects.types.get(object as usize);
        number
            .and_then(|number| self.types.get(*number as usize))
            .unwrap_or(&NONE)
    }

    /// Returns for each object its owner if it is the `__dict__` of another object, else [`NO_OBJECT`]. The first of
    /// several owners counts.
    pub fn dict_owners(&self) -> Vec<u32> {
        let mut owners = vec![NO_OBJECT; self.objects.len()];
        for object in 0..self.objects.len() as u32 {
            for (target, label) in self.edges.of(object) {
                if label.edge_type() == EdgeType::DictOf {
                    if let Some(owner) = owners.get_mut(target as usize) {
                        if *owner == NO_OBJECT {
                            *owner = object;
                        }
                    }
                }
            }
        }
        owners
    }

    /// Returns the preview of an object's value.
    pub fn value_of(&self, object: u32) -> Option<&str> {
        let at = self
            .values
            .binary_search_by_key(&object, |value| value.object);
        at.ok().map(|at| self.values[at].text.as_str())
    }

    /// Returns the bytes of all objects, including those that `sys.getsizeof` does not count.
    pub fn total_bytes(&self) -> u64 {
        let sizes = self.objects.sizes.iter().chain(&self.objects.extras);
        sizes.fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}
