//! What a heap snapshot *is*: every Python object of a process at one moment, and who refers to whom.
//!
//! The walk inside the program fills a [`HeapSnapshot`], [`write`] makes a file of it, [`read`] brings it back, and the
//! analysis asks its questions of it. `docs/reference/heap-format.md` draws the file. Objects are numbered in the order of their
//! addresses and stored in columns, references from object to object as one list per object, all lists in one.
//!
//! Absent here, on purpose: interpreters (the walk knows those), answers (the analysis has them), and trust in a file.

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

/// No object: for "has none" where a number of an object is expected.
pub const NO_OBJECT: u32 = u32::MAX;
/// More objects than this are not in one snapshot; their numbers fit a signed 32-bit number, too.
pub const MAX_OBJECTS: usize = i32::MAX as usize;

/// Every object of a process at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapSnapshot {
    pub header: HeapHeader,
    pub types: Vec<TypeInfo>,
    /// Texts that labels, roots and types speak of by number.
    pub names: Names,
    pub objects: Objects,
    pub edges: Edges,
    /// What keeps objects alive by itself, in the order in which it was looked at.
    pub roots: Vec<Root>,
    /// Short texts of what objects hold, if they were asked for; sorted by object.
    pub values: Vec<Value>,
    /// Where objects were allocated, if that is known.
    pub stacks: Option<AllocationStacks>,
}

/// Of what process, when, and how the snapshot was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapHeader {
    pub pid: u32,
    /// As `sys.hexversion`: 0x030b07f0 is 3.11.7.
    pub python_version: u32,
    /// Wall-clock time of the moment.
    pub taken_unix_ns: u64,
    /// How long the program stood still for it.
    pub stood_still_ns: u64,
    /// How long the walk took; with `forked` the program ran meanwhile.
    pub walk_ns: u64,
    /// The walk was done in a forked copy of the process.
    pub forked: bool,
    /// Bytes that the walk itself needed, edges and names apart.
    pub walker_bytes: u64,
    pub command: Vec<String>,
    pub executable: String,
    pub host: String,
    /// What could not be looked at, a sentence each.
    pub notes: Vec<String>,
    /// The recording that ran at that moment, for joining objects with where they were allocated.
    pub recording: Option<RecordingPosition>,
}

/// A moment in a running capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingPosition {
    pub path: String,
    /// Whether Python's own allocators were recorded, without which few objects are found in it.
    pub objects: bool,
    /// Segments before the moment have smaller numbers, those after it greater ones.
    pub segment: u64,
}

/// A type, and the number by which objects name theirs is its place in [`HeapSnapshot::types`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeInfo {
    /// `__qualname__`.
    pub name: String,
    /// `__module__`; empty if the type does not say.
    pub module: String,
    pub address: u64,
    /// The type as an object of the snapshot; [`NO_OBJECT`] if it is not in it.
    pub object: u32,
    pub flags: u32,
}

impl TypeInfo {
    /// Made by a `class` statement or by an extension at run time.
    pub const HEAP: u32 = 1;
    /// The collector follows its instances.
    pub const COLLECTED: u32 = 1 << 1;
    /// Instances have a `__dict__`.
    pub const DICT: u32 = 1 << 2;
    /// Instances can be referred to weakly.
    pub const WEAK: u32 = 1 << 3;

    pub fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// `module.name`, and the name alone for builtins and where no module is known.
    pub fn full_name(&self) -> String {
        if self.module.is_empty() || self.module == "builtins" {
            self.name.clone()
        } else {
            format!("{}.{}", self.module, self.name)
        }
    }
}

/// What is known of every object, a column each; all columns are equally long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Ascending; what `id()` says.
    pub addresses: Vec<u64>,
    /// Places in [`HeapSnapshot::types`].
    pub types: Vec<u32>,
    /// Bytes as `sys.getsizeof` says, the collector's header included.
    pub sizes: Vec<u64>,
    /// Bytes of buffers beside the object that `sys.getsizeof` does not see (numpy, …).
    pub extras: Vec<u64>,
    pub flags: Vec<u8>,
}

impl Objects {
    /// The collector follows this object.
    pub const TRACKED: u8 = 1;
    /// No root leads here: garbage that waits for the collector.
    pub const UNREACHABLE: u8 = 1 << 1;
    /// The object is never freed (3.12 and later).
    pub const IMMORTAL: u8 = 1 << 2;
    /// The size is an estimate: what the type itself would say is Python code, which a walk does not run.
    pub const ESTIMATED: u8 = 1 << 3;
    /// Nothing that the walk can see refers to it though somebody holds it: C code.
    pub const HELD_BY_C: u8 = 1 << 4;
    /// An instance whose attributes are kept without a dict.
    pub const INLINE_VALUES: u8 = 1 << 5;

    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Bytes of an object with the buffers beside it.
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

    /// The object at an address.
    pub fn find(&self, address: u64) -> Option<u32> {
        self.addresses
            .binary_search(&address)
            .ok()
            .map(|at| at as u32)
    }
}

/// Who refers to whom: the references of object `n` are those from `starts[n]` to `starts[n + 1]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edges {
    /// One more than there are objects; the first is 0, the last the number of references.
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

    /// The objects that an object refers to, in its own order.
    pub fn targets_of(&self, object: u32) -> &[u32] {
        self.targets.get(self.range(object)).unwrap_or_default()
    }

    pub fn labels_of(&self, object: u32) -> &[Label] {
        self.labels.get(self.range(object)).unwrap_or_default()
    }

    /// Targets with their labels.
    pub fn of(&self, object: u32) -> impl Iterator<Item = (u32, Label)> + '_ {
        let labels = self.labels_of(object).iter().copied();
        self.targets_of(object).iter().copied().zip(labels)
    }
}

/// Something that keeps an object alive and is no object itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    pub category: RootCategory,
    /// A place in [`HeapSnapshot::names`]; 0 if there is nothing to say.
    pub name: u32,
    pub object: u32,
}

impl Root {
    /// The interpreter's table of interned strings: a dict whose only references here are to strings that nothing else
    /// leads to, and that stay until the process ends.
    pub const INTERNED_STRINGS: &str = "interned strings";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RootCategory {
    /// `sys.modules`, [`Root::INTERNED_STRINGS`]: what the interpreter keeps; the name says which.
    Interpreter = 0,
    /// An entry of `sys.modules`; the name is the module's.
    Module = 1,
    /// A built-in type, kept by the interpreter.
    Type = 2,
    /// A local variable of a frame on a thread's stack; the name is `thread/function.variable`.
    Frame = 3,
    /// What a thread state keeps: its dict, its exception.
    Thread = 4,
    /// Held by C code: its count of references is larger than what refers to it in the snapshot.
    C = 5,
}

impl RootCategory {
    pub fn from_number(number: u64) -> Option<RootCategory> {
        Some(match number {
            0 => RootCategory::Interpreter,
            1 => RootCategory::Module,
            2 => RootCategory::Type,
            3 => RootCategory::Frame,
            4 => RootCategory::Thread,
            5 => RootCategory::C,
            _ => return None,
        })
    }
}

/// A short text of what an object holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    pub object: u32,
    pub text: String,
}

/// Where objects were allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationStacks {
    /// For every object a place in `stacks`; 0, which is the empty stack, if it is not known.
    pub of_objects: Vec<u32>,
    /// Places in `frames`, outermost first. The first stack is empty.
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
    /// The type of an object; a nameless one if the number is wrong.
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

    /// For every object the one whose `__dict__` it is, or [`NO_OBJECT`]. A dict that serves several is the first's.
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

    /// What is known of an object's content.
    pub fn value_of(&self, object: u32) -> Option<&str> {
        let at = self
            .values
            .binary_search_by_key(&object, |value| value.object);
        at.ok().map(|at| self.values[at].text.as_str())
    }

    /// Bytes of all objects with the buffers beside them.
    pub fn total_bytes(&self) -> u64 {
        let sizes = self.objects.sizes.iter().chain(&self.objects.extras);
        sizes.fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}
