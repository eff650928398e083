//! `heaptide live` without a terminal: the memory of a running program, as text.

use std::io::{self, Write};

use heaptide_analysis::model::Live;
use heaptide_analysis::model::live::{LiveChoice, LiveOrder};

use super::Style;
use super::findings::blocks;
use super::notes::{arenas, missing_rest};
use super::table::{FirstColumn, Row, Table};
use crate::shell;
use crate::units::{binary_size, percent, size};

pub struct Options {
    pub order: LiveOrder,
    /// Whether to list jobs instead of functions.
    pub by_job: bool,
    pub choice: LiveChoice,
    /// `None` for all.
    pub max_rows: Option<usize>,
    /// `None` for lines of any length.
    pub max_width: Option<usize>,
    pub style: Style,
}

pub fn live(out: &mut dyn Write, live: &Live, options: &Options) -> io::Result<()> {
    writeln!(
        out,
        "{}",
        headline(live, if live.is_ended { "ended" } else { "running" })
    )?;
    for note in notes(live) {
        writeln!(out, "{note}")?;
    }
    writeln!(out, "{}", sums(live))?;
    if options.choice.jobs.is_some() {
        let rows = live.job_rows(&options.choice, options.order);
        let bytes = rows.iter().map(|row| row.total_bytes).sum();
        let n_blocks = rows.iter().map(|row| row.count).sum();
        writeln!(out, "chosen jobs: {} in {}", size(bytes), blocks(n_blocks))?;
    }
    let (titles, rows) = match options.by_job {
        true => jobs(live, options),
        false => functions(live, options),
    };
    let table = Table {
        titles,
        rows,
        first_column: FirstColumn::Shortened,
    };
    table.write(out, options.max_width, options.style)
}

fn functions(live: &Live, options: &Options) -> (Vec<String>, Vec<Row>) {
    let rows = live.rows(&options.choice, options.order);
    let n_all = rows.len();
    let shown = rows.iter().take(options.max_rows.unwrap_or(n_all));
    let rows = shown.map(|row| {
        let total = percent(row.total_bytes, live.heap_bytes);
        let own = percent(row.own_bytes, live.heap_bytes);
        Row {
            cells: vec![
                format!("{} at {}", row.function, row.file),
                size(row.total_bytes),
                format!("{total:.2}%"),
                size(row.own_bytes),
                format!("{own:.2}%"),
                row.count.to_string(),
            ],
            shares: vec![None, Some(total), Some(total), Some(own), Some(own), None],
        }
    });
    let titles = ["Location", "Total", "Total %", "Own", "Own %", "Blocks"];
    (titles.map(str::to_owned).to_vec(), rows.collect())
}

fn jobs(live: &Live, options: &Options) -> (Vec<String>, Vec<Row>) {
    let rows = live.job_rows(&options.choice, options.order);
    let n_all = rows.len();
    let shown = rows.iter().take(options.max_rows.unwrap_or(n_all));
    let rows = shown.map(|row| {
        let total = percent(row.total_bytes, live.heap_bytes);
        Row {
            cells: vec![
                row.function.to_owned(),
                row.n_running.to_string(),
                size(row.total_bytes),
                format!("{total:.2}%"),
                row.count.to_string(),
            ],
            shares: vec![None, None, Some(total), Some(total), None],
        }
    });
    let titles = ["Job", "Running", "Total", "Total %", "Blocks"];
    (titles.map(str::to_owned).to_vec(), rows.collect())
}

/// The program and its running time; `state` is a word for its state.
pub fn headline(live: &Live, state: &str) -> String {
    let seconds = live.elapsed_ns as f64 / 1e9;
    let command = shell::command_line(&live.command);
    format!("{state} {seconds:.1} s · process {} · {command}", live.pid)
}

/// The sizes of the heap and the process.
pub fn sums(live: &Live) -> String {
    let mut text = format!(
        "heap {} in {}, at most {}",
        size(live.heap_bytes),
        blocks(live.n_blocks),
        size(live.peak_bytes)
    );
    if let Some(bytes) = live.resident_bytes {
        text += &format!(" · resident {}", size(bytes));
    }
    if let Some(limit) = live.limit_bytes {
        text += &format!(" of {}", size(limit));
    }
    text
}

/// Notes about the numbers.
pub fn notes(live: &Live) -> Vec<String> {
    let stopped = live.stopped.iter();
    let stopped = stopped.map(|stopped| missing_rest(stopped, "since then"));
    let mut notes: Vec<String> = stopped.collect();
    if live.sample_bytes > 0 {
        let mean = binary_size(live.sample_bytes);
        notes.push(format!("sampled every {mean} on average: estimates"));
    }
    notes.extend(arenas(
        live.python_arena_bytes(),
        live.heap_bytes,
        "on the heap",
    ));
    for &(reason, count) in live.lost.iter().filter(|&&(_, count)| count > 0) {
        notes.push(format!("missing: {count} {}", reason.describe()));
    }
    if live.n_damaged > 0 {
        notes.push("a part of the capture could not be read: the rest is shown".into());
    }
    if live.n_more > 0 {
        notes.push(format!(
            "{} functions with less are not listed",
            live.n_more
        ));
    }
    notes
}
