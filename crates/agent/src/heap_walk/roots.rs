//! The roots of the walk, and the identification of unreachable objects.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use heaptide_capture::heap::{Objects, Root, RootCategory};

use super::column::Column;
use super::index::Index;
use super::interned;
use super::output::{Columns, Output};
use super::reader::{Reader, word_at};
use super::types::Scan;
use super::visited::Handle;
use super::walk::{Full, Walk};
use crate::cpython::memory::Probed;
use crate::cpython::offsets::{collector, object};
use crate::cpython::references::{Object, Type};

/// The maximum length of a collector's list; longer ones are invalid.
const MAX_LIST: usize = 1 << 31;

#[derive(Default)]
pub struct Roots {
    pub entries: Vec<Root>,
    /// Whether local variables of frames can be read; proved before the walk.
    pub read_locals: bool,
    /// The table of interned strings, in versions in which it keeps strings alive.
    pub interned: Option<interned::Table>,
}

impl Roots {
    pub fn add<O: Output>(
        &mut self,
        walk: &mut Walk<'_, O>,
        category: RootCategory,
        name: &str,
        object: Object,
    ) {
        if let Some(object) = walk.add(object) {
            let name = walk.names.of_text(name);
            self.entries.push(Root {
                category,
                name,
                object,
            });
        }
    }

    /// Adds `sys.modules` with its modules, and the running frames.
    pub fn begin<O: Output>(&mut self, walk: &mut Walk<'_, O>) {
        let reader = walk.reader;
        if let Some(modules) = reader.modules() {
            self.add(walk, RootCategory::Interpreter, "sys.modules", modules);
            let mut entries = Vec::new();
            if reader.type_of(modules) == reader.known.dict {
                // SAFETY: the object is a dict.
                unsafe { reader.dict_entries(modules, |key, value| entries.push((key, value))) };
            }
            let mut buffer = [0; 300];
            for (key, value) in entries {
                if value == reader.known.none || reader.type_of(key) != reader.known.unicode {
                    continue;
                }
                let name = reader.text(key, &mut buffer).map_or("", |(text, _)| text);
                self.add(walk, RootCategory::Module, name, value);
            }
        }
        walk.frame_roots(self);
    }

    /// Adds all objects that the collector knows and no root led to; `false` if it cannot report them.
    pub fn add_collected<O: Output>(&mut self, walk: &mut Walk<'_, O>) -> Result<bool, Full> {
        let reader = walk.reader;
        // Reading its lists is faster than calling its function, and the lists also contain frozen objects.
        let lists = reader.heap.generations.map(|at| reader.interpreter() + at);
        let mut reported = lists.is_some_and(|first| {
            // SAFETY: the words at `first` are heads of the collector's lists, as confirmed.
            lists_are_valid(first)
                && unsafe {
                    read_lists(first, &collector::HEADS, |object| {
                        O::collected(walk, object)
                    })
                }
        });
        if !reported {
            let with: *mut Walk<'_, O> = walk;
            // SAFETY: `add_one` gets the walk that it expects, and neither creates nor frees objects.
            reported = unsafe { reader.visit_collected(add_one::<O>, with.cast()) };
        }
        O::run(walk)?;
        Ok(reported)
    }

    /// Adds the objects that only weak references lead to, until there are no new ones.
    pub fn add_weak<O: Output>(&mut self, walk: &mut Walk<'_, O>) -> Result<(), Full> {
        let mut done = 0;
        while done < walk.weak.len() {
            // SAFETY: the walk stored the address of a live weak reference's referent, and nothing was freed since.
            let target = unsafe { Object::at(walk.weak[done].target as usize) };
            // An object without references is being freed.
            let is_alive = |target: &Object| walk.reader.references(*target) != Some(0);
            if let Some(target) = target.filter(is_alive) {
                walk.add(target);
            }
            done += 1;
            if done == walk.weak.len() {
                O::run(walk)?;
            }
        }
        Ok(())
    }

    /// Keeps the walk from scanning the table of interned strings, which is added last.
    pub fn reserve<O: Output>(&self, walk: &mut Walk<'_, O>) -> Result<(), Full> {
        match self.interned {
            Some(table) => interned::reserve(walk, table),
            None => Ok(()),
        }
    }

    /// Adds the interned strings that nothing else refers to.
    pub fn add_interned<O: Output>(&mut self, walk: &mut Walk<'_, O>) -> Result<(), Full> {
        let Some(table) = self.interned else {
            return Ok(());
        };
        let strings = interned::kept(walk.reader, table, |string| {
            walk.handle_of(string).is_none()
        })?;
        interned::add(walk, table, &strings)?;
        Ok(())
    }

    /// Classifies the objects from position `first` on, which no root led to. C code holds those that have more
    /// references than the snapshot contains: they become roots. The others are unreachable, unless such a root leads
    /// to them or they are strings that the table of interned strings holds. Returns the unreachable ones.
    pub fn classify_unreached(
        &mut self,
        walk: &mut Walk<'_, Columns>,
        first: usize,
    ) -> Result<Column<Object>, Full> {
        let mut unreached = Unreached::new(walk, first).ok_or(Full)?;
        let mut known: Column<u32> = Column::zeroed(unreached.len()).ok_or(Full)?;
        // Weak references are not among the targets: the walk stores them separately.
        let begin = walk.output.references(first).start;
        for target in &walk.output.targets[begin..] {
            if let Some(number) = unreached.find(*target) {
                known[number] += 1;
            }
        }
        let in_table = unreached.interned(walk, self.interned)?;
        let mut reached: Column<u32> = Column::new();
        for (number, known) in known.iter().enumerate() {
            let handle = unreached.handles[number] as Handle;
            let object = walk.object_of(handle);
            let held = match walk.reader.references(object) {
                None => in_table[number] == 0,
                Some(references) => references > u64::from(*known),
            };
            if held {
                let entry = &walk.types[walk.output.types[first + number] as usize];
                // SAFETY: an object that is scanned as a type is one.
                let is_static_type = entry.scan == Scan::Type
                    && !walk
                        .reader
                        .is_heap_type(unsafe { Type::from_object(object) });
                if !is_static_type {
                    walk.output.flags[first + number] |= Objects::HELD_BY_C;
                    self.entries.push(Root {
                        category: RootCategory::C,
                        name: 0,
                        object: handle,
                    });
                }
                if !reached.push(number as u32) {
                    return Err(Full);
                }
            }
        }
        unreached.spread(walk, first, &mut reached)?;
        self.interned_strings(walk, &mut unreached)?;
        let mut garbage = Column::new();
        for number in 0..unreached.len() {
            if unreached.is_reached[number] == 0 {
                walk.output.flags[first + number] |= Objects::UNREACHABLE;
                if !garbage.push(walk.object_of(unreached.handles[number] as Handle)) {
                    return Err(Full);
                }
            }
        }
        Ok(garbage)
    }

    /// Adds the table of interned strings, with references to the strings that no other object refers to.
    fn interned_strings(
        &mut self,
        walk: &mut Walk<'_, Columns>,
        unreached: &mut Unreached,
    ) -> Result<(), Full> {
        let Some(table) = self.interned else {
            return Ok(());
        };
        let strings = interned::kept(walk.reader, table, |string| match walk.handle_of(string) {
            None => true,
            Some(handle) => unreached
                .find(handle)
                .is_some_and(|number| unreached.is_reached[number] == 0),
        })?;
        for (string, _) in strings.iter() {
            let handle = walk.handle_of(*string);
            if let Some(number) = handle.and_then(|handle| unreached.find(handle)) {
                unreached.is_reached[number] = 1;
            }
        }
        let object = interned::add(walk, table, &strings)?;
        self.entries.push(Root {
            category: RootCategory::Interpreter,
            name: walk.names.of_text(Root::INTERNED_STRINGS),
            object,
        });
        Ok(())
    }

    /// Adds the static types, which are never freed.
    pub fn static_types(&mut self, walk: &mut Walk<'_, Columns>) {
        let mut name = String::new();
        for handle in &walk.static_types {
            // SAFETY: the walk put only handles of types into this list.
            let type_ = unsafe { Type::from_object(walk.object_of(*handle)) };
            walk.reader.type_name(type_, &mut name);
            self.entries.push(Root {
                category: RootCategory::Type,
                name: walk.names.of_text(&name),
                object: *handle,
            });
        }
    }
}

/// Objects that no root led to, in the order in which the walk found them.
struct Unreached {
    handles: Column<u64>,
    index: Index,
    is_reached: Column<u8>,
}

impl Unreached {
    fn new(walk: &Walk<'_, Columns>, first: usize) -> Option<Unreached> {
        let unreached = walk.output.handles.get(first..)?;
        let mut handles: Column<u64> = Column::new();
        let mut index = Index::new()?;
        for handle in unreached {
            let handle = u64::from(*handle);
            index.find_or_add(&handles, handle)?;
            if !handles.push(handle) {
                return None;
            }
        }
        Some(Unreached {
            is_reached: Column::zeroed(unreached.len())?,
            handles,
            index,
        })
    }

    fn len(&self) -> usize {
        self.handles.len()
    }

    fn find(&self, handle: Handle) -> Option<usize> {
        let number = self.index.find(&self.handles, u64::from(handle))?;
        Some(number as usize)
    }

    /// Returns, for each object, whether the table of interned strings keeps it until the process exits.
    fn interned(
        &self,
        walk: &Walk<'_, Columns>,
        table: Option<interned::Table>,
    ) -> Result<Column<u8>, Full> {
        let mut in_table: Column<u8> = Column::zeroed(self.len()).ok_or(Full)?;
        if let Some(table) = table {
            interned::kept(walk.reader, table, |string| {
                let handle = walk.handle_of(string);
                if let Some(number) = handle.and_then(|handle| self.find(handle)) {
                    in_table[number] = 1;
                }
                false
            })?;
        }
        Ok(in_table)
    }

    /// Marks all objects that those in `reached` lead to.
    fn spread(
        &mut self,
        walk: &Walk<'_, Columns>,
        first: usize,
        reached: &mut Column<u32>,
    ) -> Result<(), Full> {
        for number in reached.iter() {
            self.is_reached[*number as usize] = 1;
        }
        let mut done = 0;
        while done < reached.len() {
            let references = walk.output.references(first + reached[done] as usize);
            done += 1;
            for edge in references {
                let target = self.find(walk.output.targets[edge]);
                if let Some(target) = target.filter(|target| self.is_reached[*target] == 0) {
                    self.is_reached[target] = 1;
                    if !reached.push(target as u32) {
                        return Err(Full);
                    }
                }
            }
        }
        Ok(())
    }
}

unsafe extern "C" fn add_one<O: Output>(target: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: `add_collected` passes its walk and does not use it until the collector returns.
    let walk = unsafe { &mut *walk.cast::<Walk<'_, O>>() };
    // SAFETY: the collector reports live objects.
    let object = unsafe { Object::at(target as usize) };
    // 1 continues, 0 stops.
    c_int::from(object.is_none_or(|object| O::collected(walk, object)))
}

/// Passes the objects that `gc.get_objects()` returns to `each`: all tracked objects except frozen ones. Returns `false` if
/// the collector cannot report them, or if `each` returns `false`.
pub fn read_tracked(reader: &Reader, mut each: impl FnMut(Object) -> bool) -> bool {
    let lists = reader.heap.generations.map(|at| reader.interpreter() + at);
    if let Some(first) = lists.filter(|first| lists_are_valid(*first)) {
        // SAFETY: the words at `first` are heads of the collector's lists, as confirmed.
        return unsafe { read_lists(first, &collector::HEADS[..3], each) };
    }
    let mut visited = Reported {
        each: &mut each,
        all: true,
    };
    let with: *mut Reported<'_> = &mut visited;
    // SAFETY: `pass_on` gets the value that it expects, and neither creates nor frees objects.
    unsafe { reader.visit_collected(pass_on, with.cast()) && visited.all }
}

/// Receives the objects that the collector's function reports.
struct Reported<'a> {
    each: &'a mut dyn FnMut(Object) -> bool,
    /// Whether `each` accepted all.
    all: bool,
}

unsafe extern "C" fn pass_on(target: *mut c_void, reported: *mut c_void) -> c_int {
    // SAFETY: `read_tracked` passes this value and does not use it until the collector returns.
    let reported = unsafe { &mut *reported.cast::<Reported<'_>>() };
    // SAFETY: the collector reports live objects.
    if let Some(object) = unsafe { Object::at(target as usize) } {
        reported.all &= (reported.each)(object);
    }
    c_int::from(reported.all)
}

/// Passes the objects in the collector's lists to `each`. Returns `false` if a list is invalid or `each` returns
/// `false`.
///
/// # Safety
/// `first` is the address of the collector's lists, and `heads` are offsets from it.
unsafe fn read_lists(first: usize, heads: &[usize], mut each: impl FnMut(Object) -> bool) -> bool {
    for head in heads.iter().map(|offset| first + offset) {
        let mut at = head;
        for _ in 0..MAX_LIST {
            // SAFETY: `at` is the head, or a header whose links with its predecessor were compared in both directions.
            let next = unsafe { word_at(at) } & !collector::FLAG_BITS;
            if next == head {
                break;
            }
            if next == 0 {
                return false;
            }
            // SAFETY: a header of the list links to `next`, so `next` is a header in readable memory.
            let previous = unsafe { word_at(next + collector::PREVIOUS) } & !collector::FLAG_BITS;
            // SAFETY: the object follows its header, so its address is not 0.
            let object = unsafe { Object::at(next + object::GC_HEADER).unwrap_unchecked() };
            if previous != at || !each(object) {
                return false;
            }
            at = next;
        }
    }
    true
}

/// The address at which the collector's lists were last found valid; 0 before.
static VALID_LISTS: AtomicUsize = AtomicUsize::new(0);

/// Returns whether the words at an address are heads of the collector's lists. They stay valid as long as the
/// interpreter exists. A later interpreter at the same address has the same layout.
fn lists_are_valid(first: usize) -> bool {
    if VALID_LISTS.load(Ordering::Relaxed) == first {
        return true;
    }
    let valid = verify_lists(first);
    if valid {
        VALID_LISTS.store(first, Ordering::Relaxed);
    }
    valid
}

fn verify_lists(first: usize) -> bool {
    let Some(mut memory) = Probed::open() else {
        return false;
    };
    let mut word = |at: usize| memory.word(at).unwrap_or(0);
    let mut link = |at: usize| word(at) & !collector::FLAG_BITS;
    link(first + collector::YOUNGEST) == first
        && collector::HEADS.iter().all(|offset| {
            let head = first + offset;
            let (next, previous) = (link(head), link(head + collector::PREVIOUS));
            next != 0
                && previous != 0
                && link(next + collector::PREVIOUS) == head
                && link(previous) == head
        })
}
