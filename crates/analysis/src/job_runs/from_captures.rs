//! Converts jobs of captures to runs. Captures are the second source of [`JobRuns`], besides job records.

use super::lines;
use super::run::{JobRun, JobRuns, RunNumbers};
use crate::model::jobs::{JobSiteSum, JobSums};

impl JobRuns {
    /// Returns a job of a capture as a run, for [`JobRuns::join`].
    pub fn run_of_capture(&mut self, job: JobSums) -> JobRun {
        let process = self.process_number(&job.process.identity, "");
        let described = &mut self.processes[process as usize];
        if described.title.is_empty() {
            described.title.clone_from(&job.process.title);
        }
        described.stopped = described
            .stopped
            .take()
            .or_else(|| job.process.stopped.clone());
        let ended = job.ended_unix_ns.unwrap_or(job.began_unix_ns);
        described.last_seen = described.last_seen.max(ended as f64 / 1e9);
        let is_sampled = job.is_sampled();
        let seconds = job.seconds();
        // Memory that was freed after the job, such as its result, is no leak.
        let left = job.ended_unix_ns.map(|_| job.retained_now.bytes as i64);
        let are_sites_of_peak = job.live_sites.is_empty();
        let sites = match are_sites_of_peak {
            true => &job.peak_sites,
            false => &job.live_sites,
        };
        let sites = self.add_sites(sites.iter().map(|site| (site_text(site), site.bytes)));
        let label = self.label.as_ref().and_then(|wanted| {
            let mut labels = job.labels.iter().chain(&job.process.labels);
            labels.find(|(key, _)| key == wanted)
        });
        let label = label.map(|(_, value)| self.label_values.number(value.clone()));
        let capture = self.captures.number(job.process.path.display().to_string());
        JobRun {
            name: self.names.number(job.name),
            process,
            number: u64::from(job.number).into(),
            key: self.add_key(job.key.as_deref()),
            started: job.began_unix_ns as f64 / 1e9,
            seconds: seconds.into(),
            outcome: job.outcome,
            error: Some(job.error)
                .filter(|error| !error.is_empty())
                .map(|error| self.errors.number(error))
                .into(),
            label: label.into(),
            capture: capture.into(),
            numbers: RunNumbers {
                peak_bytes: job.peak.bytes.into(),
                peak_error: job.peak.error_bytes() as f32,
                retained_bytes: left.into(),
                is_sampled,
                sites,
                are_sites_of_peak,
                ..RunNumbers::default()
            },
        }
    }
}

fn site_text(site: &JobSiteSum) -> String {
    match &site.location {
        Some(at) => lines::site_text(&at.function, &at.file, u64::try_from(at.line).unwrap_or(0)),
        None => "no Python frame".to_owned(),
    }
}
