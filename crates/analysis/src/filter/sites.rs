//! Decides whether a site of one process passes a filter, when the site first occurs.

use heaptide_capture::Capture;
use heaptide_tally::{JobKey, StackId, Stacks};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Filter;
use super::jobs::WantedJobs;
use crate::symbols::Modules;

/// Whether frames of a stack match a pattern.
#[derive(Clone, Copy, Default)]
struct Marks {
    included: bool,
    excluded: bool,
}

pub(crate) struct SiteFilter {
    /// By code object number.
    of_code: FxHashMap<u32, Marks>,
    /// By stack number; stacks are numbered in order.
    of_stack: Vec<Marks>,
    needs_include: bool,
    /// `None` for all.
    streams: Option<FxHashSet<u32>>,
    /// `None` for all.
    jobs: Option<WantedJobs>,
}

impl SiteFilter {
    pub fn new(filter: &Filter, capture: &Capture) -> SiteFilter {
        let header = &capture.header;
        let modules = Modules::new(header);
        let is_own = |file: &str| {
            let mut folders = header.own_paths.iter();
            folders.any(|folder| file.starts_with(folder.as_str()))
        };
        let mark = |file: &str| {
            let module = modules.of(file);
            let matches = |patterns: &[super::Pattern]| {
                patterns.iter().any(|pattern| pattern.matches(file, module))
            };
            Marks {
                included: matches(&filter.include),
                excluded: matches(&filter.exclude),
            }
        };
        let codes = capture.registry.codes.iter();
        let shown = codes.filter(|(_, code)| !is_own(&code.file));
        let libraries = capture.registry.modules.iter();
        let threads = capture.registry.threads.iter();
        let wanted = threads.filter(|thread| filter.wants_thread(thread, header.main_thread));
        SiteFilter {
            of_code: shown
                .map(|(&id, code)| (id, mark(&code.file)))
                .chain(libraries.map(|(&id, library)| (id, mark(&library.path))))
                .collect(),
            of_stack: Vec::new(),
            needs_include: !filter.include.is_empty(),
            streams: (!filter.threads.is_empty())
                .then(|| wanted.map(|thread| thread.stream).collect()),
            jobs: WantedJobs::new(filter, capture),
        }
    }

    pub fn wants(&mut self, stacks: &Stacks, stack: StackId, stream: u32, job: JobKey) -> bool {
        if self.jobs.as_ref().is_some_and(|jobs| !jobs.has(job)) {
            return false;
        }
        let is_its_thread = |streams: &FxHashSet<u32>| streams.contains(&stream);
        if !self.streams.as_ref().is_none_or(is_its_thread) {
            return false;
        }
        let marks = self.marks(stacks, stack);
        !marks.excluded && (marks.included || !self.needs_include)
    }

    /// Marks all stacks up to this one. Callers have smaller numbers than callees, so one pass in order is enough.
    fn marks(&mut self, stacks: &Stacks, stack: StackId) -> Marks {
        while self.of_stack.len() <= stack.0 as usize {
            let at = StackId(self.of_stack.len() as u32);
            let marks = stacks.get(at).map_or_else(Marks::default, |stack| {
                let caller = self.of_stack[stack.parent.0 as usize];
                let own = self.of_code.get(&stack.frame.code);
                let own = own.copied().unwrap_or_default();
                Marks {
                    included: caller.included || own.included,
                    excluded: caller.excluded || own.excluded,
                }
            });
            self.of_stack.push(marks);
        }
        self.of_stack[stack.0 as usize]
    }
}
