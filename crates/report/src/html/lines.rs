//! Functions line by line, as a page without scripts, with a bar in the background of every line.

use std::io::{self, Write};

use heaptide_analysis::model::{LineRow, LineTable};

use crate::text::lines::{Column, Options};

const HEAD: &str = "\
<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>Memory line by line</title>
<style>
:root { color-scheme: light dark; --text: #1c2430; --soft: #66707f; --line: #d9dee5; --back: #ffffff; --more: #f2a65a; --less: #6aa9d8; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e8ee; --soft: #98a3b3; --line: #333b47; --back: #171b21; --more: #b5651d; --less: #2f6f9f; }
}
body { margin: 1.5rem; background: var(--back); color: var(--text); font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.2rem; margin: 0 0 1rem; }
h2 { font-size: 1rem; margin: 2rem 0 .2rem; }
p { margin: 0 0 .5rem; color: var(--soft); overflow-wrap: anywhere; }
div { overflow-x: auto; }
table { border-collapse: collapse; font: 12.5px/1.45 ui-monospace, monospace; min-width: 100%; }
th, td { padding: .1rem .7rem; text-align: right; white-space: pre; font-variant-numeric: tabular-nums; }
th { border-bottom: 1px solid var(--line); color: var(--soft); font-weight: 500; position: sticky; top: 0; background: var(--back); }
td:first-child { color: var(--soft); }
td:last-child, th:last-child { text-align: left; width: 100%; }
tr:hover td { background-color: color-mix(in srgb, var(--soft) 12%, transparent); }
.bar { background-repeat: no-repeat; background-size: var(--share) 100%; }
.more { background-image: linear-gradient(color-mix(in srgb, var(--more) 55%, transparent) 0 0); }
.less { background-image: linear-gradient(color-mix(in srgb, var(--less) 55%, transparent) 0 0); }
</style>
</head>
<body>
<h1>Memory line by line</h1>
";

/// Writes a page with all tables.
pub fn lines(out: &mut dyn Write, tables: &[LineTable], options: &Options) -> io::Result<()> {
    out.write_all(HEAD.as_bytes())?;
    if tables.is_empty() {
        writeln!(out, "<p>No lines to show.</p>")?;
    }
    for table in tables {
        write_table(out, table, options)?;
    }
    writeln!(out, "</body>\n</html>")
}

fn write_table(out: &mut dyn Write, table: &LineTable, options: &Options) -> io::Result<()> {
    writeln!(out, "<h2>{}</h2>", escape(&table.function))?;
    writeln!(out, "<p>{}</p>", escape(&table.file))?;
    let bar = bar(options.columns);
    writeln!(out, "<p>The bar of a line shows {}.</p>", bar.describe())?;
    write!(out, "<div><table>\n<thead><tr><th>Line</th>")?;
    for column in options.columns {
        write!(out, "<th>{}</th>", column.title())?;
    }
    writeln!(out, "<th>Line Contents</th></tr></thead>\n<tbody>")?;
    // The first line of a function has the memory from before the call as its increment, so it gets no bar.
    let skipped = usize::from(bar == Bar::Increment);
    let bytes = |row: &LineRow| bar.bytes(row).unsigned_abs();
    let largest = table
        .rows
        .iter()
        .skip(skipped)
        .map(bytes)
        .max()
        .unwrap_or(0);
    for (at, row) in table.rows.iter().enumerate() {
        write!(out, "<tr><td>{}</td>", row.number)?;
        for column in options.columns {
            let cell = column.cell(row, options.precision);
            write!(out, "<td>{}</td>", cell.unwrap_or_default().trim())?;
        }
        let (bytes, text) = (bar.bytes(row), escape(&row.text));
        if at < skipped || bytes == 0 || largest == 0 {
            writeln!(out, "<td>{text}</td></tr>")?;
        } else {
            let share = bytes.unsigned_abs() as f64 * 100.0 / largest as f64;
            let class = if bytes > 0 { "more" } else { "less" };
            writeln!(
                out,
                "<td class=\"bar {class}\" style=\"--share:{share:.1}%\">{text}</td></tr>"
            )?;
        }
    }
    writeln!(out, "</tbody></table></div>")
}

/// The measure that the bars show.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bar {
    Increment,
    Peak,
}

fn bar(columns: &[Column]) -> Bar {
    if columns.contains(&Column::Increment) {
        Bar::Increment
    } else {
        Bar::Peak
    }
}

impl Bar {
    fn describe(self) -> &'static str {
        match self {
            Bar::Increment => "the memory it added (warm) or freed (cold)",
            Bar::Peak => "the memory it held at the peak",
        }
    }

    fn bytes(self, row: &LineRow) -> i64 {
        match self {
            Bar::Increment => row.visits.map_or(0, |visits| visits.increment_bytes),
            Bar::Peak => row
                .heap
                .map_or(0, |heap| i64::try_from(heap.peak_bytes).unwrap_or(i64::MAX)),
        }
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_analysis::model::LineVisits;

    #[test]
    fn lines_have_bars_of_their_share_and_their_text_is_escaped() {
        let row = |number, text: &str, increment_bytes| LineRow {
            number,
            text: text.into(),
            visits: Some(LineVisits {
                n_visits: 1,
                most_bytes: 100,
                increment_bytes,
            }),
            heap: None,
        };
        let table = LineTable {
            file: "<script>.py".into(),
            function: "f".into(),
            rows: vec![
                row(1, "def f():", 1 << 30),
                row(2, "x = '<b>'", 1000),
                row(3, "del x", -500),
            ],
        };
        let mut out = Vec::new();
        let options = Options {
            columns: &Column::WATCHED,
            precision: 1,
        };
        lines(&mut out, &[table], &options).unwrap();
        let page = String::from_utf8(out).unwrap();
        assert!(page.contains(
            "<td class=\"bar more\" style=\"--share:100.0%\">x = &#39;&lt;b&gt;&#39;</td>"
        ));
        assert!(page.contains("<td class=\"bar less\" style=\"--share:50.0%\">del x</td>"));
        assert!(
            page.contains("<td>def f():</td>"),
            "the first line has no bar"
        );
        assert!(page.contains("&lt;script&gt;.py") && !page.contains("<script"));
        assert!(page.contains("default-src 'none'"));
    }
}
