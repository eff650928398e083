//! The runs of each worker over time: spans in lanes that do not overlap.

use heaptide_capture::Outcome;

use super::run::JobRuns;

/// One run on the time axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Index of [`JobRuns::runs`].
    pub run: usize,
    pub from: f64,
    pub to: f64,
    /// Runs of one lane do not overlap.
    pub lane: u32,
}

/// A process and its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// Index of [`JobRuns::processes`].
    pub process: u32,
    pub spans: Vec<Span>,
    pub n_lanes: u32,
    /// Runs that are left out of `spans`.
    pub n_left_out: u64,
}

/// Returns the workers in the order in which they started their first job, with at most `max_spans` spans in total. The
/// longest runs stay; killed and running ones always count as longest.
pub fn workers(runs: &JobRuns, max_spans: usize) -> Vec<Worker> {
    let mut order: Vec<usize> = (0..runs.runs.len()).collect();
    let length = |at: usize| {
        let run = &runs.runs[at];
        match run.outcome {
            Outcome::Killed | Outcome::Running => f64::INFINITY,
            _ => run.seconds.get().unwrap_or(0.0),
        }
    };
    order.sort_by(|&a, &b| length(b).total_cmp(&length(a)).then(a.cmp(&b)));
    let mut is_shown = vec![false; runs.runs.len()];
    for &at in order.iter().take(max_spans) {
        is_shown[at] = true;
    }
    order.sort_by(|&a, &b| {
        let (one, other) = (&runs.runs[a], &runs.runs[b]);
        one.started.total_cmp(&other.started).then(a.cmp(&b))
    });
    let mut workers: Vec<Worker> = Vec::new();
    let mut lanes: Vec<Vec<f64>> = Vec::new();
    let mut by_process: Vec<Option<usize>> = vec![None; runs.processes.len()];
    for at in order {
        let run = &runs.runs[at];
        let worker = *by_process[run.process as usize].get_or_insert_with(|| {
            workers.push(Worker {
                process: run.process,
                spans: Vec::new(),
                n_lanes: 0,
                n_left_out: 0,
            });
            lanes.push(Vec::new());
            workers.len() - 1
        });
        if !is_shown[at] {
            workers[worker].n_left_out += 1;
            continue;
        }
        // The end of a killed run is unknown: its process lived at least until its last record.
        let last_seen = runs.processes[run.process as usize].last_seen;
        let seconds = run.seconds.get();
        let to = seconds.map_or(last_seen.max(run.started), |seconds| run.started + seconds);
        let ends = &mut lanes[worker];
        let lane = match ends.iter().position(|&end| end <= run.started) {
            Some(lane) => lane,
            None => {
                ends.push(0.0);
                ends.len() - 1
            }
        };
        ends[lane] = to;
        let worker = &mut workers[worker];
        worker.n_lanes = worker.n_lanes.max(lane as u32 + 1);
        worker.spans.push(Span {
            run: at,
            from: run.started,
            to,
            lane: lane as u32,
        });
    }
    workers
}
