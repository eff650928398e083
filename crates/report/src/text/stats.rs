//! `heaptide stats`, in memray's layout.

use std::io::{self, Write};

use heaptide_analysis::model::{
    Finding, Histogram, JobGroup, LifetimeClass, Location, Measure, PeakMoment, Quality, Stats,
};
use heaptide_tally::Amount;

use super::findings::{blocks, evidence, ledger_rows, seconds, sentence};
use super::shorten::wrap;
use super::{Style, notes};
use crate::units::{count, size};

const BAR_CELLS: u64 = 25;
const SIZE_CELLS: usize = 9;
/// The columns of the tab before each line.
const TAB_CELLS: usize = 8;
/// A smaller share of the peak resident size is not worth a line.
const MIN_OWN_SHARE: f64 = 0.1;

/// `n_largest` is only for the headings; the stats already have this many rows. Lines are wrapped at `max_width` columns.
pub fn stats(
    out: &mut dyn Write,
    stats: &Stats,
    n_largest: usize,
    style: Style,
    max_width: Option<usize>,
) -> io::Result<()> {
    let mut page = Page {
        out,
        style,
        max_width: max_width.map(|columns| columns.saturating_sub(TAB_CELLS)),
        is_first: true,
    };
    page.incomplete(&stats.quality)?;
    page.heading("📏", "Total allocations:")?;
    let total = |text: String| {
        if stats.quality.lacks_totals {
            "not in this capture".to_owned()
        } else {
            text
        }
    };
    page.line(&total(count(stats.n_allocations)))?;
    page.heading("📦", "Total memory allocated:")?;
    page.line(&total(size(stats.total_bytes)))?;
    let peak = notes::peak_heading(&stats.quality).map_or(String::new(), |it| format!(" ({it})"));
    page.heading("📈", &format!("Peak memory usage{peak}:"))?;
    page.line(&size(stats.peak_bytes))?;
    match stats.leaked {
        Some((bytes, number)) => {
            let moment = notes::end_heading(&stats.quality);
            let moment = moment.unwrap_or("alive at the end".to_owned());
            page.heading("💧", &format!("Leaked memory ({moment}):"))?;
            page.line(&format!("{} in {}", size(bytes), blocks(number)))?;
        }
        None => {
            page.heading("📊", "Histogram of allocation size:")?;
            match &stats.histogram {
                Some(histogram) => page.histogram(histogram)?,
                None => page.line("<no data for histogram>")?,
            }
        }
    }
    page.heading("📂", "Allocator type distribution:")?;
    for &(allocator, number) in &stats.allocators {
        page.line(&format!(" {}: {}", allocator.name(), count(number)))?;
    }
    let (largest, allocating) = match stats.leaked {
        Some(_) => ("leaking locations", "leaking modules"),
        None => ("largest allocating locations", "allocating modules"),
    };
    page.heading("🥇", &format!("Top {n_largest} {largest} (by size):"))?;
    for sum in &stats.top_by_size {
        let at = location(sum.location.as_ref());
        page.line(&format!("- {at} -> {}", size(sum.bytes)))?;
    }
    page.heading(
        "🥇",
        &format!("Top {n_largest} {largest} (by number of allocations):"),
    )?;
    for sum in &stats.top_by_count {
        let at = location(sum.location.as_ref());
        page.line(&format!("- {at} -> {}", count(sum.count)))?;
    }
    for (modules, by) in [
        (&stats.modules_by_size, "by size"),
        (&stats.modules_by_count, "by number of allocations"),
    ] {
        if modules.is_empty() {
            continue;
        }
        page.heading("🥇", &format!("Top {n_largest} {allocating} ({by}):"))?;
        for sum in modules {
            let bytes = size(sum.bytes);
            page.line(&format!(
                "- {}: {bytes} total | {} allocations",
                sum.module,
                count(sum.count)
            ))?;
        }
    }
    let lifetimes = match stats.leaked {
        Some(_) => &[],
        None => stats.lifetimes.as_slice(),
    };
    if !lifetimes.is_empty() {
        page.heading("⏳", "How long blocks lived:")?;
    }
    let last = match stats.quality.processes.len() {
        0 | 1 => "alive at the end",
        _ => "alive at the end of their process",
    };
    for (lived, class) in lifetime_lines(lifetimes, last) {
        page.line(&format!(
            "- {lived}: {}, {}",
            blocks(class.count),
            size(class.bytes)
        ))?;
    }
    page.jobs(&stats.jobs)?;
    page.process_groups(stats)?;
    page.findings(&stats.findings)?;
    page.additions(stats)
}

/// Returns lifetime classes with their names; `last` is the name of blocks that were never freed. Very short lifetimes can
/// have the same name: then their classes are merged.
fn lifetime_lines(classes: &[LifetimeClass], last: &str) -> Vec<(String, LifetimeClass)> {
    let mut lines: Vec<(String, LifetimeClass)> = Vec::new();
    for class in classes {
        let lived = class.below_ns.map_or(last.to_owned(), |ns| {
            format!("less than {}", seconds(ns).trim_start_matches("less than "))
        });
        match lines.last_mut() {
            Some((name, sum)) if *name == lived => {
                sum.bytes = sum.bytes.saturating_add(class.bytes);
                sum.count = sum.count.saturating_add(class.count);
            }
            _ => lines.push((lived, *class)),
        }
    }
    lines
}

/// A size, with its error (95%) if it is an estimate.
fn with_error(amount: Amount) -> String {
    match amount.error_bytes() {
        error if error >= 1.0 => format!("{} ± {}", size(amount.bytes), size(error as u64)),
        _ => size(amount.bytes),
    }
}

/// `function:file:line`, as in texts and in JSON; memory without a line of source has only a name.
pub fn location(location: Option<&Location>) -> String {
    match location {
        Some(at) if at.is_python_arena() => at.function.to_string(),
        Some(at) => format!("{}:{}", at.function, at.file_and_line()),
        None => "<stack trace unavailable>".to_owned(),
    }
}

struct Page<'a> {
    out: &'a mut dyn Write,
    style: Style,
    /// The columns after the tab of a line.
    max_width: Option<usize>,
    is_first: bool,
}

impl Page<'_> {
    fn heading(&mut self, sign: &str, label: &str) -> io::Result<()> {
        if !std::mem::take(&mut self.is_first) {
            writeln!(self.out)?;
        }
        writeln!(self.out, "{sign} {}", self.style.bold(label))
    }

    fn jobs(&mut self, jobs: &[JobGroup]) -> io::Result<()> {
        if !jobs.is_empty() {
            self.heading("🧰", "Jobs (largest peak first):")?;
        }
        for job in jobs {
            let n_jobs = match job.n_jobs {
                1 => "1 job".to_owned(),
                n => format!("{n} jobs"),
            };
            let counted = |n: u64, what: &str| match n {
                0 => String::new(),
                n => format!(", {n} {what}"),
            };
            // "0 B" would claim that jobs left nothing at their end. Here no job has ended.
            let retained = match job.n_running == job.n_jobs {
                true => String::new(),
                false => format!(", retained {}", with_error(job.retained)),
            };
            self.line(&format!(
                "- {} ({n_jobs}{}{}): peak {}{retained}, allocated {}, retained now {}",
                job.name,
                counted(job.n_failed, "failed"),
                counted(job.n_running, "not ended"),
                with_error(job.peak),
                with_error(job.allocated),
                with_error(job.retained_now),
            ))?;
        }
        Ok(())
    }

    fn process_groups(&mut self, stats: &Stats) -> io::Result<()> {
        // The peak of a process alone is usually higher and at another time than its share of the common peak.
        let (order, peak) = match stats.quality.peak_moment {
            PeakMoment::Common(_) => ("largest at the common peak first", "at the common peak"),
            PeakMoment::OfProcess | PeakMoment::EachOwn => ("largest peak first", "peak"),
        };
        if !stats.process_groups.is_empty() {
            self.heading("🧩", &format!("Processes ({order}):"))?;
        }
        for group in &stats.process_groups {
            let n_processes = match group.n_processes {
                1 => String::new(),
                n => format!(" ({n} processes)"),
            };
            self.line(&format!(
                "- {}{n_processes}: {peak} {}, allocated {}, live at the end {}",
                group.name,
                with_error(group.peak),
                with_error(group.allocated),
                with_error(group.live),
            ))?;
        }
        Ok(())
    }

    fn incomplete(&mut self, quality: &Quality) -> io::Result<()> {
        let notes = notes::incomplete(quality);
        if !notes.is_empty() {
            self.heading("🛑", "Incomplete:")?;
        }
        for note in notes {
            self.line(&note)?;
        }
        Ok(())
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        self.painted_line("", text, |part| part.to_owned())
    }

    /// Writes a line that begins with `sign`, wrapped and indented like the text after the sign.
    fn painted_line(
        &mut self,
        sign: &str,
        text: &str,
        paint: impl Fn(&str) -> String,
    ) -> io::Result<()> {
        let unsigned = text.trim_start_matches([' ', '-']);
        let indent = " ".repeat(sign.len() + text.len() - unsigned.len());
        let room = self.max_width.map(|all| all.saturating_sub(indent.len()));
        let mut start = format!("{sign}{}", &text[..text.len() - unsigned.len()]);
        for part in wrap(unsigned, room) {
            writeln!(self.out, "\t{start}{}", paint(&part))?;
            start.clone_from(&indent);
        }
        Ok(())
    }

    fn histogram(&mut self, histogram: &Histogram) -> io::Result<()> {
        let highest = histogram
            .bins
            .iter()
            .map(|bin| bin.count)
            .max()
            .unwrap_or(0);
        let digits = highest.to_string().len();
        let rule =
            "-".repeat("<=".len() + SIZE_CELLS + " :".len() + digits + 1 + BAR_CELLS as usize);
        self.line(&format!("min: {}", size(histogram.smallest)))?;
        self.line(&rule)?;
        for (at, bin) in histogram.bins.iter().enumerate() {
            let relation = if at + 1 == histogram.bins.len() {
                "<="
            } else {
                "< "
            };
            let cells = (u128::from(bin.count) * u128::from(BAR_CELLS))
                .div_ceil(u128::from(highest.max(1)));
            let bar = "▇".repeat(cells as usize);
            let edge = size(bin.to);
            self.line(&format!(
                "{relation}{edge:<SIZE_CELLS$}: {:>digits$} {bar}",
                bin.count
            ))?;
        }
        self.line(&rule)?;
        self.line(&format!("max: {}", size(histogram.largest)))
    }

    fn findings(&mut self, findings: &[Finding]) -> io::Result<()> {
        if !findings.is_empty() {
            self.heading("🔎", "Findings:")?;
        }
        for finding in findings {
            let headline = sentence(&finding.headline);
            let style = self.style;
            self.painted_line("- ", &headline, |part| style.bold(part))?;
            for line in evidence(finding) {
                self.line(&format!("  {line}"))?;
            }
            self.line(&format!("  {}", finding.advice))?;
        }
        Ok(())
    }

    /// The parts that memray does not have: the process outside the heap, and the reliability of the numbers.
    fn additions(&mut self, stats: &Stats) -> io::Result<()> {
        let processes = &stats.quality.processes;
        let resident = processes.iter().filter_map(|process| {
            let peak = process.resident_peak_bytes?;
            Some((process, peak))
        });
        let resident: Vec<_> = resident.collect();
        if !resident.is_empty() {
            self.heading("🏠", "Peak resident size:")?;
        }
        for (process, peak) in resident {
            let of = if processes.len() > 1 {
                format!(" in process {}", process.shown)
            } else {
                String::new()
            };
            let limit = process.limit_bytes.map_or(String::new(), |limit| {
                format!(" of {} allowed", size(limit))
            });
            self.line(&format!("{}{limit}{of}", size(peak)))?;
            // A heap snapshot needs memory, so the program alone may have had less.
            let own = process.own_at_resident_peak_bytes.unwrap_or(0).min(peak);
            if own as f64 >= peak as f64 * MIN_OWN_SHARE {
                self.line(&format!(
                    "up to {} of it were the profiler's own",
                    size(own)
                ))?;
            }
        }
        for process in processes {
            let Some(ledger) = &process.ledger else {
                continue;
            };
            let of = if processes.len() > 1 {
                format!(" of process {}", process.shown)
            } else {
                String::new()
            };
            let resident = size(ledger.resident_bytes);
            self.heading("🧾", &format!("Resident memory{of} at the end: {resident}"))?;
            for (name, bytes) in ledger_rows(ledger) {
                self.line(&format!("{:>12} {name}", size(bytes)))?;
            }
            if ledger.not_resident_bytes > 0 {
                self.line(&format!(
                    "{} more were allocated and are not resident: never touched, or swapped out",
                    size(ledger.not_resident_bytes)
                ))?;
            }
        }
        let measure = match stats.leaked {
            Some(_) => Measure::Leaked,
            None => Measure::Peak,
        };
        let mut notes = notes::footer(&stats.quality, measure);
        notes.extend(notes::remarks(&stats.quality));
        if !notes.is_empty() {
            self.heading("📝", "Notes:")?;
        }
        for note in notes {
            self.line(&format!("- {note}"))?;
        }
        if let Some(folded) = notes::folded(&stats.quality) {
            let room = self.max_width.map(|all| all + TAB_CELLS);
            writeln!(
                self.out,
                "\n{}",
                wrap(&format!("({folded})"), room).join("\n")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retained_bytes_are_left_out_if_no_job_of_the_group_ended() {
        let amount = |bytes| Amount {
            bytes,
            ..Amount::default()
        };
        let group = |n_running| JobGroup {
            name: "import".to_owned(),
            n_jobs: 2,
            n_running,
            peak: amount(7_000_000),
            allocated: amount(14_000_000),
            retained_now: amount(14_000_000),
            ..JobGroup::default()
        };
        let mut out = Vec::new();
        let mut page = Page {
            out: &mut out,
            style: Style::Plain,
            max_width: None,
            is_first: true,
        };
        page.jobs(&[group(2), group(1)]).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected =
            "(2 jobs, 2 not ended): peak 7.00 MB, allocated 14.0 MB, retained now 14.0 MB";
        assert!(text.contains(expected), "{text}");
        assert!(
            text.contains("(2 jobs, 1 not ended): peak 7.00 MB, retained 0 B"),
            "{text}"
        );
    }

    #[test]
    fn last_lifetime_has_the_given_name() {
        let class = LifetimeClass {
            below_ns: None,
            bytes: 1,
            count: 1,
        };
        let lines = lifetime_lines(&[class], "alive at the end of their process");
        assert_eq!(lines[0].0, "alive at the end of their process");
    }
}
