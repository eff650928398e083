//! Named references in the fields of instances: members that a type declares, and known fields of the interpreter's
//! own types.

use heaptide_capture::heap::{EdgeType, Label};

use super::names::NameTable;
use super::reader::{Reader, half_at, word_at};
use crate::cpython::heap_layout::DictKeys;
use crate::cpython::offsets::{TypeField, member, object, type_flag};
use crate::cpython::references::Type;

/// The maximum number of members of a valid type.
pub const MAX_MEMBERS: usize = 4096;

/// A reference at an offset in an object, and its label.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub offset: usize,
    pub label: Label,
}

/// Returns the fields of instances of a type; `chain` is the type and its bases.
pub fn fields_of(
    reader: &Reader,
    names: &mut NameTable,
    chain: &[Type],
    flags: usize,
) -> Vec<Field> {
    let known = &reader.known;
    let mut fields = Vec::new();
    for base in chain.iter().copied() {
        let basic_size = reader.basic_size(base);
        members_of(reader, names, base, &mut fields);
        let more: &[(usize, &str)] = if base == known.function {
            object::FUNCTION
        } else if base == known.cell {
            fields.push(Field {
                offset: object::CELL_CONTENT,
                label: Label::new(EdgeType::Cell, 0),
            });
            &[]
        } else if base == known.traceback {
            object::TRACEBACK
        } else if base == known.code && reader.heap.dict_keys == DictKeys::Compact {
            object::CODE
        } else {
            &[]
        };
        add_fields(names, more, basic_size, &mut fields);
    }
    if flags & type_flag::EXCEPTION != 0 {
        add_fields(names, reader.heap.exception_fields, usize::MAX, &mut fields);
    }
    // A field may be a member and also in the lists above.
    let mut seen = Vec::new();
    fields.retain(|field| {
        let new = !seen.contains(&field.offset);
        seen.push(field.offset);
        new
    });
    fields
}

/// Appends the members of one type that are references.
fn members_of(reader: &Reader, names: &mut NameTable, type_: Type, fields: &mut Vec<Field>) {
    let edge_type = if reader.is_heap_type(type_) {
        EdgeType::Slot
    } else {
        EdgeType::Internal
    };
    let basic_size = reader.basic_size(type_);
    let members = reader.type_field(type_, TypeField::Members);
    if members == 0 {
        return;
    }
    let mut name = String::new();
    for number in 0..MAX_MEMBERS {
        let at = members + number * member::LEN;
        // SAFETY: the field is the address of a list of members, which ends with one that has no name. No earlier
        // member was the last.
        let (name_at, offset, member_type) = unsafe {
            (
                word_at(at),
                word_at(at + member::OFFSET),
                half_at(at + member::TYPE),
            )
        };
        if name_at == 0 {
            return;
        }
        if member::OBJECT_TYPES.contains(&member_type)
            && offset >= object::SIZE
            && offset + 8 <= basic_size
        {
            // SAFETY: the name of a member is a C string.
            unsafe { reader.c_text(name_at, &mut name) };
            let label = Label::new(edge_type, names.of_text(&name));
            fields.push(Field { offset, label });
        }
    }
}

fn add_fields(
    names: &mut NameTable,
    more: &[(usize, &str)],
    basic_size: usize,
    fields: &mut Vec<Field>,
) {
    for (offset, name) in more {
        if offset + 8 <= basic_size {
            let label = Label::new(EdgeType::Internal, names.of_text(name));
            fields.push(Field {
                offset: *offset,
                label,
            });
        }
    }
}
