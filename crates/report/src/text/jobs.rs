//! `heaptide jobs`: one row per job, then the largest site of each job.

use std::io::{self, Write};

use heaptide_analysis::job_runs::{Basis, JobRow, JobTable, PeakKind, RetainedPerRun, Verdict};
use heaptide_capture::Outcome;

use super::Style;
use super::table::{FirstColumn, Row, Table};
use crate::units::{self, binary_size, duration, signed_size, size};

pub struct Options<'a> {
    pub max_rows: usize,
    /// `None` for lines of any length.
    pub max_width: Option<usize>,
    pub style: Style,
    /// The name of a process, by its number.
    pub worker: &'a dyn Fn(u32) -> String,
}

/// The columns that a narrow terminal omits, in this order: failed, p95, p50, time.
const DISPENSABLE: [usize; 4] = [2, 6, 5, 4];

pub fn jobs(out: &mut dyn Write, table: &JobTable, options: &Options) -> io::Result<()> {
    let rows = &table.rows[..table.rows.len().min(options.max_rows)];
    let titles = [
        "Job",
        "Runs",
        "Failed",
        "Killed",
        "Time p50",
        "Peak p50",
        "Peak p95",
        "Peak max",
        "Left per run",
        "Verdict",
        "Limit",
    ];
    let mut shown = Table {
        titles: titles.map(str::to_owned).into(),
        rows: rows.iter().map(|row| line(row, options)).collect(),
        first_column: FirstColumn::Wraps,
    };
    if let Some(width) = options.max_width {
        shown.leave_out(&DISPENSABLE, width);
    }
    shown.write(out, options.max_width, options.style)?;
    if table.rows.len() > rows.len() {
        let n_more = table.rows.len() - rows.len();
        writeln!(out, "{n_more} more rows: -n {} shows all", table.rows.len())?;
    }
    writeln!(
        out,
        "{} in {} on {}",
        count(table.n_runs, "run", "runs"),
        count(table.n_processes, "process", "processes"),
        count(table.n_hosts, "host", "hosts")
    )?;
    sites(out, rows, options)?;
    legend(out, rows)
}

/// The first names, and how many more there are.
fn list(names: &[&str]) -> String {
    const MAX_NAMES: usize = 5;
    let shown = names[..names.len().min(MAX_NAMES)].join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        n_more => format!("{shown} and {n_more} more"),
    }
}

fn count(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", units::count(n), if n == 1 { one } else { many })
}

/// The name of a row: its job, and with a grouping the worker, the host or the value of the label.
pub(crate) fn title(row: &JobRow, worker: &dyn Fn(u32) -> String) -> String {
    let group = row.process.map(worker).or_else(|| row.host.clone());
    match (group, &row.label) {
        (Some(group), _) => format!("{} on {group}", row.name),
        (None, Some(label)) => format!("{} ({label})", row.name),
        (None, None) => row.name.clone(),
    }
}

fn line(row: &JobRow, options: &Options) -> Row {
    let running = match row.n(Outcome::Running) {
        0 => String::new(),
        n => format!(" ({} running)", units::count(n)),
    };
    let mark = if row.peak_kind == PeakKind::Resident && row.peak.is_some() {
        "*"
    } else {
        ""
    };
    let peak = |value: Option<u64>| match value {
        Some(value) => size(value) + mark,
        None => "-".to_owned(),
    };
    let left = row.retained.and_then(|retained| {
        let mark = if retained.basis == Basis::Resident {
            "*"
        } else {
            ""
        };
        Some(signed_size(retained.bytes?) + mark)
    });
    let cells = vec![
        title(row, options.worker),
        format!("{}{running}", units::count(row.n_runs)),
        units::count(row.n(Outcome::Failed)),
        units::count(row.n(Outcome::Killed)),
        row.seconds
            .map_or("-".to_owned(), |time| duration(time.p50)),
        peak(row.peak.map(|peak| peak.p50)),
        peak(row.peak.map(|peak| peak.p95)),
        peak(row.peak.map(|peak| peak.max)),
        left.unwrap_or_else(|| "-".to_owned()),
        verdict(row),
        row.suggested_limit_bytes
            .map_or("-".to_owned(), binary_size),
    ];
    let shares = vec![None; cells.len()];
    Row { cells, shares }
}

fn verdict(row: &JobRow) -> String {
    let trend = row.retained.and_then(|retained| retained.trend);
    match (row.verdict(), trend) {
        (Verdict::Leaks, Some(trend)) => format!("leaks ({})", confidence(trend.confidence)),
        (verdict, _) => verdict.name().to_owned(),
    }
}

/// A confidence from 0 to 1, written as on the jobs page. It is never 100%.
fn confidence(value: f64) -> String {
    match value {
        value if value >= 0.9995 => ">99.9%".to_owned(),
        value => format!("{:.1}%", value * 100.0),
    }
}

fn sites(out: &mut dyn Write, rows: &[JobRow], options: &Options) -> io::Result<()> {
    let known: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((row, row.site.as_ref()?)))
        .collect();
    if known.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", options.style.bold("Largest site of each job"))?;
    for (row, site) in known {
        let title = title(row, options.worker);
        let what = match site.is_of_peak {
            true => "at the peaks of",
            false => "left by",
        };
        let runs = match site.n_runs < row.n_runs {
            true => format!(
                "the {}",
                count(site.n_runs, "measured run", "measured runs")
            ),
            false => "all runs".to_owned(),
        };
        let bytes = size(site.bytes);
        writeln!(out, "  {title}: {bytes} {what} {runs}, {}", site.location)?;
    }
    Ok(())
}

fn legend(out: &mut dyn Write, rows: &[JobRow]) -> io::Result<()> {
    let is_resident = |row: &JobRow| {
        let retained = row.retained;
        row.peak_kind == PeakKind::Resident && row.peak.is_some()
            || retained.is_some_and(|retained| retained.basis == Basis::Resident)
    };
    if rows.iter().any(is_resident) {
        writeln!(
            out,
            "* resident size of the whole process; a recording or a JobTracer measures the job alone"
        )?;
    }
    let is_sampled = |retained: RetainedPerRun| retained.basis == Basis::SampledBlocks;
    if rows.iter().any(|row| row.retained.is_some_and(is_sampled)) {
        writeln!(
            out,
            "estimates from sampled recordings; --json and --html have the errors of the peaks"
        )?;
    }
    let few = rows.iter().any(|row| {
        row.retained
            .is_some_and(|retained| retained.trend.is_none() && !retained.is_shared)
    });
    if few {
        let least = heaptide_analysis::job_runs::trend::MIN_RUNS;
        writeln!(
            out,
            "unknown: a verdict needs {least} measured runs in one process"
        )?;
    }
    let names_of = |is_meant: &dyn Fn(RetainedPerRun) -> bool| {
        let rows = rows.iter().filter(|row| row.retained.is_some_and(is_meant));
        let mut names: Vec<&str> = rows.map(|row| row.name.as_str()).collect();
        names.dedup();
        names
    };
    let names = names_of(&|retained| {
        retained
            .trend
            .is_some_and(|trend| trend.verdict == Verdict::Unknown)
    });
    if !names.is_empty() {
        writeln!(
            out,
            "unknown: few runs of {} left all of the growth; more runs decide",
            list(&names)
        )?;
    }
    let names = names_of(&|retained| retained.is_shared);
    if !names.is_empty() {
        writeln!(
            out,
            "unknown: processes that run {} grow; resident sizes cannot show whether one of these jobs or other code leaks, \
             a recording can",
            list(&names)
        )?;
    }
    if rows.iter().any(|row| row.suggested_limit_bytes.is_some()) {
        writeln!(
            out,
            "limit: highest resident size of a process while it ran the job, plus 20%, rounded up to a multiple of 16 MiB"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_thousands_separators_and_sampled_numbers_are_marked_as_estimates() {
        let retained = |basis| RetainedPerRun {
            basis,
            n_runs: 1000,
            bytes: Some(0),
            trend: None,
            is_shared: false,
        };
        let mut row = JobRow {
            name: "import".to_owned(),
            process: None,
            host: None,
            label: None,
            n_runs: 12_345,
            outcomes: [0; 7],
            n_processes: 1,
            n_hosts: 1,
            seconds: None,
            peak_kind: PeakKind::Job,
            peak: None,
            peak_error: None,
            peak_distribution: None,
            seconds_distribution: None,
            retained: Some(retained(Basis::SampledBlocks)),
            site: None,
            error: None,
            suggested_limit_bytes: None,
            first_started: 0.0,
            last_started: 0.0,
        };
        assert_eq!(count(row.n_runs, "run", "runs"), "12,345 runs");
        let shown = |row: &JobRow| {
            let mut out = Vec::new();
            legend(&mut out, std::slice::from_ref(row)).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(shown(&row).contains("estimates from sampled recordings"));
        row.retained = Some(retained(Basis::Blocks));
        assert!(!shown(&row).contains("estimates"));
    }
}
