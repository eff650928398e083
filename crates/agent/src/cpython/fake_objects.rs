//! Strings, code objects, frames and threads that follow a layout, for the tests of this folder.

use super::layout::{BytesLayout, CodeLayout, CurrentFrame, Evaluations, Layout, UnicodeLayout};
use super::tables::{v3_10, v3_11, v3_12};

/// A layout with tagged code pointers, as in 3.14; the real one is read from the interpreter.
pub const TAGGED: Layout = Layout {
    version: (3, 14),
    current_frame: CurrentFrame::Direct(72),
    frame_previous: 8,
    frame_code: 0,
    frame_code_mask: !3,
    frame_instr: 56,
    evaluations: Evaluations::Shims,
    frame_owner: Some(74),
    first_shim_owner: 3,
    instr_is_index: false,
    code_bytes: 208,
    code: CodeLayout {
        type_address: 0,
        basic_size: 208,
        ob_type: 8,
        name: 120,
        qualname: Some(128),
        filename: 112,
        first_line: 68,
        linetable: 136,
        first_traceable: Some(192),
    },
    unicode: UnicodeLayout {
        compact_data: 56,
        ascii_data: 40,
        ..v3_12::LAYOUT.unicode
    },
    bytes: BytesLayout {
        length: 16,
        data: 32,
    },
};

pub const LAYOUTS: [&Layout; 4] = [&v3_10::LAYOUT, &v3_11::LAYOUT, &v3_12::LAYOUT, &TAGGED];

/// Zeroed memory with the alignment of an object.
struct Block(Vec<u64>);

impl Block {
    fn zeroed(bytes: usize) -> Self {
        Self(vec![0; bytes.div_ceil(8) + 1])
    }

    fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (index, &byte) in bytes.iter().enumerate() {
            let (word, shift) = ((at + index) / 8, (at + index) % 8 * 8);
            self.0[word] = self.0[word] & !(0xff << shift) | u64::from(byte) << shift;
        }
    }

    fn put_word(&mut self, at: usize, value: usize) {
        self.put(at, &value.to_le_bytes());
    }

    fn half(&self, at: usize) -> u32 {
        (self.0[at / 8] >> (at % 8 * 8)) as u32
    }
}

/// A string object.
pub struct FakeString {
    object: Block,
    /// Characters of a string that is not compact, kept alive here.
    _separate: Option<Block>,
}

impl FakeString {
    pub fn new(layout: &UnicodeLayout, text: &str) -> Self {
        let (width, units) = units(text);
        if text.is_ascii() {
            Self::build(layout, 1, &units, true, true)
        } else {
            Self::from_units(layout, width, &units)
        }
    }

    /// A string of a subclass: the characters are in a separate block.
    pub fn with_separate_characters(layout: &UnicodeLayout, text: &str) -> Self {
        let (width, units) = units(text);
        Self::build(layout, width, &units, text.is_ascii(), false)
    }

    pub fn from_units(layout: &UnicodeLayout, width: usize, units: &[u32]) -> Self {
        Self::build(layout, width, units, false, true)
    }

    fn build(
        layout: &UnicodeLayout,
        width: usize,
        units: &[u32],
        ascii: bool,
        compact: bool,
    ) -> Self {
        let data: Vec<u8> = units
            .iter()
            .flat_map(|unit| unit.to_le_bytes().into_iter().take(width))
            .collect();
        let mut object = Block::zeroed(layout.compact_data + 8 + data.len());
        let mut state = (width as u32) << layout.kind_mask.trailing_zeros();
        state |= if ascii { layout.ascii_mask } else { 0 }
            | if compact { layout.compact_mask } else { 0 };
        object.put_word(layout.length, units.len());
        object.put(layout.state, &state.to_le_bytes());
        let mut separate = None;
        if !compact {
            let mut block = Block::zeroed(data.len());
            block.put(0, &data);
            object.put_word(layout.compact_data, block.address());
            separate = Some(block);
        } else {
            object.put(
                if ascii {
                    layout.ascii_data
                } else {
                    layout.compact_data
                },
                &data,
            );
        }
        Self {
            object,
            _separate: separate,
        }
    }

    pub fn address(&self) -> usize {
        self.object.address()
    }

    pub fn set_width(&mut self, layout: &UnicodeLayout, width: u32) {
        let state = self.object.half(layout.state) & !layout.kind_mask
            | width << layout.kind_mask.trailing_zeros();
        self.object.put(layout.state, &state.to_le_bytes());
    }

    pub fn set_length(&mut self, layout: &UnicodeLayout, length: usize) {
        self.object.put_word(layout.length, length);
    }

    pub fn set_first_byte(&mut self, layout: &UnicodeLayout, byte: u8) {
        self.object.put(layout.ascii_data, &[byte]);
    }
}

/// The narrowest width that holds the text, as the interpreter chooses it, and its characters.
fn units(text: &str) -> (usize, Vec<u32>) {
    let units: Vec<u32> = text.chars().map(u32::from).collect();
    let width = match units.iter().max() {
        Some(0x1_0000..) => 4,
        Some(0x100..) => 2,
        _ => 1,
    };
    (width, units)
}

/// A code object with its strings and its line table.
pub struct FakeCode {
    /// The layout it was built by, with the address of its type.
    pub layout: Layout,
    object: Block,
    linetable: Block,
    _strings: [FakeString; 3],
}

impl FakeCode {
    pub fn new(
        layout: &Layout,
        name: &str,
        qualname: &str,
        filename: &str,
        first_line: i32,
        linetable: &[u8],
    ) -> Self {
        let mut layout = *layout;
        layout.code.type_address = 0x5000_0000;
        let strings = [name, qualname, filename].map(|text| FakeString::new(&layout.unicode, text));
        let mut table = Block::zeroed(layout.bytes.data + linetable.len());
        table.put_word(layout.bytes.length, linetable.len());
        table.put(layout.bytes.data, linetable);
        let mut object = Block::zeroed(layout.code.basic_size);
        object.put_word(0, 1);
        object.put_word(layout.code.ob_type, layout.code.type_address);
        object.put_word(layout.code.name, strings[0].address());
        if let Some(offset) = layout.code.qualname {
            object.put_word(offset, strings[1].address());
        }
        object.put_word(layout.code.filename, strings[2].address());
        object.put(layout.code.first_line, &first_line.to_le_bytes());
        object.put_word(layout.code.linetable, table.address());
        Self {
            layout,
            object,
            linetable: table,
            _strings: strings,
        }
    }

    pub fn address(&self) -> usize {
        self.object.address()
    }

    pub fn set_references(&mut self, count: usize) {
        self.object.put_word(0, count);
    }

    pub fn set_linetable_length(&mut self, length: usize) {
        self.linetable.put_word(self.layout.bytes.length, length);
    }
}

/// The content of one frame of a fake thread.
#[derive(Clone, Copy)]
pub struct FakeFrame {
    code: usize,
    instr: isize,
    shim: bool,
}

impl FakeFrame {
    /// A Python frame at an offset in bytes into the code's bytecode.
    pub fn python(code: usize, instr: isize) -> Self {
        Self {
            code,
            instr,
            shim: false,
        }
    }

    pub fn shim() -> Self {
        Self {
            code: 0x6000_0000,
            instr: 0,
            shim: true,
        }
    }
}

/// A thread state with its chain of frames.
pub struct FakeThread {
    state: Block,
    _cframe: Block,
    _frames: Vec<Block>,
}

impl FakeThread {
    /// Frames are given innermost first.
    pub fn new(layout: &Layout, frames: &[FakeFrame]) -> Self {
        let mut chain: Vec<Block> = Vec::new();
        for frame in frames.iter().rev() {
            let mut block = Block::zeroed(128);
            block.put_word(
                layout.frame_previous,
                chain.last().map_or(0, Block::address),
            );
            // Bits outside the mask are set, so that a reader without the mask fails.
            block.put_word(layout.frame_code, frame.code | !layout.frame_code_mask);
            if layout.instr_is_index {
                block.put(
                    layout.frame_instr,
                    &((frame.instr / 2) as i32).to_le_bytes(),
                );
                block.put(layout.frame_instr + 4, &[0xaa; 4]);
            } else {
                block.put_word(
                    layout.frame_instr,
                    (frame.code + layout.code_bytes).wrapping_add_signed(frame.instr),
                );
            }
            if let Some(offset) = layout.frame_owner {
                block.put(
                    offset,
                    &[if frame.shim {
                        layout.first_shim_owner
                    } else {
                        0
                    }],
                );
            }
            chain.push(block);
        }
        let innermost = chain.last().map_or(0, Block::address);
        let mut state = Block::zeroed(256);
        let mut record = Block::zeroed(64);
        match layout.current_frame {
            CurrentFrame::Direct(offset) => state.put_word(offset, innermost),
            CurrentFrame::ViaCFrame {
                cframe,
                current_frame,
            } => {
                record.put_word(current_frame, innermost);
                state.put_word(cframe, record.address());
            }
        }
        Self {
            state,
            _cframe: record,
            _frames: chain,
        }
    }

    pub fn address(&self) -> usize {
        self.state.address()
    }
}
