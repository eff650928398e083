//! The jobs that a live view shows, as the command line chooses them.

use heaptide_analysis::model::Live;
use heaptide_capture::glob;

#[derive(Clone, Debug, Default)]
pub(crate) struct JobOptions {
    /// Whether to list jobs instead of functions.
    pub by_job: bool,
    /// Patterns of names; empty for all memory.
    pub patterns: Vec<String>,
}

impl JobOptions {
    /// Returns the jobs whose names match; `None` for all memory.
    pub(crate) fn choose(&self, live: &Live) -> Option<Vec<u32>> {
        let patterns = &self.patterns;
        let matches = |name: &str| patterns.iter().any(|it| glob::matches(it, name));
        (!patterns.is_empty()).then(|| live.jobs_named(matches))
    }
}
