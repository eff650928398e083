//! Which frames of a stack reports visible_frames, under which names.
//!
//! The program's own, and those of libraries that it called: not the profiler's, nor what started the profiler, nor how the
//! interpreter came to run Python.

use heaptide_capture::{Capture, Registry};
use heaptide_tally::{StackId, Stacks};
use rustc_hash::FxHashSet;

use crate::filter::Filter;
use crate::symbols::names::Resolver;
use crate::symbols::native::short_name;
use crate::symbols::{Location, LocationId, Names, NativeNames, is_import_system};

/// A stack as reports show it.
#[derive(Clone, Copy)]
pub(crate) struct VisibleFrame {
    pub(super) parent: u32,
    /// `None` for the empty stack and for frames that are not shown.
    pub(super) location: Option<LocationId>,
    part: Part,
}

/// Which part of a stack a frame belongs to, from the root on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The profiler's own frames, or none at all.
    Own,
    /// What the profiler used to start the program.
    Launch,
    Program,
}

/// Names for all stacks. The profiler's own frames at the root are not shown, nor what started the profiler before them
/// and what it used to start the program behind them: the program would not have them if it ran alone.
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
    let mut shown = vec![root];
    // What may be a launcher is one only if the profiler's own frames follow; until then it is the program.
    let mut may_be_launcher = vec![true];
    let mut has_python = vec![false];
    // Of native frames with inlined functions: all but the innermost, by stack.
    let mut outer: Vec<(usize, Vec<LocationId>)> = Vec::new();
    for (id, stack) in stacks.iter() {
        let parent = stack.parent.0 as usize;
        if let Some(module) = capture.registry.modules.get(&stack.frame.code) {
            let part = shown[parent].part;
            // How the interpreter came to run Python is not what anybody asks.
            let is_start = is_plumbing(&module.path) && leads_to_python[id.0 as usize];
            let is_shown = match has_python[parent] {
                true => part == Part::Program,
                false => !is_start,
            };
            let mut functions: Vec<LocationId> = match is_shown {
                true => natives
                    .get(stack.frame)
                    .iter()
                    .map(|name| names.native(name, &module.path))
                    .collect(),
                false => Vec::new(),
            };
            let location = functions.pop();
            if !functions.is_empty() {
                outer.push((shown.len(), functions));
            }
            shown.push(VisibleFrame {
                parent: stack.parent.0,
                location,
                part,
            });
            may_be_launcher.push(may_be_launcher[parent]);
            has_python.push(has_python[parent]);
            continue;
        }
        let location = resolver.locate(stack.frame, names);
        let at = names.get(location);
        let follows_launcher = may_be_launcher[parent];
        let part = match shown[parent].part {
            _ if follows_launcher && is_own(&at.file) => {
                hide(&mut shown, parent);
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
        // Deeper in a stack, what our own code did for the program counts as its caller's.
        let is_shown = part == Part::Program && !is_own(&at.file) && !is_hidden;
        shown.push(VisibleFrame {
            parent: stack.parent.0,
            location: is_shown.then_some(location),
            part,
        });
    }
    hide_end_of_command(stacks, names, &mut shown);
    for (at, functions) in outer {
        if shown[at].location.is_some() {
            let part = shown[at].part;
            let mut parent = shown[at].parent;
            for location in functions {
                shown.push(VisibleFrame {
                    parent,
                    location: Some(location),
                    part,
                });
                parent = shown.len() as u32 - 1;
            }
            shown[at].parent = parent;
        }
    }
    let n_frames = resolver.n_frames() + natives.len();
    (shown, n_frames as u64)
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

/// Libraries that only bring a thread or the interpreter to its first Python function.
fn is_plumbing(path: &str) -> bool {
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

/// The frames of a stack that are shown, innermost first.
pub(crate) fn frames(
    shown: &[VisibleFrame],
    stack: StackId,
) -> impl Iterator<Item = LocationId> + '_ {
    let mut at = stack.0 as usize;
    std::iter::from_fn(move || {
        loop {
            let shown = shown.get(at).filter(|_| at != 0)?;
            at = shown.parent as usize;
            if shown.location.is_some() {
                return shown.location;
            }
        }
    })
}

/// Hides a stack and all that it was called from.
fn hide(shown: &mut [VisibleFrame], mut at: usize) {
    while at != 0 {
        shown[at].location = None;
        shown[at].part = Part::Own;
        at = shown[at].parent as usize;
    }
}

/// The installed command stands alone in a stack when the program has ended and the command passes on its exit code. That
/// it is ours is known from other stacks, in which the profiler's own frames follow it.
fn hide_end_of_command(stacks: &Stacks, names: &Names, shown: &mut [VisibleFrame]) {
    let of_ours: FxHashSet<u32> = stacks
        .iter()
        .filter(|(id, _)| shown[id.0 as usize].part == Part::Own)
        .map(|(_, stack)| stack.frame.code)
        .collect();
    for (id, stack) in stacks.iter() {
        let at_root = shown[stack.parent.0 as usize].part == Part::Own;
        let at = &mut shown[id.0 as usize];
        let is_hidden = at_root
            && of_ours.contains(&stack.frame.code)
            && at.location.is_some_and(|it| is_command(names.get(it)));
        if is_hidden {
            at.location = None;
            at.part = Part::Own;
        }
    }
}

/// The script that an installer writes for the command.
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
