//! What types refer to: more than they say of themselves, since the collector has no need of names and bases.

use heaptide_capture::heap::{EdgeType, Label};

use super::output::Output;
use super::types::{cached_keys, shared_keys};
use super::walk::Walk;
use crate::cpython::heap_layout::{DictKeys, type_flag, type_object};

impl<O: Output> Walk<'_, O> {
    pub(super) fn type_references(&mut self, type_number: u32, at: usize, collected: bool) {
        let reader = self.reader;
        let dict = reader.dict_of_type(at);
        let internal = |name| Label::new(EdgeType::Internal, name);
        let names = &self.internal;
        let mut known = vec![
            (dict, Label::new(EdgeType::DictOf, 0)),
            (reader.word(at + type_object::MRO), internal(names.mro)),
            (reader.word(at + type_object::BASES), internal(names.bases)),
            (reader.word(at + type_object::BASE), internal(names.base)),
        ];
        // From 3.12 on a static type of the interpreter's own has a number there.
        if reader.flags(at) & type_flag::STATIC_BUILTIN == 0 || reader.heap.immortal.is_none() {
            let subclasses = reader.word(at + type_object::SUBCLASSES);
            known.push((subclasses, internal(names.subclasses)));
        }
        let mut unseen = known.clone();
        if reader.is_heap_type(at) {
            let name = at + reader.heap.heap_type_name;
            let cache = reader.word(at + type_object::CACHE);
            known.push((cache, internal(names.cache)));
            known.push((reader.word(name + 32), internal(names.module)));
            unseen.push((reader.word(name), internal(names.name)));
            unseen.push((reader.word(name + 8), internal(names.slots)));
            unseen.push((reader.word(name + 16), internal(names.qualname)));
        }
        self.referents.clear();
        let traverse = self.types[type_number as usize].traverse;
        if collected && traverse != 0 {
            self.collect_referents(traverse, at);
        }
        let own_type = self.types[type_number as usize].address;
        for position in 0..self.referents.len() {
            let target = self.referents[position];
            unseen.retain(|(known, _)| *known != target);
            let label = known.iter().find(|(known, _)| *known == target);
            let label = match label {
                Some((_, label)) => *label,
                None if target == own_type => Label::new(EdgeType::Type, 0),
                None => Label::new(EdgeType::Referent, position as u32),
            };
            self.edge(target, label);
        }
        for (target, label) in unseen {
            self.edge(target, label);
        }
        self.shared_keys(at);
    }

    /// Texts that name the attributes of a class's instances, held by what these share.
    fn shared_keys(&mut self, at: usize) {
        let reader = self.reader;
        if reader.heap.dict_keys != DictKeys::Compact {
            return;
        }
        let keys = cached_keys(reader, at);
        if keys == 0 || !self.read_inline {
            return;
        }
        let label = Label::new(EdgeType::Internal, self.internal.shared_key);
        for key in shared_keys(reader, keys) {
            self.edge(key, label);
        }
    }
}
