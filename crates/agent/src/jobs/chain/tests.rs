//! Compares sites with the stacks of a fake thread that calls, returns and goes to other lines at random.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::cpython::CurrentFrame;
use crate::cpython::tables::v3_12;

const LAYOUT: Layout = Layout {
    current_frame: CurrentFrame::Direct(0),
    ..v3_12::LAYOUT
};
const SHIM: usize = 3 << 48;

type Frame = [AtomicUsize; 10];

/// A thread whose frames lie at fixed addresses, one for each depth, so that calls reuse them.
struct FakeThread {
    memory: Vec<Frame>,
    /// The first word is the address of the innermost frame.
    state: Frame,
    /// The function, or 0 for a shim, and the line of each frame.
    stack: Vec<(usize, usize)>,
}

impl FakeThread {
    fn new(max_depth: usize) -> FakeThread {
        FakeThread {
            memory: (0..max_depth).map(|_| Frame::default()).collect(),
            state: Frame::default(),
            stack: Vec::new(),
        }
    }

    fn address(&self, depth: usize) -> usize {
        match depth {
            0 => 0,
            _ => self.memory[depth - 1].as_ptr() as usize,
        }
    }

    fn set_leaf(&self) {
        self.state[0].store(self.address(self.stack.len()), Ordering::Relaxed);
    }

    fn call(&mut self, function: usize, line: usize) {
        let frame = &self.memory[self.stack.len()];
        frame[LAYOUT.frame_previous / 8].store(self.address(self.stack.len()), Ordering::Relaxed);
        frame[8].store(if function == 0 { SHIM } else { 0 }, Ordering::Relaxed);
        self.stack.push((function, 0));
        self.go_to(line);
        self.set_leaf();
    }

    fn go_to(&mut self, line: usize) {
        let Some((function, now)) = self.stack.last_mut() else {
            return;
        };
        *now = line;
        let code = *function << 16;
        let instruction = code + LAYOUT.code_bytes + 2 * (*function * 100 + line);
        let frame = &self.memory[self.stack.len() - 1];
        frame[LAYOUT.frame_code / 8].store(code, Ordering::Relaxed);
        frame[LAYOUT.frame_instr / 8].store(instruction, Ordering::Relaxed);
    }

    fn finish(&mut self) {
        self.stack.pop();
        self.set_leaf();
    }

    /// The frames of the site, innermost first.
    fn expected(&self) -> Vec<(usize, usize)> {
        let frames = self.stack.iter().rev().filter(|frame| frame.0 != 0);
        frames.take(MAX_FRAMES).copied().collect()
    }

    fn site(&self, chain: &mut Chain, sites: &mut Sites) -> u32 {
        // SAFETY: the state and the frames that it leads to are alive and have the fields of the layout.
        unsafe { chain.site(&LAYOUT, self.state.as_ptr() as usize, sites) }
    }
}

fn empty() -> Box<Chain> {
    // SAFETY: zero bytes are the empty chain.
    unsafe { Box::<Chain>::new_zeroed().assume_init() }
}

#[test]
fn each_stack_has_one_site_however_the_stack_changes_between_events() {
    let mut thread = FakeThread::new(MAX_ENTRIES + 200);
    let (mut chain, mut sites) = (empty(), Sites::default());
    let mut by_frames: HashMap<Vec<(usize, usize)>, u32> = HashMap::new();
    let mut random = 1u64;
    let mut next = move |limit: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % limit
    };
    for round in 0..9 {
        // Rounds with shallow, with deep, and with very deep stacks.
        let target = [8, 40, MAX_ENTRIES + 150][round % 3];
        for _ in 0..1500 {
            for _ in 0..next(6) {
                let depth = thread.stack.len();
                if depth < target && next(target) >= depth / 2 {
                    thread.call(next(5), 1 + next(3));
                } else if depth > 0 {
                    thread.finish();
                }
            }
            thread.go_to(1 + next(3));
            if thread.stack.is_empty() {
                assert_eq!(thread.site(&mut chain, &mut sites), 0);
                continue;
            }
            let site = thread.site(&mut chain, &mut sites);
            let expected = *by_frames.entry(thread.expected()).or_insert(site);
            assert_eq!(site, expected);
        }
    }
    let mut unique: Vec<u32> = by_frames.values().copied().collect();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), by_frames.len(), "two stacks share a site");
}

#[test]
fn a_caller_that_is_called_from_another_line_makes_another_site() {
    let mut thread = FakeThread::new(4);
    let (mut chain, mut sites) = (empty(), Sites::default());
    let mut sites_of = Vec::new();
    for line in [1, 2, 1] {
        thread.call(1, line);
        thread.call(2, 1);
        thread.call(3, 1);
        sites_of.push(thread.site(&mut chain, &mut sites));
        thread.finish();
        thread.finish();
        thread.finish();
    }
    assert_ne!(sites_of[0], sites_of[1]);
    assert_eq!(sites_of[0], sites_of[2]);
}
