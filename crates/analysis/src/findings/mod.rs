//! Findings: facts about a session that deserve attention. One file per finding holds its check, its sentences and its
//! JSON numbers.
//!
//! Users must be able to judge a finding, so each has the numbers that support it and those that contradict it.
//! Most thresholds are shares of the session itself: a small part of a large program is not worth a finding.

mod churn;
mod growth;
mod kept_free;
mod largest;
mod ledger;
mod site_groups;
mod still_alive;
mod unshared;

use crate::load::Session;
use crate::model::Finding;
pub use ledger::{ledger, own_at_resident_peak, resident_peak};
use site_groups::SiteGroups;
pub use still_alive::still_alive;

/// The maximum number of findings of one check; more would not help users.
const MAX_PER_CHECK: usize = 3;

/// Returns the findings, the most important first.
///
/// Growth is checked only if the request asked for [`crate::Request::lives`], churn only if it asked for temporary blocks.
pub fn findings(session: &Session) -> Vec<Finding> {
    let groups = SiteGroups::new(session);
    let mut findings = growth::find(session, &groups);
    findings.extend(largest::find(session, &groups));
    findings.extend(churn::find(session, &groups));
    // The resident size is that of the whole process, so a filtered part cannot be compared with it.
    if !session.filter.chooses_sites() && !session.filter.chooses_time() {
        findings.extend(kept_free::find(session));
        findings.extend(unshared::find(session));
    }
    findings
}
