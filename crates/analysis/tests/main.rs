//! Analyses of small programs that are written as text.

mod common_peak;
mod diffs;
mod events;
mod filters;
mod findings;
mod flames;
mod groups;
mod heap_answers;
mod heap_graphs;
mod heap_own_objects;
mod heap_scale;
mod heap_suspects;
mod job_runs;
mod jobs;
mod line_tables;
mod live;
mod locations;
mod peaks;
mod sessions;
mod stored_captures;
