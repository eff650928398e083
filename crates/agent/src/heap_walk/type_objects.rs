//! References of types, including those that types do not report: the collector does not need names and bases.

use heaptide_capture::heap::{EdgeType, Label};

use super::attributes::shared_keys;
use super::output::Output;
use super::walk::Walk;
use crate::cpython::offsets::{HeapTypeField, TypeField, type_flag};
use crate::cpython::references::{Object, Type};

impl<O: Output> Walk<'_, O> {
    /// Records the references of a type.
    ///
    /// # Safety
    /// `type_number` is that of the type's own type, and `collected` is true if the type has a collector's header.
    pub(super) unsafe fn type_references(
        &mut self,
        type_number: u32,
        type_: Type,
        collected: bool,
    ) {
        let reader = self.reader;
        let internal = |name| Label::new(EdgeType::Internal, name);
        let names = &self.internal;
        // SAFETY: these fields are null or references that the type owns.
        let field = |field| unsafe { reader.type_reference(type_, field) };
        // SAFETY: as above.
        let heap_field = |field| unsafe { Object::at(reader.heap_type_field(type_, field)) };
        let mut known = vec![
            (reader.dict_of_type(type_), Label::new(EdgeType::DictOf, 0)),
            (field(TypeField::Mro), internal(names.mro)),
            (field(TypeField::Bases), internal(names.bases)),
            (field(TypeField::Base), internal(names.base)),
        ];
        // From 3.12 on this field of the interpreter's own static types is a number.
        if reader.flags(type_) & type_flag::STATIC_BUILTIN == 0 || reader.heap.immortal.is_none() {
            known.push((field(TypeField::Subclasses), internal(names.subclasses)));
        }
        let mut unreported = known.clone();
        if reader.is_heap_type(type_) {
            known.push((field(TypeField::Cache), internal(names.cache)));
            known.push((heap_field(HeapTypeField::Module), internal(names.module)));
            unreported.push((heap_field(HeapTypeField::Name), internal(names.name)));
            unreported.push((heap_field(HeapTypeField::Slots), internal(names.slots)));
            unreported.push((
                heap_field(HeapTypeField::Qualname),
                internal(names.qualname),
            ));
        }
        self.referents.clear();
        let entry = &self.types[type_number as usize];
        let (traverse, own_type) = (entry.traverse, entry.type_.object());
        if collected && traverse != 0 {
            // SAFETY: the function is that of the type's own type, and a type with a header is complete: other code
            // can only refer to it once it is ready.
            unsafe { self.collect_referents(traverse, type_.object()) };
        }
        for position in 0..self.referents.len() {
            let target = self.referents[position];
            unreported.retain(|(known, _)| *known != Some(target));
            let label = match known.iter().find(|(known, _)| *known == Some(target)) {
                Some((_, label)) => *label,
                None if target == own_type => Label::new(EdgeType::Type, 0),
                None => Label::new(EdgeType::Referent, position as u32),
            };
            self.edge(Some(target), label);
        }
        for (target, label) in unreported {
            self.edge(target, label);
        }
        // Strings that name the attributes of instances.
        if self.read_inline {
            let label = Label::new(EdgeType::Internal, self.internal.shared_key);
            for key in shared_keys(reader, type_) {
                self.edge(key, label);
            }
        }
    }
}
