//! Findings as JSON: the sentences, and the numbers behind them.

use heaptide_analysis::model::Location;
use heaptide_analysis::model::findings::{Finding, FindingKind, Ledger};

use super::Json;
use crate::text::findings::spoken;

pub fn findings(findings: &[Finding]) -> Json {
    findings.iter().map(|it| finding(it, None)).collect()
}

/// `node`: in a page, where to look.
pub(super) fn finding(finding: &Finding, node: Option<Option<u32>>) -> Json {
    let words = spoken(finding);
    let mut members = vec![
        ("kind", words.kind.into()),
        ("what", words.what.into()),
        (
            "evidence",
            words.evidence.into_iter().map(Json::from).collect(),
        ),
        ("advice", words.advice.into()),
        ("place", place(finding.place.as_ref())),
        ("caller", place(finding.caller.as_ref())),
        ("numbers", Json::Object(numbers(&finding.what))),
    ];
    if let Some(node) = node {
        members.push(("node", node.map(u64::from).into()));
    }
    Json::Object(members)
}

fn place(at: Option<&Location>) -> Json {
    let place = at.map(|at| {
        Json::Object(vec![
            ("function", (&*at.function).into()),
            ("file", (&*at.file).into()),
            ("line", u64::try_from(at.line).unwrap_or(0).into()),
        ])
    });
    place.unwrap_or(Json::Null)
}

pub(super) fn ledger(it: &Ledger) -> Vec<(&'static str, Json)> {
    vec![
        ("pid", it.pid.into()),
        ("resident_bytes", it.resident_bytes.into()),
        ("python_bytes", it.python_bytes.into()),
        ("mapped_bytes", it.mapped_bytes.into()),
        ("native_bytes", it.native_bytes.into()),
        ("earlier_bytes", it.earlier_bytes.into()),
        ("libc_free_bytes", it.libc_free_bytes.into()),
        ("files_bytes", it.files_bytes.into()),
        ("own_bytes", it.own_bytes.into()),
        ("unexplained_bytes", it.unexplained_bytes.into()),
    ]
}

fn numbers(what: &FindingKind) -> Vec<(&'static str, Json)> {
    match what {
        FindingKind::HoldsMost(it) => vec![
            ("peak_bytes", it.bytes.into()),
            ("peak_count", it.count.into()),
            ("whole_peak_bytes", it.whole_bytes.into()),
            ("leaked_bytes", it.leaked_bytes.into()),
        ],
        FindingKind::Grows(it) => vec![
            ("from_ns", it.from_ns.into()),
            ("to_ns", it.to_ns.into()),
            ("from_bytes", it.from_bytes.into()),
            ("to_bytes", it.to_bytes.into()),
            ("bytes_per_second", Json::Fraction(it.bytes_per_second)),
            ("confidence", Json::Fraction(it.confidence)),
            ("num_falls", it.n_falls.into()),
            ("num_readings", it.n_readings.into()),
            ("released_bytes", it.released_bytes.into()),
        ],
        FindingKind::Churns(it) => vec![
            ("temporary_bytes", it.bytes.into()),
            ("temporary_count", it.count.into()),
            ("count", it.n_allocations.into()),
            ("whole_count", it.n_whole.into()),
            ("threshold", it.threshold.into()),
            ("mean_lifetime_ns", it.mean_lifetime_ns.into()),
        ],
        FindingKind::KeptFree(it) => ledger(it),
        FindingKind::Unshared(it) => vec![
            ("pid", it.pid.into()),
            ("parent_pid", it.parent_pid.into()),
            ("inherited_bytes", it.inherited_bytes.into()),
            ("shared_bytes", it.shared_bytes.into()),
        ],
    }
}
