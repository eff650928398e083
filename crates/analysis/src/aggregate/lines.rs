//! Functions line by line, from an ordinary capture: the bytes that each line and its callees allocated.

use std::collections::BTreeMap;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::quality;
use crate::load::Session;
use crate::model::{LineHeap, LineRow, LineTable, Lines};
use crate::symbols::definitions::{Definition, enclosing};
use crate::symbols::{Modules, Sources};

/// Selects the functions to show.
#[derive(Clone, Debug, Default)]
pub struct LineChoice {
    /// Functions of this name; by default the program's largest functions.
    pub function: Option<String>,
    /// Whether to include functions of libraries.
    pub libraries: bool,
    pub max_functions: usize,
}

const MODULE: &str = "<module>";

/// The bytes that each line of a file allocated, and the functions of the lines.
#[derive(Default)]
struct FileLines {
    heap: BTreeMap<u32, LineHeap>,
    functions: BTreeMap<(Rc<str>, u32), ()>,
}

pub fn lines(session: &Session, choice: &LineChoice) -> Lines {
    let mut files = sum_up(session);
    if choice.function.is_none() && !choice.libraries {
        let of_program = |file: &str| {
            let mut headers = session.processes.iter().map(|process| &process.header);
            headers.any(|header| is_of_program(file, &Modules::new(header)))
        };
        files.retain(|file, _| of_program(file));
    }
    let ended = session.processes.iter();
    let ended = ended
        .map(|process| process.unix_ns(process.end_units()))
        .max();
    let directory = session
        .processes
        .first()
        .map(|process| &process.header.working_directory);
    let mut sources = Sources::new(directory.map_or("", |path| path), ended.unwrap_or(0), 0);
    let mut tables: Vec<(u64, u64, LineTable)> = Vec::new();
    for (file, seen) in &files {
        for table in tables_of(file, seen, sources.lines(file), choice.function.as_deref()) {
            let sum = |bytes: fn(&LineHeap) -> u64| {
                let rows = table.rows.iter().filter_map(|row| row.heap.as_ref());
                rows.map(bytes).fold(0, u64::saturating_add)
            };
            tables.push((
                sum(|heap| heap.peak_bytes),
                sum(|heap| heap.total_bytes),
                table,
            ));
        }
    }
    tables.sort_by(|one, other| {
        let by_size = (other.0, other.1).cmp(&(one.0, one.1));
        let key =
            |table: &LineTable| (table.file.clone(), table.rows.first().map(|row| row.number));
        by_size.then_with(|| key(&one.2).cmp(&key(&other.2)))
    });
    let n_functions = tables.len();
    let shown = tables.into_iter().take(choice.max_functions.max(1));
    Lines {
        tables: shown.map(|(_, _, table)| table).collect(),
        n_functions,
        quality: quality(session),
    }
}

fn is_of_program(file: &str, modules: &Modules) -> bool {
    let installed = ["/site-packages/", "/dist-packages/"];
    modules.of(file).is_some() && !installed.iter().any(|folder| file.contains(folder))
}

/// A block counts once for every line on its stack, even if the line occurs several times.
fn sum_up(session: &Session) -> FxHashMap<Rc<str>, FileLines> {
    let mut files: FxHashMap<Rc<str>, FileLines> = FxHashMap::default();
    for process in &session.processes {
        for site in &process.sums.sites {
            let mut counted = FxHashSet::default();
            for id in process.frames(site.stack) {
                let at = session.names.get(id);
                if at.is_native() {
                    continue;
                }
                let Ok(line) = u32::try_from(at.line) else {
                    continue;
                };
                if line == 0 {
                    continue;
                }
                let seen = files.entry(at.file.clone()).or_default();
                // Inserted before the check below: in Python 3.11 a comprehension is a separate function on a line of
                // the enclosing function, and both functions are needed.
                seen.functions.insert((at.function.clone(), line), ());
                if !counted.insert((at.file.clone(), line)) {
                    continue;
                }
                let heap = seen.heap.entry(line).or_default();
                heap.total_bytes = heap.total_bytes.saturating_add(site.total.bytes);
                heap.n_allocations = heap.n_allocations.saturating_add(site.total.count);
                heap.peak_bytes = heap.peak_bytes.saturating_add(site.peak.bytes);
                heap.leaked_bytes = heap.leaked_bytes.saturating_add(site.live.bytes);
            }
        }
    }
    files
}

/// One table for every function of a file. Lambdas and comprehensions belong to the function they are written in.
fn tables_of(
    file: &str,
    seen: &FileLines,
    source: Option<&[Box<str>]>,
    wanted: Option<&str>,
) -> Vec<LineTable> {
    let mut defined: BTreeMap<Definition, Rc<str>> = BTreeMap::new();
    let mut loose: BTreeMap<Rc<str>, Vec<u32>> = BTreeMap::new();
    for (function, line) in seen.functions.keys() {
        if wanted.is_some_and(|wanted| wanted != &**function) {
            continue;
        }
        match source.and_then(|lines| enclosing(lines, function, *line)) {
            Some(definition) => {
                defined.insert(definition, function.clone());
            }
            None => loose.entry(function.clone()).or_default().push(*line),
        }
    }
    let text = |line: u32| {
        let text = source.and_then(|lines| lines.get(line as usize - 1));
        text.map_or(String::new(), |text| text.to_string())
    };
    let row = |line: u32| LineRow {
        number: line,
        text: text(line),
        visits: None,
        heap: seen.heap.get(&line).copied(),
    };
    let is_defined = |line: u32| {
        let mut known = defined.keys();
        known.any(|one| (one.first..=one.last).contains(&line))
    };
    let table = |function: &str, rows: Vec<LineRow>| LineTable {
        file: file.to_owned(),
        function: function.to_owned(),
        rows,
    };
    let mut tables: Vec<LineTable> = defined
        .iter()
        .map(|(one, function)| table(function, (one.first..=one.last).map(row).collect()))
        .collect();
    for (function, mut lines) in loose {
        if &*function != MODULE && source.is_some() {
            lines.retain(|&line| !is_defined(line));
        }
        lines.sort_unstable();
        if !lines.is_empty() {
            tables.push(table(&function, lines.into_iter().map(row).collect()));
        }
    }
    tables
}
