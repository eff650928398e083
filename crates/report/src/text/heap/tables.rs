//! Tables of kinds, single objects, differences, and retained sizes of kinds.

use std::io::{self, Write};

use heaptide_analysis::heap::diff::HeapDiff;
use heaptide_analysis::heap::partition::{By, Partition};
use heaptide_analysis::heap::types::KindsTable;

use super::{More, objects, percent, share, significant};

/// Kinds are wrapped at this line length.
const WIDTH: usize = 100;
/// The column in which kinds begin.
const INDENT: usize = 45;

/// The title of the column with the names of rows.
pub fn heading(by: By) -> &'static str {
    match by {
        By::Kind => "Kind (class / dict of class)",
        By::Type => "Type",
        By::Size => "Individual Size",
        By::Module => "Module",
        By::Via => "Referred Via:",
        By::Referrers => "Referrers by Kind (class / dict of class)",
        By::Identity => "Brief",
        By::Unity => "<unclassified>",
        By::Producer => "Producer (line of allocation)",
    }
}

/// Writes `n_rows` rows from `first` on; 0 means all. Only a part that begins at row 0 has the line with the totals.
pub fn partition(
    out: &mut dyn Write,
    table: &Partition,
    first: usize,
    n_rows: usize,
    more: More,
) -> io::Result<()> {
    if table.by == By::Identity {
        return identity(out, table, first, n_rows, more);
    }
    if first == 0 {
        write_whole(out, table.count, table.bytes)?;
    }
    writeln!(
        out,
        " Index  Count   %     Size   % Cumulative  % {}",
        heading(table.by)
    )?;
    let last = last_row(first, n_rows, table.rows.len());
    let before = table.rows.iter().take(first).map(|row| row.bytes);
    let mut cumulative: u64 = before.fold(0, u64::saturating_add);
    for (at, row) in table.rows.iter().enumerate().take(last).skip(first) {
        cumulative += row.bytes;
        let numbers = format!(
            "{at:>6} {:>6} {:>3} {:>8} {:>3} {cumulative:>9} {:>3} ",
            row.count,
            percent(row.count, table.count),
            row.bytes,
            percent(row.bytes, table.bytes),
            percent(cumulative, table.bytes),
        );
        write_wrapped(out, &numbers, &row.label)?;
    }
    write_more(out, table.rows.len() - last, more)
}

/// Writes one row per object, for a set of objects of one kind or of several kinds.
pub fn identity(
    out: &mut dyn Write,
    table: &Partition,
    first: usize,
    n_rows: usize,
    more: More,
) -> io::Result<()> {
    let kind = only_kind(table);
    if first == 0 {
        writeln!(
            out,
            "Set of {} <{}> {}. Total size = {} bytes.",
            table.count,
            kind.unwrap_or("mixed"),
            objects(table.count),
            table.bytes
        )?;
    }
    let prefix_length = kind.map_or(0, |kind| kind.len() + AFTER_KIND.len());
    let shown = kind.and_then(|_| table.rows.first());
    let title = match shown.map(|row| &row.label[prefix_length..]) {
        None => heading(By::Identity),
        Some(one) if !one.starts_with("0x") => "Representation (limited)",
        Some(one) if one.contains('*') => "Address*Length",
        Some(_) => "Address",
    };
    writeln!(out, " Index     Size   %   Cumulative  %   {title}")?;
    let last = last_row(first, n_rows, table.rows.len());
    let before = table.rows.iter().take(first).map(|row| row.bytes);
    let mut cumulative: u64 = before.fold(0, u64::saturating_add);
    for (at, row) in table.rows.iter().enumerate().take(last).skip(first) {
        cumulative += row.bytes;
        writeln!(
            out,
            "{at:>6} {:>8} {:>5.1} {cumulative:>9} {:>5.1} {}",
            row.bytes,
            share(row.bytes, table.bytes),
            share(cumulative, table.bytes),
            &row.label[prefix_length..]
        )?;
    }
    write_more(out, table.rows.len() - last, more)
}

/// Separates an object's kind from its own description.
const AFTER_KIND: &str = ": ";

/// The common kind of all objects, if there is one.
fn only_kind(table: &Partition) -> Option<&str> {
    let (kind, _) = table.rows.first()?.label.split_once(AFTER_KIND)?;
    let is_of_kind = |label: &str| {
        let rest = label.strip_prefix(kind);
        rest.is_some_and(|rest| rest.starts_with(AFTER_KIND))
    };
    table
        .rows
        .iter()
        .all(|row| is_of_kind(&row.label))
        .then_some(kind)
}

/// Writes the line above a table of kinds.
fn write_whole(out: &mut dyn Write, count: u64, bytes: u64) -> io::Result<()> {
    let objects = objects(count);
    writeln!(
        out,
        "Partition of a set of {count} {objects}. Total size = {bytes} bytes."
    )
}

/// Kinds with the size that each retains as a group.
pub fn kinds_table(
    out: &mut dyn Write,
    table: &KindsTable,
    n_rows: usize,
    more: More,
) -> io::Result<()> {
    write_whole(out, table.count, table.bytes)?;
    writeln!(
        out,
        " Index  Count   %     Size   %  Retained   % {}{}",
        heading(table.by),
        if table.rows.iter().any(|row| row.site.is_some()) {
            ", and the line that allocated most of it"
        } else {
            ""
        }
    )?;
    let last = last_row(0, n_rows, table.rows.len());
    for (at, row) in table.rows.iter().enumerate().take(last) {
        let numbers = format!(
            "{at:>6} {:>6} {:>3} {:>8} {:>3} {:>9} {:>3} ",
            row.count,
            percent(row.count, table.count),
            row.bytes,
            percent(row.bytes, table.bytes),
            row.retained,
            percent(row.retained, table.bytes),
        );
        let label = match &row.site {
            Some(site) => format!(
                "{} <- {}:{} ({}% of the objects)",
                row.label,
                site.file,
                site.line,
                percent(site.count, row.count)
            ),
            None => row.label.clone(),
        };
        write_wrapped(out, &numbers, &label)?;
    }
    write_more(out, table.rows.len() - last, more)
}

/// The changes from `before`, which is B, to `after`, which is A.
pub fn difference(
    out: &mut dyn Write,
    diff: &HeapDiff,
    by: By,
    n_rows: usize,
    more: More,
) -> io::Result<()> {
    let (a, b) = (diff.after, diff.before);
    let bytes = a.bytes as i64 - b.bytes as i64;
    let of_b = |bytes: i64| match b.bytes {
        0 => "-".to_owned(),
        whole => significant(bytes as f64 * 100.0 / whole as f64),
    };
    writeln!(out, "Summary of difference operation (A-B).")?;
    writeln!(out, "        Count     Size")?;
    writeln!(out, "  A  {:>8} {:>8}", a.count, a.bytes)?;
    writeln!(out, "  B  {:>8} {:>8}", b.count, b.bytes)?;
    writeln!(
        out,
        "  A-B{:>8} {bytes:>8}  = {:>9} % of B",
        a.count as i64 - b.count as i64,
        of_b(bytes)
    )?;
    writeln!(out)?;
    writeln!(
        out,
        "Differences by kind, largest absolute size diffs first."
    )?;
    writeln!(
        out,
        " Index  Count     Size  Cumulative  % of B {}",
        heading(by)
    )?;
    let last = last_row(0, n_rows, diff.rows.len());
    let mut cumulative = 0;
    for (at, row) in diff.rows.iter().enumerate().take(last) {
        cumulative += row.bytes();
        writeln!(
            out,
            "{at:>6} {:>6} {:>8} {cumulative:>9} {:>9} {}",
            row.count(),
            row.bytes(),
            of_b(cumulative),
            row.label
        )?;
    }
    write_more(out, diff.rows.len() - last, more)
}

fn last_row(first: usize, n_rows: usize, n_known: usize) -> usize {
    if n_rows == 0 {
        n_known
    } else {
        n_known.min(first.saturating_add(n_rows))
    }
}

fn write_more(out: &mut dyn Write, n_more: usize, more: More) -> io::Result<()> {
    if n_more == 0 {
        return Ok(());
    }
    writeln!(out, "{}", more.rows(n_more))
}

/// Numbers that are wider than their columns push the kind to the right; wrapped lines stay below the column.
fn write_wrapped(out: &mut dyn Write, numbers: &str, label: &str) -> io::Result<()> {
    let room = WIDTH - INDENT;
    let mut line = numbers.to_owned();
    let mut used = 0;
    // Rows by size are aligned with leading blanks, which must stay.
    let words = label.split_inclusive(' ');
    for word in words {
        let width = word.trim_end().chars().count();
        if used > 0 && used + width > room {
            writeln!(out, "{}", line.trim_end())?;
            line = " ".repeat(INDENT);
            used = 0;
        }
        line.push_str(word);
        used += word.chars().count();
    }
    writeln!(out, "{}", line.trim_end())
}
