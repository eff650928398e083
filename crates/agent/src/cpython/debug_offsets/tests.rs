//! Valid published structs become layouts; broken ones are refused.

use super::*;
use crate::cpython::tables::{v3_13, v3_14, v3_15};

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
fn a_valid_struct_becomes_its_layout() {
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
fn a_free_threaded_build_is_refused_with_its_own_reason() {
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
fn any_single_number_that_is_far_too_large_is_refused() {
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
fn a_struct_of_zeros_or_with_unaligned_or_shared_offsets_is_refused() {
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
