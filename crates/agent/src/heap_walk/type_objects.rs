//! What types refer to: more than they say of themselves, since the collector has no need of names and bases.

use heaptide_capture::heap::{EdgeKind, Label};

use super::notes::Notes;
use super::types::{cached_keys, shared_keys};
use super::walk::Walk;
use crate::cpython::heap_layout::{DictKeys, type_flag, type_object};

impl<N: Notes> Walk<'_, N> {
    pub(super) fn type_references(&mut self, type_number: u32, at: usize, collected: bool) {
        let live = self.live;
        let dict = live.dict_of_type(at);
        let internal = |name| Label::new(EdgeKind::Internal, name);
        let names = &self.internal;
        let mut known = vec![
            (dict, Label::new(EdgeKind::DictOf, 0)),
            (live.word(at + type_object::MRO), internal(names.mro)),
            (live.word(at + type_object::BASES), internal(names.bases)),
            (live.word(at + type_object::BASE), internal(names.base)),
        ];
        // From 3.12 on a static type of the interpreter's own has a number there.
        if live.flags(at) & type_flag::STATIC_BUILTIN == 0 || live.heap.immortal.is_none() {
            let subclasses = live.word(at + type_object::SUBCLASSES);
            known.push((subclasses, internal(names.subclasses)));
        }
        let mut unseen = known.clone();
        if live.is_heap_type(at) {
            let name = at + live.heap.heap_type_name;
            let cache = live.word(at + type_object::CACHE);
            known.push((cache, internal(names.cache)));
            known.push((live.word(name + 32), internal(names.module)));
            unseen.push((live.word(name), internal(names.name)));
            unseen.push((live.word(name + 8), internal(names.slots)));
            unseen.push((live.word(name + 16), internal(names.qualname)));
        }
        self.told.clear();
        let traverse = self.types[type_number as usize].traverse;
        if collected && traverse != 0 {
            self.listen(traverse, at);
        }
        let own_type = self.types[type_number as usize].address;
        for place in 0..self.told.len() {
            let target = self.told[place];
            unseen.retain(|(known, _)| *known != target);
            let label = known.iter().find(|(known, _)| *known == target);
            let label = match label {
                Some((_, label)) => *label,
                None if target == own_type => Label::new(EdgeKind::Type, 0),
                None => Label::new(EdgeKind::Referent, place as u32),
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
        let live = self.live;
        if live.heap.dict_keys != DictKeys::Compact {
            return;
        }
        let keys = cached_keys(live, at);
        if keys == 0 || !self.read_inline {
            return;
        }
        let label = Label::new(EdgeKind::Internal, self.internal.shared_key);
        for key in shared_keys(live, keys) {
            self.edge(key, label);
        }
    }
}
