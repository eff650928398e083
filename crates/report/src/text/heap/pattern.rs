//! The reference pattern, as heapy draws it.

use std::io::{self, Write};

use heaptide_analysis::heap::Heap;
use heaptide_analysis::heap::pattern::{Flag, PatternRow};

use super::More;

/// The line width of heapy's output.
const WIDTH: usize = 80;
/// The column of the first row's flag.
const FLAG_COLUMN: usize = 9;
/// The number of examples in each row.
const N_SAMPLES: usize = 2;

/// Writes `n_rows` rows from `first` on; 0 means all.
pub fn pattern(
    out: &mut dyn Write,
    heap: &Heap,
    rows: &[PatternRow],
    first: usize,
    n_rows: usize,
    more: More,
) -> io::Result<()> {
    writeln!(out, "Reference Pattern by <[dict of] class>.")?;
    let last = match n_rows {
        0 => rows.len(),
        n => rows.len().min(first + n),
    };
    for (at, row) in rows.iter().enumerate().take(last).skip(first) {
        let name = format!("{at:>2}: {} ", letters(&row.path));
        // Flags move one column to the right with each step.
        let width = (FLAG_COLUMN + row.path.len()).saturating_sub(name.len());
        let fill = if at % 2 == 0 { "-" } else { " " }.repeat(width);
        let flag = flag(row.flag);
        let text = format!(
            "{name}{fill} {flag} {} {}: {}",
            row.objects.len(),
            row.label,
            samples(heap, row)
        );
        writeln!(out, "{}", shortened(&text))?;
    }
    if last < rows.len() {
        writeln!(out, "{}", more.rows(rows.len() - last))?;
    }
    Ok(())
}

/// `[-]`: has rows below; `[+]`: maximum depth; `[S]`: the search stops here; `[R]`: held by roots; `[^ 3]`: same as row 3.
pub fn flag(flag: Flag) -> String {
    match flag {
        Flag::Expanded => "[-]".to_owned(),
        Flag::Deep => "[+]".to_owned(),
        Flag::Stopped => "[S]".to_owned(),
        Flag::Root => "[R]".to_owned(),
        Flag::Seen(line) => format!("[^ {line}]"),
    }
}

/// The name of a row: a letter for each step, `a3` for three equal steps.
fn letters(path: &[usize]) -> String {
    if path.is_empty() {
        return "_".to_owned();
    }
    let mut text = String::new();
    for run in path.chunk_by(|a, b| a == b) {
        let letter = letter(run[0]);
        if run.len() < 3 {
            text.push_str(&letter.repeat(run.len()));
        } else {
            text.push_str(&format!("{letter}{}", run.len()));
        }
    }
    text
}

fn letter(number: usize) -> String {
    let last = char::from(b'a' + (number % 26) as u8);
    match number / 26 {
        0 => last.to_string(),
        more => format!("{}{last}", letter(more - 1)),
    }
}

fn samples(heap: &Heap, row: &PatternRow) -> String {
    let shown: Vec<String> = row
        .objects
        .iter()
        .take(N_SAMPLES)
        .map(|object| heap.sample(object))
        .collect();
    let rest = if row.objects.len() > N_SAMPLES {
        "..."
    } else {
        ""
    };
    format!("{}{rest}", shown.join(", "))
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= WIDTH {
        return text.to_owned();
    }
    let kept: String = text.chars().take(WIDTH - 3).collect();
    format!("{kept}...")
}
