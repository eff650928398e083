//! Comma-separated values with memray's columns: a row for each stack, thread and allocator, the largest first.
//!
//! A capture with native functions has one more column, with a letter for each frame: `n` for native, `p` for Python.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::Measure;
use heaptide_analysis::model::{ProcessStacks, SiteSum, StackModel};

use super::merged;

const HEADER: &str = "allocator,num_allocations,size,tid,thread_name,stack_trace";
const KINDS: &str = ",frame_kinds";

pub fn write(model: &StackModel, measure: Measure, out: &mut dyn Write) -> io::Result<()> {
    let mut rows: Vec<(&ProcessStacks, &SiteSum)> = Vec::new();
    for process in &model.processes {
        let held = process.sites.iter().filter(|site| {
            let amount = site.amount(measure);
            amount.count > 0 || amount.bytes > 0
        });
        rows.extend(held.map(|site| (process, site)));
    }
    rows.sort_by_key(|(_, site)| Reverse(site.amount(measure).bytes));
    let has_native = model.locations.iter().any(|at| at.is_native());
    writeln!(out, "{HEADER}{}", if has_native { KINDS } else { "" })?;
    for (process, site) in rows {
        let amount = site.amount(measure);
        let thread = &process.threads[site.thread];
        write!(
            out,
            "{},{},{},{},",
            site.allocator.name(),
            amount.count,
            amount.bytes,
            thread.os_id
        )?;
        field(out, thread.name.as_deref().unwrap_or_default())?;
        out.write_all(b",")?;
        let frames = merged::frames(model, site.stack).map(|frame| {
            let at = &model.locations[frame];
            format!("{};{};{}", at.function, at.file, at.line)
        });
        let frames: Vec<String> = frames.collect();
        field(out, &frames.join("|"))?;
        if has_native {
            out.write_all(b",")?;
            for frame in merged::frames(model, site.stack) {
                let is_native = model.locations[frame].is_native();
                out.write_all(if is_native { b"n" } else { b"p" })?;
            }
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Quotes a field if necessary.
fn field(out: &mut dyn Write, text: &str) -> io::Result<()> {
    if text.contains(['"', ',', '\n', '\r']) {
        write!(out, "\"{}\"", text.replace('"', "\"\""))
    } else {
        out.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn fields_are_quoted_only_if_they_contain_separators() {
        let mut out = Vec::new();
        for text in ["plain name", "a,b", "say \"x\"", "two\nlines"] {
            field(&mut out, text).expect("writing to a vector succeeds");
            out.push(b' ');
        }
        let expected = "plain name \"a,b\" \"say \"\"x\"\"\" \"two\nlines\" ";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
