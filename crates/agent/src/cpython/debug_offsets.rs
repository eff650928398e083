//! The debug offsets that CPython 3.13 and later publish at the start of `_PyRuntime`.
//!
//! The struct differs from one minor version to the next and is fixed within one; a [`DebugOffsetsMap`] says where
//! each number is. What is read is taken as a claim: every number has to fit the others and the size of its struct,
//! or the interpreter is refused.

use super::layout::{BytesLayout, CodeLayout, CurrentFrame, Evaluations, Layout, UnicodeLayout};
use super::unsupported::Unsupported;

/// Position in bytes of each number we use in one version's `_Py_DebugOffsets`.
#[derive(Clone, Copy, Debug)]
pub struct DebugOffsetsMap {
    pub version: (u8, u8),
    /// Size of the whole struct.
    pub size: usize,
    pub thread_state_size: usize,
    pub thread_state_current_frame: usize,
    pub frame_size: usize,
    pub frame_previous: usize,
    pub frame_executable: usize,
    pub frame_instr_ptr: usize,
    pub frame_owner: usize,
    pub code_size: usize,
    pub code_filename: usize,
    pub code_name: usize,
    pub code_qualname: usize,
    pub code_linetable: usize,
    pub code_firstlineno: usize,
    pub code_co_code_adaptive: usize,
    pub object_size: usize,
    pub object_ob_type: usize,
    pub bytes_size: usize,
    pub bytes_ob_size: usize,
    pub bytes_ob_sval: usize,
    pub unicode_size: usize,
    pub unicode_state: usize,
    pub unicode_length: usize,
    pub unicode_asciiobject_size: usize,
    pub unpublished: Unpublished,
}

/// What the struct leaves out, from the version's headers.
#[derive(Clone, Copy, Debug)]
pub struct Unpublished {
    /// Tag bits in a frame's code pointer.
    pub frame_code_tag_bits: usize,
    pub first_shim_owner: u8,
    pub first_traceable: usize,
    pub compact_data: usize,
    pub kind_mask: u32,
    pub compact_mask: u32,
    pub ascii_mask: u32,
}

/// The first eight bytes of `_PyRuntime`.
const COOKIE: &[u8] = b"xdebugpy";
const VERSION: usize = 8;
const FREE_THREADED: usize = 16;

/// Sizes no struct of any version comes near.
const MAX_THREAD_STATE: usize = 1 << 16;
const MAX_OBJECT: usize = 1 << 12;

const POINTER: usize = size_of::<usize>();

/// Turns the published bytes into a layout, or says which number cannot be right.
pub fn layout_from(map: &DebugOffsetsMap, published: &[u8]) -> Result<Layout, Unsupported> {
    let read = Published(published);
    if published.get(..COOKIE.len()) != Some(COOKIE) {
        return Err(Unsupported::DebugOffsets { what: "cookie" });
    }
    if published.len() < map.size {
        return Err(Unsupported::DebugOffsets {
            what: "size of the struct",
        });
    }
    // The version is PY_VERSION_HEX: major, minor, micro and level, one byte each.
    if read.number(VERSION, "version")? >> 16
        != u64::from(map.version.0) << 8 | u64::from(map.version.1)
    {
        return Err(Unsupported::DebugOffsets { what: "version" });
    }
    match read.number(FREE_THREADED, "free-threaded flag")? {
        0 => {}
        1 => return Err(Unsupported::FreeThreaded),
        _ => {
            return Err(Unsupported::DebugOffsets {
                what: "free-threaded flag",
            });
        }
    }

    let object = read.structure(map.object_size, MAX_OBJECT, 0, "size of an object")?;
    let ob_type = object.field(map.object_ob_type, POINTER, "type of an object")?;
    let thread = read.structure(
        map.thread_state_size,
        MAX_THREAD_STATE,
        0,
        "size of a thread state",
    )?;
    let frame = read.structure(map.frame_size, MAX_OBJECT, 0, "size of a frame")?;
    let code = read.structure(
        map.code_size,
        MAX_OBJECT,
        object.size,
        "size of a code object",
    )?;
    let bytes = read.structure(
        map.bytes_size,
        MAX_OBJECT,
        object.size,
        "size of a bytes object",
    )?;
    let unicode = read.structure(
        map.unicode_size,
        MAX_OBJECT,
        object.size,
        "size of a string",
    )?;
    let extra = &map.unpublished;
    let code_bytes = code.field(map.code_co_code_adaptive, 1, "bytecode of a code object")?;
    let layout = Layout {
        version: map.version,
        current_frame: CurrentFrame::Direct(thread.field(
            map.thread_state_current_frame,
            POINTER,
            "current frame of a thread state",
        )?),
        frame_previous: frame.field(map.frame_previous, POINTER, "previous of a frame")?,
        frame_code: frame.field(map.frame_executable, POINTER, "executable of a frame")?,
        frame_code_mask: !extra.frame_code_tag_bits,
        frame_instr: frame.field(map.frame_instr_ptr, POINTER, "instruction of a frame")?,
        evaluations: Evaluations::Shims,
        frame_owner: Some(frame.field(map.frame_owner, 1, "owner of a frame")?),
        first_shim_owner: extra.first_shim_owner,
        instr_is_index: false,
        code_bytes,
        code: CodeLayout {
            type_address: 0,
            basic_size: code_bytes,
            ob_type,
            name: code.field(map.code_name, POINTER, "name of a code object")?,
            qualname: Some(code.field(
                map.code_qualname,
                POINTER,
                "qualified name of a code object",
            )?),
            filename: code.field(map.code_filename, POINTER, "file name of a code object")?,
            first_line: code.field(map.code_firstlineno, 4, "first line of a code object")?,
            linetable: code.field(map.code_linetable, POINTER, "line table of a code object")?,
            first_traceable: Some(extra.first_traceable),
        },
        unicode: UnicodeLayout {
            length: unicode.field(map.unicode_length, POINTER, "length of a string")?,
            state: unicode.field(map.unicode_state, 4, "state of a string")?,
            ascii_data: unicode.field(map.unicode_asciiobject_size, 1, "characters of a string")?,
            compact_data: extra.compact_data,
            kind_mask: extra.kind_mask,
            compact_mask: extra.compact_mask,
            ascii_mask: extra.ascii_mask,
        },
        bytes: BytesLayout {
            length: bytes.field(map.bytes_ob_size, POINTER, "length of a bytes object")?,
            data: bytes.field(map.bytes_ob_sval, 1, "content of a bytes object")?,
        },
    };
    agree(&layout, unicode.size, code.size)?;
    Ok(layout)
}

/// Fields of one struct must not share a place, and what the headers say must fit what is published.
fn agree(layout: &Layout, unicode_size: usize, code_size: usize) -> Result<(), Unsupported> {
    let code = &layout.code;
    let frame = [layout.frame_previous, layout.frame_code, layout.frame_instr];
    let texts = [
        code.name,
        code.qualname.unwrap_or(0),
        code.filename,
        code.linetable,
    ];
    if !all_differ(&frame) {
        return Err(Unsupported::DebugOffsets {
            what: "fields of a frame at the same place",
        });
    }
    if !all_differ(&texts) {
        return Err(Unsupported::DebugOffsets {
            what: "fields of a code object at the same place",
        });
    }
    if code
        .first_traceable
        .is_some_and(|offset| offset + 4 > code_size)
    {
        return Err(Unsupported::DebugOffsets {
            what: "size of a code object",
        });
    }
    // A string object that is not compact ends with the pointer to its characters.
    let unicode = &layout.unicode;
    if unicode.compact_data + POINTER != unicode_size || unicode.ascii_data >= unicode.compact_data
    {
        return Err(Unsupported::DebugOffsets {
            what: "size of a string",
        });
    }
    Ok(())
}

fn all_differ(offsets: &[usize]) -> bool {
    offsets
        .iter()
        .enumerate()
        .all(|(index, offset)| !offsets.iter().skip(index + 1).any(|other| other == offset))
}

/// The published bytes.
#[derive(Clone, Copy)]
struct Published<'a>(&'a [u8]);

/// One struct that the offsets describe: fields lie between `start` and `size`.
struct Structure<'a> {
    published: Published<'a>,
    start: usize,
    size: usize,
}

impl<'a> Published<'a> {
    fn number(self, at: usize, what: &'static str) -> Result<u64, Unsupported> {
        self.0
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .map(|bytes| u64::from_le_bytes(*bytes))
            .ok_or(Unsupported::DebugOffsets { what })
    }

    fn structure(
        self,
        at: usize,
        most: usize,
        start: usize,
        what: &'static str,
    ) -> Result<Structure<'a>, Unsupported> {
        match usize::try_from(self.number(at, what)?) {
            Ok(size) if size > start && size <= most => Ok(Structure {
                published: self,
                start,
                size,
            }),
            _ => Err(Unsupported::DebugOffsets { what }),
        }
    }
}

impl Structure<'_> {
    /// An offset that leaves room for its field and is aligned to the field's width.
    fn field(&self, at: usize, width: usize, what: &'static str) -> Result<usize, Unsupported> {
        match usize::try_from(self.published.number(at, what)?) {
            Ok(offset)
                if offset >= self.start
                    && offset < self.size
                    && self.size - offset >= width
                    && offset % width == 0 =>
            {
                Ok(offset)
            }
            _ => Err(Unsupported::DebugOffsets { what }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tables::{v3_13, v3_14, v3_15};
    use super::*;

    const MAPS: [&DebugOffsetsMap; 3] = [&v3_13::MAP, &v3_14::MAP, &v3_15::MAP];

    fn put(bytes: &mut [u8], at: usize, value: u64) {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Position and value of every number used, as a GIL build of 3.14 publishes them.
    fn numbers(map: &DebugOffsetsMap) -> [(usize, u64); 23] {
        [
            (map.thread_state_size, 312),
            (map.thread_state_current_frame, 72),
            (map.frame_size, 88),
            (map.frame_previous, 8),
            (map.frame_executable, 0),
            (map.frame_instr_ptr, 56),
            (map.frame_owner, 74),
            (map.code_size, 216),
            (map.code_filename, 112),
            (map.code_name, 120),
            (map.code_qualname, 128),
            (map.code_linetable, 136),
            (map.code_firstlineno, 68),
            (map.code_co_code_adaptive, 208),
            (map.object_size, 16),
            (map.object_ob_type, 8),
            (map.bytes_size, 40),
            (map.bytes_ob_size, 16),
            (map.bytes_ob_sval, 32),
            (map.unicode_size, 64),
            (map.unicode_state, 32),
            (map.unicode_length, 16),
            (map.unicode_asciiobject_size, 40),
        ]
    }

    fn publish(map: &DebugOffsetsMap) -> Vec<u8> {
        let mut bytes = vec![0; map.size];
        bytes[..8].copy_from_slice(COOKIE);
        put(
            &mut bytes,
            VERSION,
            u64::from(map.version.0) << 24 | u64::from(map.version.1) << 16 | 0x02f0,
        );
        for (at, value) in numbers(map) {
            put(&mut bytes, at, value);
        }
        bytes
    }

    #[test]
    fn a_sound_struct_becomes_the_layout_it_describes() {
        for map in MAPS {
            let layout = layout_from(map, &publish(map)).unwrap();
            assert_eq!(layout.version, map.version);
            assert_eq!(layout.current_frame, CurrentFrame::Direct(72));
            assert_eq!(
                (layout.frame_previous, layout.frame_code, layout.frame_instr),
                (8, 0, 56)
            );
            assert_eq!((layout.frame_owner, layout.first_shim_owner), (Some(74), 3));
            assert_eq!((layout.code_bytes, layout.code.basic_size), (208, 208));
            assert_eq!(
                (layout.code.name, layout.code.qualname, layout.code.filename),
                (120, Some(128), 112)
            );
            assert_eq!((layout.code.first_line, layout.code.linetable), (68, 136));
            assert_eq!(
                (
                    layout.unicode.length,
                    layout.unicode.state,
                    layout.unicode.ascii_data
                ),
                (16, 32, 40)
            );
            assert_eq!((layout.bytes.length, layout.bytes.data), (16, 32));
        }
    }

    #[test]
    fn code_pointers_are_masked_from_3_14_on() {
        assert_eq!(
            layout_from(&v3_13::MAP, &publish(&v3_13::MAP))
                .unwrap()
                .frame_code_mask,
            !0
        );
        assert_eq!(
            layout_from(&v3_14::MAP, &publish(&v3_14::MAP))
                .unwrap()
                .frame_code_mask,
            !3
        );
        assert_eq!(
            layout_from(&v3_15::MAP, &publish(&v3_15::MAP))
                .unwrap()
                .frame_code_mask,
            !3
        );
    }

    #[test]
    fn a_wrong_cookie_is_refused() {
        let mut bytes = publish(&v3_14::MAP);
        bytes[0] ^= 1;
        assert_eq!(
            layout_from(&v3_14::MAP, &bytes),
            Err(Unsupported::DebugOffsets { what: "cookie" })
        );
        assert_eq!(
            layout_from(&v3_14::MAP, &[]),
            Err(Unsupported::DebugOffsets { what: "cookie" })
        );
    }

    #[test]
    fn another_versions_struct_is_refused() {
        for (map, other) in [
            (&v3_13::MAP, &v3_14::MAP),
            (&v3_14::MAP, &v3_15::MAP),
            (&v3_15::MAP, &v3_13::MAP),
        ] {
            let mut bytes = publish(other);
            bytes.resize(1024, 0);
            assert_eq!(
                layout_from(map, &bytes),
                Err(Unsupported::DebugOffsets { what: "version" })
            );
        }
    }

    #[test]
    fn a_free_threaded_build_is_refused_by_name() {
        let mut bytes = publish(&v3_14::MAP);
        put(&mut bytes, FREE_THREADED, 1);
        assert_eq!(
            layout_from(&v3_14::MAP, &bytes),
            Err(Unsupported::FreeThreaded)
        );
        put(&mut bytes, FREE_THREADED, 2);
        assert_eq!(
            layout_from(&v3_14::MAP, &bytes),
            Err(Unsupported::DebugOffsets {
                what: "free-threaded flag"
            })
        );
    }

    #[test]
    fn a_truncated_struct_is_refused_at_every_length() {
        for map in MAPS {
            let bytes = publish(map);
            for length in 0..bytes.len() {
                assert!(
                    layout_from(map, &bytes[..length]).is_err(),
                    "{length} bytes of {:?}",
                    map.version
                );
            }
        }
    }

    #[test]
    fn any_single_number_gone_wild_is_refused() {
        for map in MAPS {
            for (at, _) in numbers(map) {
                for wild in [u64::MAX, 1 << 40, 1 << 20, i64::MAX as u64] {
                    let mut bytes = publish(map);
                    put(&mut bytes, at, wild);
                    assert!(
                        layout_from(map, &bytes).is_err(),
                        "{wild:#x} at {at} of {:?}",
                        map.version
                    );
                }
            }
        }
    }

    #[test]
    fn a_struct_of_zeros_or_with_unaligned_or_shared_places_is_refused() {
        for map in MAPS {
            let mut zeros = publish(map);
            zeros[24..].fill(0);
            assert!(layout_from(map, &zeros).is_err());
            for (at, value) in [
                (map.frame_previous, 9),
                (map.frame_previous, 56),
                (map.code_name, 112),
                (map.code_name, 8),
                (map.code_firstlineno, 70),
            ] {
                let mut bytes = publish(map);
                put(&mut bytes, at, value);
                assert!(
                    layout_from(map, &bytes).is_err(),
                    "{value} at {at} of {:?}",
                    map.version
                );
            }
        }
    }
}
