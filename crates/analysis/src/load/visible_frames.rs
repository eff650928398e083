//! Decides which frames of a stack reports show, and resolves their names.
//!
//! Frames of the program and of libraries it called are visible. Hidden are the profiler's own frames, the launcher
//! before them, and the interpreter's start-up. An example, from the root on:
//!
//! ```text
//! _start, main, Py_RunMain      native start-up code that leads to Python: hidden
//! <module> …/bin/heaptide       a launcher, because the profiler's own frames follow: hidden
//! main …/heaptide/__main__.py   the profiler's own: hidden
//! run_path <frozen runpy>       the call that starts the program: hidden
//! <module> job.py               the program: visible, like everything it calls
//! ```
//!
//! A capture of memray's `Tracker` lists the callers of the function that entered the tracker. Their frames are hidden at the
//! root. If one of them allocates after that function has returned, the stack is shown whole.
//!
//! A `JobTracer` allocates while it measures the program. Its stacks have a single frame that names Heaptide, so that no line
//! of the program seems to hold that memory. This also applies to the standard library below the tracer, but not to code of
//! the program, which a traced call or a finalizer runs there.

use heaptide_capture::{Capture, Frame, Registry};
use heaptide_tally::{StackId, Stacks};
use rustc_hash::FxHashSet;

use crate::filter::Filter;
use crate::symbols::names::Resolver;
use crate::symbols::native::short_name;
use crate::symbols::{Location, LocationId, Names, NativeNames, is_import_system};

/// The innermost frame of a stack, as reports show it.
#[derive(Clone, Copy)]
pub(crate) struct VisibleFrame {
    pub(super) parent: u32,
    /// `None` for the empty stack and for hidden frames.
    pub(super) location: Option<LocationId>,
    part: Part,
}

/// The part of a stack that a frame belongs to, from the root on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The profiler's own frames, and the empty stack.
    Own,
    /// The frames with which the profiler starts the program.
    Launch,
    Program,
}

/// Returns the visible frame of every stack, by stack number, and the number of different frames.
///
/// Frames that the program would not have if it ran alone are hidden. Inlined functions of native frames get positions after
/// all stacks.
pub(crate) fn visible_frames(
    stacks: &Stacks,
    capture: &Capture,
    filter: &Filter,
    natives: &NativeNames,
    names: &mut Names,
) -> (Vec<VisibleFrame>, u64) {
    let header = &capture.header;
    let mut resolver = Resolver::new(&capture.registry.codes, header.python_version);
    let is_own = |file: &str| {
        let mut folders = header.own_paths.iter();
        folders.any(|folder| is_below(file, folder))
    };
    let leads_to_python = leads_to_python(stacks, &capture.registry);
    let root = VisibleFrame {
        parent: 0,
        location: None,
        part: Part::Own,
    };
    let mut visible = vec![root];
    // For each stack, whether it may be a launcher. It is one if the profiler's own frames follow, else part of the
    // program.
    let mut may_be_launcher = vec![true];
    let mut has_python = vec![false];
    // For each stack, the caller that a frame of the program would have there: the tracer's frames are left out.
    let mut caller_in_program = vec![0];
    let mut is_tracers = vec![false];
    // For each stack, whether its innermost frame is code of the standard library that the tracer called.
    let mut is_tracers_library = vec![false];
    let is_stdlib = |file: &str| {
        let mut folders = header.stdlib_paths.iter();
        file.starts_with("<frozen ") || folders.any(|folder| is_below(file, folder))
    };
    let own_folders = header.own_paths.iter();
    let tracer_folders: Vec<_> = own_folders
        .map(|it| format!("{}/leaks", it.trim_end_matches('/')))
        .collect();
    let is_tracer = |file: &str| tracer_folders.iter().any(|folder| is_below(file, folder));
    let outer_functions = OuterFunctions::new(capture);
    // For each stack, the number of its frames if all are outer functions.
    let mut n_outer = vec![Some(0)];
    // The functions into which a native frame's innermost function was inlined, by stack.
    let mut inlined_into: Vec<(usize, Vec<LocationId>)> = Vec::new();
    for (id, stack) in stacks.iter() {
        let parent = stack.parent.0 as usize;
        if let Some(module) = capture.registry.modules.get(&stack.frame.code) {
            let part = visible[parent].part;
            // Native start-up code of the interpreter is not part of the program.
            let is_start = is_start_up(&module.path) && leads_to_python[id.0 as usize];
            let is_visible = match has_python[parent] {
                true => part == Part::Program,
                false => !is_start,
            };
            let mut functions: Vec<LocationId> = match is_visible {
                true => natives
                    .get(stack.frame)
                    .iter()
                    .map(|name| names.native(name, &module.path))
                    .collect(),
                false => Vec::new(),
            };
            let location = functions.pop();
            if !functions.is_empty() {
                inlined_into.push((visible.len(), functions));
            }
            let (parent_shown, location) = match is_tracers[parent] {
                true => (0, Some(names.own_memory())),
                false => (caller_in_program[parent], location),
            };
            visible.push(VisibleFrame {
                parent: parent_shown,
                location,
                part,
            });
            is_tracers.push(is_tracers[parent]);
            is_tracers_library.push(is_tracers_library[parent]);
            // Native functions may lie between outer functions.
            n_outer.push(n_outer[parent]);
            caller_in_program.push(match is_tracers[parent] {
                true => caller_in_program[parent],
                false => id.0,
            });
            may_be_launcher.push(may_be_launcher[parent]);
            has_python.push(has_python[parent]);
            continue;
        }
        let location = resolver.locate(stack.frame, names);
        let at = names.get(location);
        let follows_launcher = may_be_launcher[parent];
        let part = match visible[parent].part {
            _ if follows_launcher && is_own(&at.file) => {
                hide(&mut visible, parent);
                Part::Own
            }
            Part::Own if is_own(&at.file) => Part::Own,
            Part::Own | Part::Launch if has_python[parent] && is_runpy(&at.file) => Part::Launch,
            _ => Part::Program,
        };
        let is_launcher = part != Part::Own && (is_runpy(&at.file) || is_command(at));
        may_be_launcher.push(follows_launcher && is_launcher);
        has_python.push(true);
        let is_hidden = filter.hide_imports && is_import_system(&at.file);
        // Deeper in a stack, allocations by Heaptide's code count for the frame of the program that called it.
        let is_visible = part == Part::Program && !is_own(&at.file) && !is_hidden;
        // Code that the standard library generates has no file.
        let is_library = is_tracers[parent]
            && (is_stdlib(&at.file) || is_tracers_library[parent] && &*at.file == "<string>");
        // At the root, these frames belong to a worker that Heaptide runs, and the program is below them.
        let is_tracer = part == Part::Program && (is_tracer(&at.file) || is_library);
        let n_before = n_outer[parent];
        n_outer.push(
            n_before
                .filter(|&n| outer_functions.is_next(n, stack.frame))
                .map(|n| n + 1),
        );
        let is_first_inner = n_before.is_some_and(|n| n > 0) && n_outer[id.0 as usize].is_none();
        let caller = if is_first_inner {
            0
        } else {
            caller_in_program[parent]
        };
        visible.push(match is_tracer {
            true => VisibleFrame {
                parent: 0,
                location: Some(names.own_memory()),
                part,
            },
            false => VisibleFrame {
                parent: caller,
                location: is_visible.then_some(location),
                part,
            },
        });
        is_tracers.push(is_tracer);
        is_tracers_library.push(is_tracer && is_library);
        caller_in_program.push(match is_tracer {
            true => caller_in_program[parent],
            false => id.0,
        });
    }
    hide_end_of_command(stacks, names, &mut visible);
    for (at, functions) in inlined_into {
        if visible[at].location.is_some() {
            let part = visible[at].part;
            let mut parent = visible[at].parent;
            for location in functions {
                visible.push(VisibleFrame {
                    parent,
                    location: Some(location),
                    part,
                });
                parent = visible.len() as u32 - 1;
            }
            visible[at].parent = parent;
        }
    }
    let n_frames = resolver.n_frames() + natives.len();
    (visible, n_frames as u64)
}

/// The outer functions that the header lists, and the capture with their code objects.
struct OuterFunctions<'a> {
    functions: Vec<(i32, &'a str, &'a str)>,
    capture: &'a Capture,
}

impl<'a> OuterFunctions<'a> {
    fn new(capture: &'a Capture) -> OuterFunctions<'a> {
        let parse = |text: &'a String| {
            let mut fields = text.splitn(3, '\t');
            let first_line = fields.next()?.parse().ok()?;
            Some((first_line, fields.next()?, fields.next()?))
        };
        let texts = capture.header.outer_functions.iter();
        OuterFunctions {
            functions: texts.map_while(parse).collect(),
            capture,
        }
    }

    /// Whether this frame is the outer function at index `n`.
    fn is_next(&self, n: usize, frame: Frame) -> bool {
        let code = self.capture.registry.codes.get(&frame.code);
        let function = self.functions.get(n).zip(code);
        function.is_some_and(|(&(first_line, name, file), code)| {
            code.first_line == first_line && code.name == name && code.file == file
        })
    }
}

/// For each stack, whether a Python frame was ever called from it.
fn leads_to_python(stacks: &Stacks, registry: &Registry) -> Vec<bool> {
    let mut leads = vec![false; stacks.n_stacks()];
    if registry.modules.is_empty() {
        return leads;
    }
    let all: Vec<_> = stacks.iter().collect();
    for (id, stack) in all.into_iter().rev() {
        let is_python = !registry.modules.contains_key(&stack.frame.code);
        if is_python || leads[id.0 as usize] {
            leads[stack.parent.0 as usize] = true;
        }
    }
    leads
}

/// Whether a library has start-up code, which calls the first Python function of a thread or of the interpreter.
fn is_start_up(path: &str) -> bool {
    const PREFIXES: [&str; 7] = [
        "python",
        "libpython",
        "libc.so",
        "libc-",
        "libpthread",
        "ld-",
        "<",
    ];
    PREFIXES
        .iter()
        .any(|prefix| short_name(path).starts_with(prefix))
}

/// The visible frames of a stack, innermost first.
pub(crate) fn frames(
    visible: &[VisibleFrame],
    stack: StackId,
) -> impl Iterator<Item = LocationId> + '_ {
    let mut at = stack.0 as usize;
    std::iter::from_fn(move || {
        loop {
            let visible = visible.get(at).filter(|_| at != 0)?;
            at = visible.parent as usize;
            if visible.location.is_some() {
                return visible.location;
            }
        }
    })
}

/// Hides a stack and all its callers.
fn hide(visible: &mut [VisibleFrame], mut at: usize) {
    while at != 0 {
        visible[at].location = None;
        visible[at].part = Part::Own;
        at = visible[at].parent as usize;
    }
}

/// Hides the installed command on stacks where it is alone: the program has ended, and the command returns its exit
/// code. Other stacks, where the profiler's own frames follow, show that it is Heaptide's command.
fn hide_end_of_command(stacks: &Stacks, names: &Names, visible: &mut [VisibleFrame]) {
    let own_codes: FxHashSet<u32> = stacks
        .iter()
        .filter(|(id, _)| visible[id.0 as usize].part == Part::Own)
        .map(|(_, stack)| stack.frame.code)
        .collect();
    for (id, stack) in stacks.iter() {
        let at_root = visible[stack.parent.0 as usize].part == Part::Own;
        let at = &mut visible[id.0 as usize];
        let is_hidden = at_root
            && own_codes.contains(&stack.frame.code)
            && at.location.is_some_and(|it| is_command(names.get(it)));
        if is_hidden {
            at.location = None;
            at.part = Part::Own;
        }
    }
}

/// Whether this is the script that an installer writes for the `heaptide` command.
fn is_command(at: &Location) -> bool {
    &*at.function == "<module>" && at.file.ends_with("/heaptide")
}

fn is_below(file: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    let rest = file.strip_prefix(folder);
    !folder.is_empty() && rest.is_some_and(|rest| rest.starts_with('/'))
}

fn is_runpy(file: &str) -> bool {
    file == "<frozen runpy>" || file.ends_with("/runpy.py")
}
