//! Allocation stacks in V8's format: functions, and a tree of calls.

use std::io::{self, Write};

use heaptide_analysis::heap::Heap;
use heaptide_analysis::interner::Interner;
use rustc_hash::FxHashMap;

/// A call: its function, the objects that it allocated, and the calls that it made.
#[derive(Default)]
struct Call {
    function: u32,
    count: u64,
    bytes: u64,
    children: Vec<u32>,
}

#[derive(Default)]
pub struct Traces {
    /// Name, file and line of each function; texts by number.
    functions: Vec<(u32, u32, u32)>,
    /// The first is the root.
    calls: Vec<Call>,
    /// By the stack's number in the snapshot.
    call_of_stack: Vec<u32>,
    of_objects: Vec<u32>,
}

impl Traces {
    pub fn new(heap: &Heap, texts: &mut Interner<String>) -> Traces {
        let Some(stacks) = heap.stacks() else {
            return Traces::default();
        };
        let mut traces = Traces {
            functions: vec![(texts.number_of("(root)"), texts.number_of(""), 0)],
            calls: vec![Call::default()],
            ..Traces::default()
        };
        for frame in &stacks.frames {
            let function = (
                texts.number_of(&frame.function),
                texts.number_of(&frame.file),
                frame.line,
            );
            traces.functions.push(function);
        }
        let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        for stack in &stacks.stacks {
            let mut at = 0;
            for &frame in stack {
                let next = traces.calls.len() as u32;
                let call = *known.entry((at, frame)).or_insert(next);
                if call == next {
                    traces.calls[at as usize].children.push(next);
                    traces.calls.push(Call {
                        // The first function is that of the root.
                        function: frame + 1,
                        ..Call::default()
                    });
                }
                at = call;
            }
            traces.call_of_stack.push(at);
        }
        traces.of_objects = stacks.of_objects.clone();
        for (object, &stack) in stacks.of_objects.iter().enumerate() {
            let call = traces.call_of_stack.get(stack as usize).copied();
            let call = &mut traces.calls[call.unwrap_or(0) as usize];
            call.count += 1;
            call.bytes += heap.bytes(object as u32);
        }
        traces
    }

    pub fn n_functions(&self) -> usize {
        self.functions.len()
    }

    /// The number of the call that allocated an object; 0 if unknown.
    pub fn node_of(&self, object: u32) -> u32 {
        let stack = self.of_objects.get(object as usize).copied().unwrap_or(0);
        match self.call_of_stack.get(stack as usize) {
            // Calls are numbered from 1; the first is the root, which allocates nothing.
            Some(&call) if call > 0 => call + 1,
            _ => 0,
        }
    }

    pub fn write_functions(&self, out: &mut dyn Write) -> io::Result<()> {
        for (at, (name, file, line)) in self.functions.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            writeln!(out, "{comma}{at},{name},{file},{at},{line},0")?;
        }
        Ok(())
    }

    /// Writes the tree in nested lists, without recursion: stacks may be deep.
    pub fn write_tree(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.calls.is_empty() {
            return Ok(());
        }
        let begin = |out: &mut dyn Write, call: u32| {
            let own = &self.calls[call as usize];
            write!(
                out,
                "{},{},{},{},[",
                call + 1,
                own.function,
                own.count,
                own.bytes
            )
        };
        begin(out, 0)?;
        let mut path = vec![(0u32, 0usize)];
        while let Some((call, next)) = path.last_mut() {
            match self.calls[*call as usize].children.get(*next) {
                Some(&child) => {
                    if *next > 0 {
                        out.write_all(b",")?;
                    }
                    *next += 1;
                    begin(out, child)?;
                    path.push((child, 0));
                }
                None => {
                    out.write_all(b"]")?;
                    path.pop();
                }
            }
        }
        Ok(())
    }
}
