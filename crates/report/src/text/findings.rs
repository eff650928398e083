//! Fills numbers with units into the sentences of findings. Texts, pages and JSON use the same sentences.

use heaptide_analysis::model::{Finding, Ledger, Sentence, SentenceValue};

use super::stats::location;
use crate::units::{count, duration, percentage, size};

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
            SentenceValue::Blocks(number) => blocks(*number),
            SentenceValue::Count(number) => count(*number),
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
pub fn blocks(number: u64) -> String {
    match number {
        1 => "one block".to_owned(),
        n => format!("{} blocks", count(n)),
    }
}

/// A duration that was measured in milliseconds.
pub fn seconds(ns: u64) -> String {
    match ns {
        0..1_000_000 => "less than a millisecond".to_owned(),
        _ => duration(ns as f64 / 1e9),
    }
}
