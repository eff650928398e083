//! `stats --json`: memray's keys in memray's order, followed by Heaptide's own under `heaptide`.

use heaptide_analysis::model::{
    Histogram, JobGroup, JobSiteSum, LifetimeClass, LocationSum, ModeInterval, ModuleSum,
    PeakMoment, ProcessGroup, ProcessSummary, Stats,
};
use serde_json::{Value, json};

use super::findings::{findings, ledger};
use super::{damage, identity, labels, lost, peak_moment, sampling, stopped, text_or_null};
use crate::shell::command_line;
use crate::text::mode::mode;
use crate::text::stats::location;
use crate::units::{hexadecimal, timestamp};

pub fn stats(stats: &Stats) -> Value {
    let allocators = stats.allocators.iter();
    let allocators = allocators.map(|&(allocator, count)| (allocator.name(), count));
    let by_size = stats.top_by_size.iter();
    let by_size = by_size.map(|sum| location_sum(sum, "size", sum.bytes));
    let by_count = stats.top_by_count.iter();
    let by_count = by_count.map(|sum| location_sum(sum, "count", sum.count));
    json!({
        "total_num_allocations": total(stats.quality.lacks_totals, stats.n_allocations),
        "total_bytes_allocated": total(stats.quality.lacks_totals, stats.total_bytes),
        "allocation_size_histogram": stats.histogram.as_ref().map_or(json!([]), histogram),
        "allocator_type_distribution": allocators.collect::<Value>(),
        "top_allocations_by_size": by_size.collect::<Value>(),
        "top_allocations_by_count": by_count.collect::<Value>(),
        "top_modules_by_allocation_size": stats.modules_by_size.iter().map(module).collect::<Value>(),
        "top_modules_by_allocation_count": stats.modules_by_count.iter().map(module).collect::<Value>(),
        "metadata": metadata(stats),
        "heaptide": additions(stats),
    })
}

/// A number that is missing in some captures.
fn total(is_lacking: bool, number: u64) -> Value {
    if is_lacking {
        Value::Null
    } else {
        number.into()
    }
}

fn histogram(histogram: &Histogram) -> Value {
    let last = histogram.bins.len().saturating_sub(1);
    let bins = histogram.bins.iter().enumerate();
    bins.map(|(at, bin)| {
        // The last bin includes its upper edge.
        let max = if at == last {
            bin.to
        } else {
            bin.to.saturating_sub(1)
        };
        json!({ "min_bytes": bin.from, "max_bytes": max, "count": bin.count })
    })
    .collect()
}

fn location_sum(sum: &LocationSum, key: &'static str, number: u64) -> Value {
    json!({ "location": location(sum.location.as_ref()), key: number })
}

fn module(sum: &ModuleSum) -> Value {
    json!({
        "module": sum.module.as_str(),
        "num_allocations": sum.count,
        "total_bytes": sum.bytes,
    })
}

fn metadata(stats: &Stats) -> Value {
    let metadata = &stats.metadata;
    json!({
        "start_time": timestamp(metadata.start_unix_ns),
        "end_time": timestamp(metadata.end_unix_ns),
        "total_allocations": total(stats.quality.lacks_totals, stats.n_allocations),
        "total_frames": metadata.n_frames,
        "peak_memory": stats.peak_bytes,
        "command_line": command_line(&metadata.command),
        "pid": metadata.pid,
        "main_thread_id": metadata.main_thread,
        "python_allocator": metadata.python_allocator.as_str(),
        "has_native_traces": metadata.native,
        "trace_python_allocators": metadata.objects,
        "file_format": u64::from(metadata.aggregate),
    })
}

/// The numbers that memray does not have.
fn additions(stats: &Stats) -> Value {
    let quality = &stats.quality;
    json!({
        "filters": quality.filters,
        "sampling": sampling(quality, "live_error_bytes_95"),
        "lost": lost(quality),
        "damage": damage(quality),
        "frees_of_unknown_blocks": quality.n_unknown_frees,
        "allocations_over_live_blocks": quality.n_overlaps,
        "mapped_files_peak_bytes": quality.mapped_files_bytes,
        "peak_is_of_processes_together": matches!(quality.peak_moment, PeakMoment::Common(_)),
        "processes": quality.processes.iter().map(process).collect::<Value>(),
        "peak_moment": peak_moment(quality),
        "python_arenas": {
            "peak_bytes": quality.arenas.peak_bytes,
            "live_bytes": quality.arenas.live_bytes,
        },
        "lifetimes": stats.lifetimes.iter().map(lifetime).collect::<Value>(),
        "jobs": stats.jobs.iter().map(job).collect::<Value>(),
        "process_groups": stats.process_groups.iter().map(process_group).collect::<Value>(),
        "findings": findings(&stats.findings),
    })
}

fn lifetime(class: &LifetimeClass) -> Value {
    json!({ "below_ns": class.below_ns, "count": class.count, "bytes": class.bytes })
}

fn job(job: &JobGroup) -> Value {
    let site = |site: &Option<JobSiteSum>| match site {
        Some(site) => json!({ "location": location(site.location.as_ref()), "bytes": site.bytes }),
        None => Value::Null,
    };
    json!({
        "name": job.name.as_str(),
        "jobs": job.n_jobs,
        "failed": job.n_failed,
        "running": job.n_running,
        "allocated_bytes": job.allocated.bytes,
        "num_allocations": job.allocated.count,
        "peak_bytes": job.peak.bytes,
        "retained_bytes": job.retained.bytes,
        "retained_now_bytes": job.retained_now.bytes,
        "allocated_error_bytes_95": job.allocated.error_bytes() as u64,
        "peak_error_bytes_95": job.peak.error_bytes() as u64,
        "retained_error_bytes_95": job.retained.error_bytes() as u64,
        "retained_now_error_bytes_95": job.retained_now.error_bytes() as u64,
        "peak_site": site(&job.peak_site),
        "retained_site": site(&job.retained_site),
    })
}

fn process_group(group: &ProcessGroup) -> Value {
    json!({
        "name": group.name.as_str(),
        "processes": group.n_processes,
        "allocated_bytes": group.allocated.bytes,
        "num_allocations": group.allocated.count,
        "peak_bytes": group.peak.bytes,
        "live_bytes": group.live.bytes,
        "allocated_error_bytes_95": group.allocated.error_bytes() as u64,
        "peak_error_bytes_95": group.peak.error_bytes() as u64,
        "live_error_bytes_95": group.live.error_bytes() as u64,
    })
}

fn mode_interval(interval: &ModeInterval) -> Value {
    json!({
        "from_ns": interval.from_ns,
        "mode": mode(interval.mode),
        "sample_bytes": interval.mode.sample_bytes,
        "objects": interval.mode.objects,
        "native": interval.mode.native,
    })
}

fn process(process: &ProcessSummary) -> Value {
    json!({
        "file": process.path.display().to_string(),
        "session": process.session.map(|session| hexadecimal(&session)),
        "process": process.name.as_str(),
        "title": process.title.as_str(),
        "labels": labels(&process.labels),
        "run": text_or_null(&process.run),
        "pid": process.pid,
        "parent_pid": process.parent_pid,
        "identity": identity(&process.identity),
        "command_line": command_line(&process.command),
        "num_allocations": process.n_allocations,
        "total_bytes": process.total_bytes,
        "peak_bytes": process.peak_bytes,
        "peak_time": timestamp(process.peak_unix_ns),
        "at_peak_bytes": process.at_peak_bytes,
        "live_bytes": process.live_bytes,
        "resident_peak_bytes": process.resident_peak_bytes,
        "own_at_resident_peak_bytes": process.own_at_resident_peak_bytes,
        "limit_bytes": process.limit_bytes,
        "own_memory_bytes": process.own_memory_bytes,
        "num_threads": process.n_threads,
        "num_events": process.n_events,
        "times_unknown_until_ns": process.times_unknown_until_ns,
        "ended_in_order": process.ended_in_order,
        "stopped": process.stopped.as_ref().map(stopped),
        "joined_late": process.joined_late,
        "modes": process.modes.iter().map(mode_interval).collect::<Value>(),
        "attached_at_bytes": process.attached_at_bytes,
        "ledger": process.ledger.as_ref().map(ledger),
    })
}
