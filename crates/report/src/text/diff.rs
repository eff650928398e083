//! `heaptide diff`: the totals first, then the stacks that changed most.

use std::io::{self, Write};

use heaptide_analysis::Measure;
use heaptide_analysis::model::{Change, Diff, DiffSide, DiffStack};

use super::mode::mode;
use super::stats::location;
use super::table::{FirstColumn, Row, Table};
use super::{Style, notes};
use crate::units::{change_percent, count, signed_size, size};

/// The maximum number of callers that are named after a location; more would not fit on a line.
const MAX_CALLERS: usize = 3;

pub struct Options {
    /// The number of stacks to list.
    pub max_rows: usize,
    /// `None` for lines of any length.
    pub max_width: Option<usize>,
    pub style: Style,
}

pub fn diff(out: &mut dyn Write, diff: &Diff, options: &Options) -> io::Result<()> {
    let sides = [(&diff.before, "before"), (&diff.after, "after")];
    let incomplete = sides.iter().flat_map(|(side, name)| {
        let notes = notes::incomplete(&side.quality).into_iter();
        notes.map(move |note| format!("{name}: {note}"))
    });
    for note in comparability(diff).into_iter().chain(incomplete) {
        writeln!(out, "{}", options.style.bold(&note))?;
    }
    whole(diff).write(out, options.max_width, options.style)?;
    let significant: Vec<&DiffStack> = diff
        .stacks
        .iter()
        .filter(|stack| !stack.change.is_noise())
        .collect();
    let n_noise = diff.stacks.len() - significant.len();
    let about = describe(diff.measure);
    if significant.is_empty() {
        let how = if n_noise > 0 {
            "no stack changed by more than its noise"
        } else {
            "no stack changed"
        };
        writeln!(out, "\n{how}, {about}")?;
    } else {
        let heading = format!("Largest changes, {about}");
        writeln!(out, "\n{}", options.style.bold(&heading))?;
        let is_sampled = is_sampled(diff);
        let shown = significant.iter().take(options.max_rows);
        let table = Table {
            titles: titles("Where", is_sampled),
            rows: shown
                .map(|stack| stack_row(diff, stack, is_sampled))
                .collect(),
            first_column: FirstColumn::Wraps,
        };
        table.write(out, options.max_width, options.style)?;
    }
    if significant.len() > options.max_rows {
        let (n_more, n_all) = (significant.len() - options.max_rows, significant.len());
        writeln!(out, "{n_more} more stacks changed: -n {n_all} shows all")?;
    }
    if n_noise > 0 {
        writeln!(
            out,
            "{n_noise} stacks changed by no more than the sampling error (95%) and are not listed"
        )?;
    }
    for (side, name) in sides {
        let moment = notes::heading(&side.quality, diff.measure);
        for note in moment
            .into_iter()
            .chain(notes::other_warnings(&side.quality))
        {
            writeln!(out, "{name}: {note}")?;
        }
    }
    Ok(())
}

/// Warnings that concern the whole comparison: its two sides were recorded in different modes.
pub fn comparability(diff: &Diff) -> Vec<String> {
    if diff.has_equal_modes() {
        return Vec::new();
    }
    let modes = |side: &DiffSide| {
        let modes: Vec<String> = side.modes.iter().copied().map(mode).collect();
        modes.join(" and ")
    };
    vec![format!(
        "the two sides were recorded in different modes (before: {}; after: {}), so their sizes and counts cannot be \
         compared: record both in the same mode",
        modes(&diff.before),
        modes(&diff.after)
    )]
}

/// The measure in a heading, after a comma.
pub fn describe(measure: Measure) -> &'static str {
    match measure {
        Measure::Peak => "at the peak",
        Measure::Leaked => "alive at the end",
        Measure::Total => "allocated in total",
        Measure::Temporary => "freed at once",
    }
}

fn is_sampled(diff: &Diff) -> bool {
    let sides = [&diff.before, &diff.after];
    sides.iter().any(|side| side.quality.sampling.is_some())
}

fn titles(first: &str, is_sampled: bool) -> Vec<String> {
    let noise = is_sampled.then_some("±");
    let titles = [first, "Before", "After", "Change"]
        .into_iter()
        .chain(noise);
    titles.chain(["Change %"]).map(str::to_owned).collect()
}

fn whole(diff: &Diff) -> Table {
    let is_sampled = is_sampled(diff);
    let mut rows: Vec<Row> = [
        ("peak", Measure::Peak),
        ("alive at the end", Measure::Leaked),
        ("allocated in total", Measure::Total),
    ]
    .into_iter()
    .filter(|&(_, measure)| diff.knows(measure))
    .map(|(name, measure)| row(name.to_owned(), &diff.whole(measure), is_sampled))
    .collect();
    let mut plain = |name: &str, before: u64, after: u64, text: fn(u64) -> String| {
        let change = after as i64 - before as i64;
        let sign = if change < 0 { "-" } else { "+" };
        let mut cells = vec![
            name.to_owned(),
            text(before),
            text(after),
            format!("{sign}{}", text(change.unsigned_abs())),
        ];
        cells.extend(is_sampled.then(String::new));
        cells.push(change_percent(before, change));
        rows.push(Row {
            shares: vec![None; cells.len()],
            cells,
        });
    };
    if diff.knows(Measure::Total) {
        plain(
            "allocations",
            diff.before.total.count,
            diff.after.total.count,
            count,
        );
    }
    if let (Some(before), Some(after)) = (
        diff.before.resident_peak_bytes,
        diff.after.resident_peak_bytes,
    ) {
        plain("largest resident size", before, after, size);
    }
    Table {
        titles: titles("", is_sampled),
        rows,
        first_column: FirstColumn::Wraps,
    }
}

fn row(name: String, change: &Change, is_sampled: bool) -> Row {
    let mut cells = vec![
        name,
        size(change.before.bytes),
        size(change.after.bytes),
        signed_size(change.bytes()),
    ];
    cells.extend(is_sampled.then(|| size(change.error_bytes().round() as u64)));
    cells.push(change_percent(change.before.bytes, change.bytes()));
    Row {
        shares: vec![None; cells.len()],
        cells,
    }
}

fn stack_row(diff: &Diff, stack: &DiffStack, is_sampled: bool) -> Row {
    let mut locations = diff.locations_of(stack);
    let first = match locations.next() {
        Some(at) if diff.by_line => format!("{} at {}:{}", at.function, at.file, at.line),
        Some(at) => format!("{} at {}", at.function, at.file),
        None => location(None),
    };
    let callers = locations.by_ref().take(MAX_CALLERS);
    let mut name = [first.as_str()]
        .into_iter()
        .chain(callers.map(|at| &*at.function))
        .collect::<Vec<_>>()
        .join(" ← ");
    if locations.next().is_some() {
        name.push_str(" ← …");
    }
    row(name, &stack.change, is_sampled)
}
