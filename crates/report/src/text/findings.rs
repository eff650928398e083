//! Fills numbers with units into the sentences of findings. Texts, pages and JSON use the same sentences.

use heaptide_analysis::model::{Finding, Ledger, Sentence, SentenceValue};

use super::stats::location;
use crate::units::{percentage, size};

/// The evidence of a finding. If the finding has no line of user code, the line that called its location is added.
pub fn evidence(finding: &Finding) -> Vec<String> {
    let caller = finding.caller.as_ref().filter(|_| finding.user.is_none());
    let caller = caller.map(|at| format!("called from {}", location(Some(at))));
    let evidence = finding.evidence.iter().map(sentence);
    evidence.chain(caller).collect()
}

pub fn sentence(sentence: &Sentence) -> String {
    let mut parts = sentence.template.split("{}");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (part, value) in parts.zip(&sentence.values) {
        text += &match value {
            SentenceValue::Bytes(bytes) => size(*bytes),
            SentenceValue::Blocks(count) => blocks(*count),
            SentenceValue::Count(count) => count.to_string(),
            SentenceValue::Process(name) => name.clone(),
            SentenceValue::Percent(part, whole) if *whole > 0.0 => percentage(part * 100.0 / whole),
            SentenceValue::Percent(..) => "0%".to_owned(),
            SentenceValue::Nanoseconds(ns) => seconds(*ns),
            SentenceValue::Location(Some(at)) => {
                format!("{} ({})", at.function, at.file_and_line())
            }
            SentenceValue::Location(None) => location(None),
        };
        text += part;
    }
    text
}

/// The parts of a ledger with their names; they add up to the resident size.
pub fn ledger_rows(it: &Ledger) -> Vec<(&'static str, u64)> {
    let rows = [
        ("Python's blocks", it.python_bytes),
        ("anonymous mappings, with Python's arenas", it.mapped_bytes),
        ("native blocks", it.native_bytes),
        (
            "native blocks from before the recording, and libc's overhead",
            it.earlier_bytes,
        ),
        ("free, kept by libc", it.libc_free_bytes),
        ("files and shared memory", it.files_bytes),
        ("the profiler", it.own_bytes),
        ("unexplained", it.unexplained_bytes),
    ];
    let rows = rows.into_iter();
    rows.filter(|&(_, bytes)| bytes > 0).collect()
}

/// A number of blocks in a sentence.
pub fn blocks(count: u64) -> String {
    match count {
        1 => "one block".to_owned(),
        n => format!("{n} blocks"),
    }
}

/// A duration in a suitable unit.
pub fn seconds(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match ns {
        0..1_000_000 => "less than a millisecond".to_owned(),
        1_000_000..10_000_000 => format!("{:.1} ms", seconds * 1e3),
        10_000_000..1_000_000_000 => format!("{:.0} ms", seconds * 1e3),
        1_000_000_000..120_000_000_000 => format!("{seconds:.1} s"),
        120_000_000_000..7_200_000_000_000 => format!("{:.1} minutes", seconds / 60.0),
        _ => format!("{:.1} hours", seconds / 3600.0),
    }
}
