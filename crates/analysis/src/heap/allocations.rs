//! Finds the allocation stacks of the objects of a snapshot in a recording of the same process.
//!
//! The recording is replayed up to the time of the snapshot. An object lies in the block that was alive at its address
//! then. A snapshot taken during the recording stores its position in the order of events. Any other recording is cut
//! at the time of the walk: the program was paused, so every time within the walk gives the same blocks. If Python's
//! own allocators were not recorded, small objects lie in large blocks that they share. The stacks of such blocks are
//! not those of the objects, so these objects get no stack.

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use heaptide_capture::heap::{AllocationFrame, AllocationStacks, HeapHeader, HeapSnapshot};
use heaptide_capture::{Capture, DecodedChunk, Frame, OpAction};
use heaptide_tally::replay_until;
use rustc_hash::FxHashMap;

use crate::files;
use crate::symbols::names::Resolver;

/// The maximum bytes of a block beyond its object: the collector's header, words for dict and weak references, rounding.
const MAX_OVERHEAD: u64 = 64;

/// The reason why a recording cannot be joined with a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    OtherProcess,
    /// The recording began after the snapshot.
    Later,
    /// The capture holds sums instead of events.
    Summed,
}

/// The capture that was being written when the snapshot at `path` was taken: at its original path, or next to the snapshot.
pub fn recording_of(header: &HeapHeader, path: &Path) -> Option<PathBuf> {
    let original = PathBuf::from(&header.recording.as_ref()?.path);
    let beside = original.file_name().map(|name| path.with_file_name(name));
    [Some(original), beside]
        .into_iter()
        .flatten()
        .find(|path| files::exists(path))
}

/// The allocation stacks from the capture at `path`, or an error message.
pub fn join_file(snapshot: &HeapSnapshot, path: &Path) -> Result<AllocationStacks, String> {
    let capture = files::open_capture(path).map_err(|error| error.to_string())?;
    let path = path.display();
    Err(match join(snapshot, &capture) {
        Ok((stacks, n_found)) if n_found > 0 => return Ok(stacks),
        Ok(_) => format!(
            "{path} has none of these objects: record the program with --objects from its start"
        ),
        Err(Mismatch::OtherProcess) => format!(
            "{path} is a recording of another process: name the recording of process {}",
            snapshot.header.pid
        ),
        Err(Mismatch::Later) => format!(
            "{path} was started after the snapshot: take the snapshot while the program is recorded"
        ),
        Err(Mismatch::Summed) => format!(
            "{path} holds sums instead of single blocks: record without --aggregate to get the allocation sites of objects"
        ),
    })
}

/// The point at which the replay of a recording ends.
#[derive(Clone, Copy)]
enum Cut {
    /// Before the first segment with this number or a greater one.
    Segment(u64),
    /// This many nanoseconds after the start of the recording.
    Time(u64),
}

fn cut(header: &HeapHeader, capture: &Capture) -> Result<Cut, Mismatch> {
    if !header.identity().is_same(&capture.header.identity()) {
        return Err(Mismatch::OtherProcess);
    }
    // `taken_unix_ns` is the end of the walk. A fork has the state at the start of the walk; otherwise the program was
    // paused during the walk, and the middle is safely within the pause.
    let back_ns = if header.forked {
        header.walk_ns
    } else {
        header.walk_ns / 2
    };
    let moment = header.taken_unix_ns.saturating_sub(back_ns);
    let Some(elapsed) = moment.checked_sub(capture.header.started_unix_ns) else {
        return Err(Mismatch::Later);
    };
    if capture.checkpoint.is_some() {
        return Err(Mismatch::Summed);
    }
    let name = |path: &Path| path.file_name().map(ToOwned::to_owned);
    Ok(match &header.recording {
        Some(position) if name(Path::new(&position.path)) == name(&capture.path) => {
            Cut::Segment(position.segment)
        }
        _ => Cut::Time(elapsed),
    })
}

/// The stacks that allocated the snapshot's objects, and the number of objects with a stack.
pub fn join(
    snapshot: &HeapSnapshot,
    capture: &Capture,
) -> Result<(AllocationStacks, usize), Mismatch> {
    let cut = cut(&snapshot.header, capture)?;
    let mut live = Live::default();
    replay_until(capture, &mut |_| {}, &mut |chunk, ops| {
        live.apply(capture, chunk, ops, cut)
    });
    let blocks = live.blocks();
    let objects = &snapshot.objects;
    let of_objects: Vec<u32> = (0..objects.len())
        .map(|at| {
            let address = objects.addresses[at];
            let bytes = objects.sizes[at].saturating_add(objects.extras[at]);
            let after = blocks.partition_point(|&(start, ..)| start <= address);
            match after.checked_sub(1).map(|at| blocks[at]) {
                Some((start, size, stack))
                    if address < start.saturating_add(size) && size <= bytes + MAX_OVERHEAD =>
                {
                    stack
                }
                _ => 0,
            }
        })
        .collect();
    let n_found = of_objects.iter().filter(|&&stack| stack != 0).count();
    Ok((live.stacks.named(capture, &of_objects), n_found))
}

#[derive(Default)]
struct Live {
    stacks: Stacks,
    /// By address: size and stack.
    blocks: FxHashMap<u64, (u64, u32)>,
    /// The last block that each stream freed, in case the free is undone.
    released: FxHashMap<u32, (u64, (u64, u32))>,
    /// Stacks of the current chunk's nodes, by stream.
    of_nodes: FxHashMap<u32, (u32, Vec<u32>)>,
}

impl Live {
    fn apply(
        &mut self,
        capture: &Capture,
        chunk: &DecodedChunk,
        ops: Range<usize>,
        cut: Cut,
    ) -> ControlFlow<()> {
        let stream = chunk.head.stream;
        let known = self.of_nodes.entry(stream).or_default();
        if known.0 != chunk.head.number || known.1.len() != chunk.nodes.len() {
            *known = (chunk.head.number, self.stacks.of_nodes(chunk));
        }
        let n_before = before(capture, chunk, &ops, cut);
        for op in &chunk.ops[ops.start..ops.start + n_before] {
            match op.action {
                OpAction::Alloc => {
                    let stack = known.1.get(op.node as usize).copied().unwrap_or(0);
                    self.blocks.insert(op.address, (op.size, stack));
                }
                OpAction::Free | OpAction::FreeRange => {
                    if let Some(block) = self.blocks.remove(&op.address) {
                        self.released.insert(stream, (op.address, block));
                    }
                }
                OpAction::JobEnd => {}
                OpAction::Unfree => {
                    if let Some((address, block)) = self.released.remove(&stream) {
                        self.blocks.insert(address, block);
                    }
                }
            }
        }
        if n_before < ops.len() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Start, size and stack, by start.
    fn blocks(&self) -> Vec<(u64, u64, u32)> {
        let blocks = self.blocks.iter();
        let mut blocks: Vec<(u64, u64, u32)> = blocks
            .map(|(&start, &(size, stack))| (start, size, stack))
            .collect();
        blocks.sort_unstable();
        blocks
    }
}

/// The number of these operations that come before the cut. Operations are in order.
fn before(capture: &Capture, chunk: &DecodedChunk, ops: &Range<usize>, cut: Cut) -> usize {
    let first_after = match cut {
        Cut::Segment(number) => chunk
            .segments
            .iter()
            .find(|segment| segment.sequence >= number)
            .map(|segment| segment.first_op),
        Cut::Time(ns) => chunk
            .times
            .iter()
            .find(|mark| capture.registry.elapsed_ns(mark.time) >= ns)
            .map(|mark| mark.first_op),
    };
    let end = first_after.map_or(ops.end, |op| (op as usize).clamp(ops.start, ops.end));
    end - ops.start
}

/// All stacks as one tree: each refers to its caller. Number 0 is the empty stack.
struct Stacks {
    nodes: Vec<(u32, Frame)>,
    known: FxHashMap<(u32, Frame), u32>,
}

impl Default for Stacks {
    fn default() -> Self {
        Stacks {
            nodes: vec![(0, Frame::default())],
            known: FxHashMap::default(),
        }
    }
}

impl Stacks {
    /// The stacks of a chunk's nodes; parents come before their children.
    fn of_nodes(&mut self, chunk: &DecodedChunk) -> Vec<u32> {
        let mut stacks = vec![0u32; chunk.nodes.len()];
        for (at, node) in chunk.nodes.iter().enumerate().skip(1) {
            let parent = stacks.get(node.parent as usize).copied().unwrap_or(0);
            let next = self.nodes.len() as u32;
            let stack = *self.known.entry((parent, node.frame)).or_insert(next);
            if stack == next {
                self.nodes.push((parent, node.frame));
            }
            stacks[at] = stack;
        }
        stacks
    }

    /// The stacks with names, without the profiler's own frames.
    fn named(&self, capture: &Capture, of_objects: &[u32]) -> AllocationStacks {
        let codes = &capture.registry.codes;
        let mut resolver = Resolver::new(codes, capture.header.python_version);
        let mut numbers: FxHashMap<Frame, u32> = FxHashMap::default();
        let mut made = AllocationStacks {
            of_objects: of_objects.to_vec(),
            stacks: vec![Vec::new(); self.nodes.len()],
            frames: Vec::new(),
        };
        let mut used = vec![false; self.nodes.len()];
        for &stack in of_objects {
            used[stack as usize] = true;
        }
        for (stack, is_used) in used.into_iter().enumerate().skip(1) {
            if !is_used {
                continue;
            }
            let mut at = stack as u32;
            while at != 0 {
                let (parent, frame) = self.nodes[at as usize];
                at = parent;
                let Some(code) = codes.get(&frame.code) else {
                    continue;
                };
                let own = &capture.header.own_paths;
                if own.iter().any(|path| code.file.starts_with(path.as_str())) {
                    continue;
                }
                let number = *numbers.entry(frame).or_insert_with(|| {
                    made.frames.push(AllocationFrame {
                        function: code.name.clone(),
                        file: code.file.clone(),
                        line: u32::try_from(resolver.line(frame)).unwrap_or(0),
                    });
                    made.frames.len() as u32 - 1
                });
                made.stacks[stack].push(number);
            }
            made.stacks[stack].reverse();
        }
        made
    }
}
