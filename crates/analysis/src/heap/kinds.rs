//! Kinds of objects, as in heapy: the type, and for a dict its owner.

use heaptide_capture::heap::{HeapSnapshot, NO_OBJECT, TypeInfo};
use rustc_hash::FxHashMap;

use super::partition::Row;
use crate::interner::Interner;

/// The kind of a dict that is not the `__dict__` of an object, as heapy writes it.
pub const PLAIN_DICT: &str = "dict (no owner)";

/// Objects of one type: their sum, and the sum of the dicts that they own.
#[derive(Clone, Copy, Debug)]
pub struct TypeSum<'t> {
    pub info: &'t TypeInfo,
    pub objects: u64,
    pub bytes: u64,
    pub dicts: u64,
    pub dict_bytes: u64,
}

/// Returns the rows of all kinds except those in `without`. They equal those of a partition of the same objects by kind.
pub fn rows_of_sums(sums: &[TypeSum<'_>], without: &[String]) -> Vec<Row> {
    let owned: u64 = sums.iter().map(|one| one.dicts).sum();
    let owned_bytes: u64 = sums.iter().map(|one| one.dict_bytes).sum();
    let mut rows: FxHashMap<String, (u64, u64)> = FxHashMap::default();
    for one in sums {
        let name = label_of_type(one.info);
        let mut add = |label: String, count: u64, bytes: u64| {
            let row = rows.entry(label).or_default();
            (row.0, row.1) = (row.0 + count, row.1.saturating_add(bytes));
        };
        add(format!("dict of {name}"), one.dicts, one.dict_bytes);
        if without.contains(&name) {
            continue;
        }
        if is_plain_dict(one.info) {
            let rest = one.objects.saturating_sub(owned);
            add(
                PLAIN_DICT.to_owned(),
                rest,
                one.bytes.saturating_sub(owned_bytes),
            );
        } else {
            add(name, one.objects, one.bytes);
        }
    }
    rows.retain(|label, row| row.0 > 0 && !without.contains(label));
    let rows = rows.into_iter().map(|(label, (count, bytes))| Row {
        label,
        count,
        bytes,
    });
    rows.collect()
}

/// The type name and the kind of every object: its type, or for a dict its owner.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// All names of types and kinds, without duplicates.
    labels: Vec<String>,
    /// By the type's number in the snapshot.
    of_types: Vec<u32>,
    /// By object.
    of_objects: Vec<u32>,
}

impl Kinds {
    pub fn new(snapshot: &HeapSnapshot, owners: &[u32]) -> Kinds {
        let mut labels = Interner::default();
        let of_types: Vec<u32> = snapshot
            .types
            .iter()
            .map(|one| labels.number(label_of_type(one)))
            .collect();
        let is_dict: Vec<bool> = snapshot.types.iter().map(is_plain_dict).collect();
        let mut dicts_of: FxHashMap<u32, u32> = FxHashMap::default();
        let no_owner = labels.number(PLAIN_DICT.to_owned());
        let of_objects = snapshot.objects.types.iter().zip(owners);
        let of_objects = of_objects
            .map(|(&own, &owner)| {
                let own = own as usize;
                if !is_dict.get(own).copied().unwrap_or(false) {
                    return of_types.get(own).copied().unwrap_or(0);
                }
                if owner == NO_OBJECT {
                    return no_owner;
                }
                let owner_type = snapshot.objects.types[owner as usize];
                *dicts_of.entry(owner_type).or_insert_with(|| {
                    let name = of_types.get(owner_type as usize).copied().unwrap_or(0);
                    let label = format!("dict of {}", labels.values[name as usize]);
                    labels.number(label)
                })
            })
            .collect();
        Kinds {
            labels: labels.values,
            of_types,
            of_objects,
        }
    }

    /// The number of an object's kind.
    pub fn of(&self, object: u32) -> u32 {
        self.of_objects.get(object as usize).copied().unwrap_or(0)
    }

    /// The number of a type's name.
    pub fn of_type(&self, number: u32) -> u32 {
        self.of_types.get(number as usize).copied().unwrap_or(0)
    }

    pub fn label(&self, kind: u32) -> &str {
        self.labels.get(kind as usize).map_or("", String::as_str)
    }

    /// The kind with this name.
    pub fn find(&self, label: &str) -> Option<u32> {
        let at = self.labels.iter().position(|known| known == label);
        at.map(|at| at as u32)
    }

    pub fn len(&self) -> usize {
        self.labels.len()
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

/// The name of a type in tables. A line feed in a name would forge a line of a report.
fn label_of_type(one: &TypeInfo) -> String {
    type_name(one).replace('\n', "\\n")
}

fn is_plain_dict(one: &TypeInfo) -> bool {
    one.name == "dict" && one.module == "builtins"
}

/// The name by which Python code can access a type. Interpreter types that `builtins` does not export are in `types` or
/// `weakref`.
pub fn type_name(one: &TypeInfo) -> String {
    let name = one.full_name();
    let public = match name.as_str() {
        "code" => "types.CodeType",
        "wrapper_descriptor" => "types.WrapperDescriptorType",
        "method_descriptor" => "types.MethodDescriptorType",
        "classmethod_descriptor" => "types.ClassMethodDescriptorType",
        "getset_descriptor" => "types.GetSetDescriptorType",
        "member_descriptor" => "types.MemberDescriptorType",
        "method-wrapper" => "types.MethodWrapperType",
        "builtin_function_or_method" => "types.BuiltinMethodType",
        "method" => "types.MethodType",
        "cell" => "types.CellType",
        "frame" => "types.FrameType",
        "traceback" => "types.TracebackType",
        "generator" => "types.GeneratorType",
        "coroutine" => "types.CoroutineType",
        "async_generator" => "types.AsyncGeneratorType",
        "mappingproxy" => "types.MappingProxyType",
        "NoneType" => "types.NoneType",
        "ellipsis" => "types.EllipsisType",
        "NotImplementedType" => "types.NotImplementedType",
        "weakref" | "weakref.weakref" => "weakref.ReferenceType",
        _ => return name,
    };
    public.to_owned()
}
