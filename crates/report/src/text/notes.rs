//! Sentences about how far the numbers can be trusted. There is one only where there is something to say.

use heaptide_analysis::model::{Measure, Quality};

use crate::units::{binary_size, percent, size};

/// What every report must say: filters, sampling, loss, damage.
pub fn warnings(quality: &Quality) -> Vec<String> {
    let mut notes = Vec::new();
    if !quality.filters.is_empty() {
        notes.push(format!("only what passes {}", quality.filters.join(" ")));
    }
    if let Some(sampling) = &quality.sampling {
        let sum = |number: fn(&heaptide_analysis::model::ProcessSummary) -> u64| {
            quality.processes.iter().map(number).sum::<u64>()
        };
        let share = |error: f64, of: u64| percent(error.round() as u64, of);
        notes.push(format!(
            "sampled every {} on average: total ± {:.1} %, peak ± {:.1} % (95 %)",
            binary_size(sampling.mean_bytes),
            share(
                sampling.total_error_bytes,
                sum(|process| process.total_bytes)
            ),
            share(sampling.peak_error_bytes, sum(|process| process.peak_bytes)),
        ));
    }
    let mut sessions: Vec<_> = quality
        .processes
        .iter()
        .filter_map(|process| process.session)
        .collect();
    sessions.sort_unstable();
    sessions.dedup();
    if sessions.len() > 1 {
        notes.push(format!(
            "these captures are of {} different runs: what is shown is the sum; `heaptide diff` compares two",
            sessions.len()
        ));
    }
    for process in &quality.processes {
        if let Some(bytes) = process.attached_at_bytes {
            notes.push(format!(
                "attached to process {} when {} of it were resident: what it allocated before is not in the capture",
                process.pid,
                size(bytes)
            ));
        }
    }
    if quality.lacks_totals {
        notes.push(
            "an aggregated capture of memray holds no totals: what was alive at the peak stands in their place"
                .to_owned(),
        );
    }
    for &(reason, count) in &quality.lost {
        notes.push(format!("missing: {count} {}", reason.describe()));
    }
    if !quality.damage.is_empty() {
        let n = quality.damage.len();
        let places = if n == 1 {
            "one place"
        } else {
            "several places"
        };
        notes.push(format!(
            "the capture is damaged in {places}: what could be read is shown"
        ));
    }
    if quality.n_overlaps > 0 {
        notes.push(format!(
            "{} blocks were allocated where another was still alive: their releases are missing",
            quality.n_overlaps
        ));
    }
    notes
}

/// What is good to know, in reports with room for it.
pub fn remarks(quality: &Quality) -> Vec<String> {
    let mut notes = Vec::new();
    if quality.is_part {
        notes.push(
            "the peak is the moment at which the whole process held most, of which the filter's share is shown; the \
             heap over time is the whole process's"
                .to_owned(),
        );
    }
    if quality.mapped_files_bytes > 0 {
        notes.push(format!(
            "files were mapped, at most {} at a time: not part of the peak, because their pages are the page cache's",
            size(quality.mapped_files_bytes)
        ));
    }
    if quality.n_unknown_frees > 0 {
        notes.push(match quality.n_unknown_frees {
            1 => "one free of a block allocated before recording began".to_owned(),
            n => format!("{n} frees of blocks allocated before recording began"),
        });
    }
    for process in quality
        .processes
        .iter()
        .filter(|process| !process.ended_in_order)
    {
        notes.push(format!(
            "process {} did not end its recording: it was killed, left at once, or is still running",
            process.pid
        ));
    }
    if quality.peak_is_aligned {
        notes.push(format!(
            "{} processes: the peak is the most they held together, on a common time line; what is listed at the peak is each \
             process at its own{}",
            quality.processes.len(),
            together(quality)
        ));
    }
    notes
}

/// How to see what several processes held at one time.
fn together(quality: &Quality) -> String {
    match quality.common_peak_unix_ns {
        None => String::new(),
        Some(at) => format!(
            " (`heaptide tree --leaks --to {}ms` lists what they held together then)",
            at.div_ceil(1_000_000)
        ),
    }
}

/// Behind a table or a tree: what must be said of blocks seen like this.
pub fn footer(quality: &Quality, measure: Measure) -> Vec<String> {
    let mut notes = warnings(quality);
    let n_processes = quality.processes.len();
    if measure == Measure::Peak && n_processes > 1 {
        notes.push(format!(
            "{n_processes} processes, each at its own peak: these need not have been at the same time{}",
            together(quality)
        ));
    }
    notes
}
