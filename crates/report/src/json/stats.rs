//! `stats --json`: the keys that memray has, in its order, and ours behind them under `heaptide`.

use heaptide_analysis::model::{
    Histogram, LifetimeClass, LocationSum, ModuleSum, ProcessSummary, Stats,
};

use super::Json;
use super::findings::{findings, ledger};
use crate::shell::command_line;
use crate::text::stats::location;
use crate::units::{hexadecimal, timestamp};

pub fn stats(stats: &Stats) -> Json {
    let allocators = stats.allocators.iter();
    let allocators = allocators.map(|&(allocator, count)| (allocator.name(), count.into()));
    Json::Object(vec![
        (
            "total_num_allocations",
            total(stats.quality.lacks_totals, stats.n_allocations),
        ),
        (
            "total_bytes_allocated",
            total(stats.quality.lacks_totals, stats.total_bytes),
        ),
        (
            "allocation_size_histogram",
            stats
                .histogram
                .as_ref()
                .map_or(Json::Array(Vec::new()), histogram),
        ),
        (
            "allocator_type_distribution",
            Json::Object(allocators.collect()),
        ),
        (
            "top_allocations_by_size",
            stats
                .top_by_size
                .iter()
                .map(|sum| place(sum, "size", sum.bytes))
                .collect(),
        ),
        (
            "top_allocations_by_count",
            stats
                .top_by_count
                .iter()
                .map(|sum| place(sum, "count", sum.count))
                .collect(),
        ),
        (
            "top_modules_by_allocation_size",
            stats.modules_by_size.iter().map(module).collect(),
        ),
        (
            "top_modules_by_allocation_count",
            stats.modules_by_count.iter().map(module).collect(),
        ),
        ("metadata", metadata(stats)),
        ("heaptide", beside(stats)),
    ])
}

/// A number that the capture may not tell.
fn total(is_lacking: bool, number: u64) -> Json {
    if is_lacking {
        Json::Null
    } else {
        number.into()
    }
}

fn histogram(histogram: &Histogram) -> Json {
    let last = histogram.bins.len().saturating_sub(1);
    let bins = histogram.bins.iter().enumerate();
    bins.map(|(at, bin)| {
        // The edge of the last bin belongs to it.
        let max = if at == last {
            bin.to
        } else {
            bin.to.saturating_sub(1)
        };
        Json::Object(vec![
            ("min_bytes", bin.from.into()),
            ("max_bytes", max.into()),
            ("count", bin.count.into()),
        ])
    })
    .collect()
}

fn place(sum: &LocationSum, key: &'static str, number: u64) -> Json {
    Json::Object(vec![
        ("location", location(sum.location.as_ref()).into()),
        (key, number.into()),
    ])
}

fn module(sum: &ModuleSum) -> Json {
    Json::Object(vec![
        ("module", sum.module.as_str().into()),
        ("num_allocations", sum.count.into()),
        ("total_bytes", sum.bytes.into()),
    ])
}

fn metadata(stats: &Stats) -> Json {
    let metadata = &stats.metadata;
    Json::Object(vec![
        ("start_time", timestamp(metadata.start_unix_ns).into()),
        ("end_time", timestamp(metadata.end_unix_ns).into()),
        (
            "total_allocations",
            total(stats.quality.lacks_totals, stats.n_allocations),
        ),
        ("total_frames", metadata.n_frames.into()),
        ("peak_memory", stats.peak_bytes.into()),
        ("command_line", command_line(&metadata.command).into()),
        ("pid", metadata.pid.into()),
        ("main_thread_id", metadata.main_thread.into()),
        (
            "python_allocator",
            metadata.python_allocator.as_str().into(),
        ),
        ("has_native_traces", metadata.native.into()),
        ("trace_python_allocators", metadata.objects.into()),
        ("file_format", u64::from(metadata.aggregate).into()),
    ])
}

/// What memray has no word for.
fn beside(stats: &Stats) -> Json {
    let quality = &stats.quality;
    let sampling = quality.sampling.map(|sampling| {
        Json::Object(vec![
            ("mean_bytes", sampling.mean_bytes.into()),
            (
                "total_error_bytes_95",
                Json::Fraction(sampling.total_error_bytes.round()),
            ),
            (
                "peak_error_bytes_95",
                Json::Fraction(sampling.peak_error_bytes.round()),
            ),
            (
                "live_error_bytes_95",
                Json::Fraction(sampling.live_error_bytes.round()),
            ),
        ])
    });
    let lost = quality.lost.iter().map(|&(reason, count)| {
        Json::Object(vec![
            ("what", reason.describe().into()),
            ("count", count.into()),
        ])
    });
    let damage = quality.damage.iter().map(|(path, damage)| {
        Json::Object(vec![
            ("file", path.display().to_string().into()),
            ("offset", damage.offset.into()),
            ("note", damage.to_string().into()),
        ])
    });
    Json::Object(vec![
        (
            "filters",
            quality
                .filters
                .iter()
                .map(|it| it.as_str().into())
                .collect(),
        ),
        ("sampling", sampling.unwrap_or(Json::Null)),
        ("lost", lost.collect()),
        ("damage", damage.collect()),
        ("frees_of_unknown_blocks", quality.n_unknown_frees.into()),
        ("allocations_over_live_blocks", quality.n_overlaps.into()),
        ("mapped_files_peak_bytes", quality.mapped_files_bytes.into()),
        (
            "peak_is_of_processes_together",
            quality.peak_is_aligned.into(),
        ),
        ("processes", quality.processes.iter().map(process).collect()),
        ("lifetimes", stats.lifetimes.iter().map(lifetime).collect()),
        ("findings", findings(&stats.findings)),
    ])
}

fn lifetime(class: &LifetimeClass) -> Json {
    Json::Object(vec![
        ("below_ns", class.below_ns.into()),
        ("count", class.count.into()),
        ("bytes", class.bytes.into()),
    ])
}

fn process(process: &ProcessSummary) -> Json {
    Json::Object(vec![
        ("file", process.path.display().to_string().into()),
        (
            "session",
            process
                .session
                .map_or(Json::Null, |session| hexadecimal(&session).into()),
        ),
        ("pid", process.pid.into()),
        ("parent_pid", process.parent_pid.into()),
        ("command_line", command_line(&process.command).into()),
        ("num_allocations", process.n_allocations.into()),
        ("total_bytes", process.total_bytes.into()),
        ("peak_bytes", process.peak_bytes.into()),
        ("peak_time", timestamp(process.peak_unix_ns).into()),
        ("live_bytes", process.live_bytes.into()),
        ("resident_peak_bytes", process.resident_peak_bytes.into()),
        ("limit_bytes", process.limit_bytes.into()),
        ("own_memory_bytes", process.own_memory_bytes.into()),
        ("num_threads", process.n_threads.into()),
        ("num_events", process.n_events.into()),
        ("ended_in_order", process.ended_in_order.into()),
        ("joined_late", process.joined_late.into()),
        ("attached_at_bytes", process.attached_at_bytes.into()),
        (
            "ledger",
            process
                .ledger
                .as_ref()
                .map_or(Json::Null, |it| Json::Object(ledger(it))),
        ),
    ])
}
