//! The content of the registry stream: threads, code objects and libraries, which event streams refer to by number.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::jobs::Jobs;
use crate::header::Mode;
use crate::labels::Labels;
use crate::registry::{Code, Entry, Lost, MemoryPart, ModeChange, Module, Symbol};
use crate::stop_mark::StopMark;
use crate::wire::Reader;

/// A code object's description.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CodeText {
    pub first_line: i32,
    pub name: String,
    pub qualified_name: String,
    pub file: String,
    /// As in [`Code::line_table`].
    pub line_table: Vec<u8>,
}

/// A library or executable that contains native frames.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ModuleText {
    /// In angle brackets if there is no file.
    pub path: String,
    pub build_id: Vec<u8>,
    /// Its addresses in the process, in the order in which Heaptide saw them.
    pub mappings: Vec<ModuleMapping>,
}

/// A function at an address. If functions are inlined, an address has several.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SymbolText {
    pub function: String,
    /// Empty if unknown.
    pub file: String,
    pub line: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ModuleMapping {
    /// Difference between an address in the process and the address in the file.
    pub base: u64,
    pub start: u64,
    pub length: u64,
    /// Clock units at which a frame in it was first seen there.
    pub time: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ThreadInfo {
    pub stream: u32,
    /// 0 if the thread's entry is missing.
    pub os_id: u32,
    pub name: Option<String>,
    /// Clock units at which it first recorded.
    pub started: u64,
}

/// Resident size of the process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Resident {
    /// Clock units.
    pub time: u64,
    pub bytes: u64,
}

/// Three clocks at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClockPoint {
    /// Raw counter ticks, not clock units.
    pub ticks: u64,
    pub monotonic_ns: u64,
    pub unix_ns: u64,
}

/// The content of the registry stream.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// By the number in Python frames.
    pub codes: HashMap<u32, CodeText>,
    /// By the number in native frames; code objects have other numbers.
    pub modules: BTreeMap<u32, ModuleText>,
    /// By module and offset: the functions at that address, the outermost first. Only bundled captures have them.
    pub symbols: HashMap<(u32, u32), Vec<SymbolText>>,
    /// By stream, ascending.
    pub threads: Vec<ThreadInfo>,
    /// By time, ascending; thinned evenly if there are very many.
    pub resident: Vec<Resident>,
    /// Memory limit of the process's control group, in bytes.
    pub limit: Option<u64>,
    /// By ticks, ascending. The first was taken when recording began.
    pub clocks: Vec<ClockPoint>,
    /// Number of missing events, by reason.
    pub lost: Vec<(Lost, u64)>,
    /// Peak of Heaptide's own memory in the program, in bytes.
    pub own_memory: u64,
    /// Parts of the process's memory that are not sums of blocks.
    pub memory: BTreeMap<MemoryPart, u64>,
    /// The jobs that ran while the process was recorded. Shared, because there may be very many.
    pub jobs: Arc<Jobs>,
    /// Labels set after the header was written; [`super::Capture`] puts them into the header.
    pub labels: Labels,
    /// Changes of the mode, by number from 1 on without gaps.
    pub mode_changes: Vec<ModeChange>,
    /// Clock units at which the recording ended normally; `None` after a kill, or while it continues.
    pub end: Option<u64>,
    /// The recording stopped because it failed; events after that are not in the capture.
    pub stopped: Option<StopMark>,
    tick_shift: u32,
}

impl Registry {
    /// Returns an empty registry for a capture whose clock units are `1 << tick_shift` ticks.
    pub fn new(tick_shift: u32) -> Registry {
        Registry {
            tick_shift,
            ..Registry::default()
        }
    }

    /// Returns the nanoseconds from the beginning of recording to a time in clock units. Between two clock points the
    /// counter is assumed to run evenly; after the last one, at the mean rate. A program that was
    /// killed at once leaves a single point; a tick then counts as a nanosecond.
    pub fn elapsed_ns(&self, units: u64) -> u64 {
        let (Some(first), Some(last)) = (self.clocks.first(), self.clocks.last()) else {
            return 0;
        };
        let ticks = u128::from(units) << self.tick_shift.min(63);
        let n_before = self
            .clocks
            .partition_point(|point| u128::from(point.ticks) <= ticks);
        let (base, from, to) = match (n_before, self.clocks.get(n_before)) {
            (0, _) => return 0,
            (_, Some(next)) => {
                let previous = &self.clocks[n_before - 1];
                (previous, previous, next)
            }
            (_, None) => (last, first, last),
        };
        let (step_ns, step_ticks) = match to.ticks.saturating_sub(from.ticks) {
            0 => (1, 1),
            step => (
                u128::from(to.monotonic_ns.saturating_sub(from.monotonic_ns)),
                u128::from(step),
            ),
        };
        let since_base = (ticks - u128::from(base.ticks)).saturating_mul(step_ns) / step_ticks;
        let base_ns = base.monotonic_ns.saturating_sub(first.monotonic_ns);
        u64::try_from(since_base)
            .unwrap_or(u64::MAX)
            .saturating_add(base_ns)
    }
}

impl Registry {
    /// Returns all modes of the recording, by time; `first` is that of the header.
    pub fn modes(&self, first: Mode) -> impl Iterator<Item = Mode> + '_ {
        let later = self.mode_changes.iter().map(|change| change.mode);
        std::iter::once(first).chain(later)
    }

    fn add_module(&mut self, module: &Module) {
        let known = self.modules.entry(module.id).or_default();
        known.path = text(module.path);
        known.build_id = module.build_id.to_vec();
        known.mappings.push(ModuleMapping {
            base: module.base,
            start: module.start,
            length: module.length,
            time: module.time,
        });
    }

    fn add_symbol(&mut self, symbol: &Symbol) {
        let at = (symbol.module, symbol.offset);
        self.symbols.entry(at).or_default().push(SymbolText {
            function: text(symbol.function),
            file: text(symbol.file),
            line: symbol.line,
        });
    }

    /// Converts a duration in clock units to nanoseconds, at the mean rate.
    pub fn span_ns(&self, units: u64) -> u64 {
        let ticks = u128::from(units) << self.tick_shift.min(63);
        let ns = match (self.clocks.first(), self.clocks.last()) {
            (Some(first), Some(last)) if last.ticks > first.ticks => {
                let step_ns = u128::from(last.monotonic_ns.saturating_sub(first.monotonic_ns));
                ticks.saturating_mul(step_ns) / u128::from(last.ticks - first.ticks)
            }
            _ => ticks,
        };
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// Collects entries, chunk after chunk, in the order in which they were written.
#[derive(Clone)]
pub struct RegistryBuilder {
    registry: Registry,
    threads: BTreeMap<u32, ThreadInfo>,
    lost: BTreeMap<Lost, u64>,
    jobs: Jobs,
    /// Number of samples that are merged into one.
    resident_stride: usize,
    /// Number of samples merged into the last kept one.
    n_merged: usize,
}

impl RegistryBuilder {
    /// More samples than any graph shows; above this, neighbours are merged.
    const MAX_RESIDENT: usize = 200_000;
    const MAX_CLOCKS: usize = 65_536;

    pub fn new(tick_shift: u32) -> Self {
        RegistryBuilder {
            registry: Registry::new(tick_shift),
            threads: BTreeMap::new(),
            lost: BTreeMap::new(),
            jobs: Jobs::default(),
            resident_stride: 1,
            n_merged: 0,
        }
    }

    /// Takes the entries of one chunk. Returns false if it contains an invalid entry.
    pub(super) fn add_chunk(&mut self, raw: &[u8]) -> bool {
        let mut input = Reader::new(raw);
        while !input.is_at_end() {
            match Entry::read(&mut input) {
                Some(Some(entry)) => self.add(entry),
                // An entry of a later release.
                Some(None) => {}
                None => return false,
            }
        }
        true
    }

    pub fn add(&mut self, entry: Entry) {
        let registry = &mut self.registry;
        match entry {
            Entry::Code(code) => {
                registry.codes.insert(code.id, CodeText::new(&code));
            }
            Entry::Module(module) => registry.add_module(&module),
            Entry::Symbol(symbol) => registry.add_symbol(&symbol),
            Entry::Thread {
                stream,
                os_id,
                time,
            } => {
                let thread = self.thread(stream);
                thread.os_id = os_id;
                thread.started = time;
            }
            Entry::ThreadName { stream, name } => {
                self.thread(stream).name = Some(text(name));
            }
            Entry::Resident { time, bytes } => self.add_resident(Resident { time, bytes }),
            Entry::Limit { bytes } => registry.limit = Some(bytes),
            Entry::Clock {
                ticks,
                monotonic_ns,
                unix_ns,
            } => self.add_clock(ClockPoint {
                ticks,
                monotonic_ns,
                unix_ns,
            }),
            Entry::Lost { reason, count } => {
                let sum = self.lost.entry(reason).or_default();
                *sum = sum.saturating_add(count);
            }
            Entry::OwnMemory { bytes } => registry.own_memory = registry.own_memory.max(bytes),
            Entry::Memory { part, bytes } => {
                registry.memory.insert(part, bytes);
            }
            Entry::JobBegan(job) => self.jobs.begin(&job),
            Entry::JobEnded(job) => self.jobs.end(&job),
            Entry::Label { key, value } => registry.labels.push((text(key), text(value))),
            Entry::ModeChange(change) => {
                // The file is not trusted: numbers must have no gaps.
                if change.number as usize == registry.mode_changes.len() + 1 {
                    registry.mode_changes.push(change);
                }
            }
            Entry::End { time } => registry.end = Some(time),
        }
    }

    fn thread(&mut self, stream: u32) -> &mut ThreadInfo {
        self.threads.entry(stream).or_insert_with(|| ThreadInfo {
            stream,
            ..ThreadInfo::default()
        })
    }

    /// Keeps the largest of the merged samples, so that the highest sample is never lost.
    fn add_resident(&mut self, sample: Resident) {
        let kept = &mut self.registry.resident;
        match kept.last_mut() {
            Some(last) if self.n_merged < self.resident_stride => {
                *last = larger(*last, sample);
                self.n_merged += 1;
            }
            _ => {
                if kept.len() >= RegistryBuilder::MAX_RESIDENT {
                    *kept = kept
                        .chunks(2)
                        .map(|pair| pair.iter().copied().fold(pair[0], larger))
                        .collect();
                    self.resident_stride *= 2;
                }
                kept.push(sample);
                self.n_merged = 1;
            }
        }
    }

    fn add_clock(&mut self, point: ClockPoint) {
        let clocks = &mut self.registry.clocks;
        if clocks.len() >= RegistryBuilder::MAX_CLOCKS {
            let mut index = 0;
            clocks.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
        clocks.push(point);
    }

    pub fn finish(self) -> Registry {
        let mut registry = self.registry;
        registry.threads = self.threads.into_values().collect();
        registry.lost = self.lost.into_iter().collect();
        registry.jobs = Arc::new(self.jobs);
        registry.resident.sort_by_key(|sample| sample.time);
        registry.clocks.sort_by_key(|point| point.ticks);
        // A point at which one of the clocks stops or goes back shows nothing about the rate of the other.
        registry.clocks.dedup_by(|later, kept| {
            later.ticks == kept.ticks || later.monotonic_ns < kept.monotonic_ns
        });
        registry
    }
}

impl CodeText {
    fn new(code: &Code) -> CodeText {
        CodeText {
            first_line: code.first_line,
            name: text(code.name),
            qualified_name: text(code.qualifier) + &text(code.name),
            file: text(code.file),
            line_table: code.line_table.to_vec(),
        }
    }
}

fn larger(one: Resident, other: Resident) -> Resident {
    if other.bytes > one.bytes { other } else { one }
}

/// Names are shown, not compared: bytes that are not UTF-8 are replaced.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(entries: &[Entry], tick_shift: u32) -> Registry {
        let mut builder = RegistryBuilder::new(tick_shift);
        for entry in entries {
            let mut bytes = vec![0; 1024];
            let len = entry.write(&mut bytes);
            assert!(builder.add_chunk(&bytes[..len]));
        }
        builder.finish()
    }

    fn clock(ticks: u64, monotonic_ns: u64) -> Entry<'static> {
        Entry::Clock {
            ticks,
            monotonic_ns,
            unix_ns: 0,
        }
    }

    #[test]
    fn time_is_interpolated_between_clock_points_and_continues_at_the_mean_rate() {
        let registry = registry(&[clock(1600, 50), clock(3200, 150), clock(6400, 850)], 4);
        assert_eq!(registry.elapsed_ns(0), 0);
        assert_eq!(registry.elapsed_ns(100), 0);
        assert_eq!(registry.elapsed_ns(150), 50);
        assert_eq!(registry.elapsed_ns(200), 100);
        assert_eq!(registry.elapsed_ns(300), 450);
        assert_eq!(registry.elapsed_ns(400), 800);
        assert_eq!(registry.elapsed_ns(700), 1600);
    }

    #[test]
    fn time_without_two_clock_points_neither_fails_nor_goes_back() {
        assert_eq!(Registry::new(3).elapsed_ns(77), 0);
        let registry = registry(&[clock(1600, 50)], 4);
        assert_eq!(registry.elapsed_ns(99), 0);
        assert_eq!(registry.elapsed_ns(101), 16);
        assert_eq!(registry.elapsed_ns(u64::MAX), u64::MAX);
    }

    #[test]
    fn time_never_goes_back_if_the_clocks_in_the_file_do() {
        let registry = registry(&[clock(10, 500), clock(20, 400), clock(15, 600)], 0);
        let times: Vec<u64> = (0..40).map(|units| registry.elapsed_ns(units)).collect();
        assert!(times.is_sorted());
    }

    #[test]
    fn lost_counts_add_up_and_the_last_thread_name_wins() {
        let lost = |count| Entry::Lost {
            reason: Lost::WriteFailed,
            count,
        };
        let name = |name| Entry::ThreadName { stream: 1, name };
        let thread = Entry::Thread {
            stream: 1,
            os_id: 99,
            time: 5,
        };
        let registry = registry(
            &[name(b"early"), thread, lost(2), lost(3), name(b"w\xffrker")],
            0,
        );
        assert_eq!(registry.lost, [(Lost::WriteFailed, 5)]);
        let expected = ThreadInfo {
            stream: 1,
            os_id: 99,
            name: Some("w\u{fffd}rker".into()),
            started: 5,
        };
        assert_eq!(registry.threads, [expected]);
    }

    #[test]
    fn very_many_samples_are_thinned_without_losing_the_highest() {
        let mut builder = RegistryBuilder::new(0);
        for time in 0..1_000_000 {
            let bytes = if time == 777_777 { 5_000 } else { time % 1000 };
            builder.add_resident(Resident { time, bytes });
        }
        let registry = builder.finish();
        assert!(registry.resident.len() <= RegistryBuilder::MAX_RESIDENT);
        assert!(registry.resident.len() > RegistryBuilder::MAX_RESIDENT / 2);
        assert!(registry.resident.is_sorted_by_key(|sample| sample.time));
        let highest = registry.resident.iter().max_by_key(|sample| sample.bytes);
        assert_eq!(highest.map(|sample| sample.time), Some(777_777));
    }
}
