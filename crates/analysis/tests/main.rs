//! Analyses of small programs that are written as text.

mod common_peak;
mod diffs;
mod filters;
mod findings;
mod flames;
mod groups;
mod heap_answers;
mod heap_graphs;
mod heap_scale;
mod heap_suspects;
mod line_tables;
mod locations;
mod peaks;
mod sessions;
