//! Findings as JSON: the sentences, and the numbers in them.

use heaptide_analysis::model::{Finding, Ledger, Number};
use serde_json::{Value, json};

use super::{location, number};
use crate::text::findings::{evidence, sentence};

pub fn findings(findings: &[Finding]) -> Value {
    findings.iter().map(finding).collect()
}

pub(super) fn finding(finding: &Finding) -> Value {
    json!({
        "kind": finding.name,
        "what": sentence(&finding.headline),
        "evidence": evidence(finding),
        "advice": finding.advice,
        "place": finding.location.as_ref().map(location),
        "caller": finding.caller.as_ref().map(location),
        "user": finding.user.as_ref().map(location),
        "numbers": numbers(&finding.numbers),
    })
}

pub(super) fn ledger(ledger: &Ledger) -> Value {
    numbers(&ledger.numbers())
}

fn numbers(numbers: &[(&str, Number)]) -> Value {
    let value = |value: &Number| match *value {
        Number::Unsigned(value) => value.into(),
        Number::Real(value) => number(value),
        Number::Unknown => Value::Null,
    };
    numbers
        .iter()
        .map(|(key, number)| (*key, value(number)))
        .collect()
}
