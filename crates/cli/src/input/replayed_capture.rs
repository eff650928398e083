//! One capture for formats that list its events: the session with its names, and the events with their stacks.

use std::io::{self, Write};

use clap::ArgMatches;
use heaptide_analysis::events::{Event, events};
use heaptide_analysis::model::{ProcessStacks, Reading, StackModel};
use heaptide_analysis::{Process, Session, stacks_with_index};
use heaptide_report::text::notes;
use heaptide_report::transform;

use crate::exit::Failure;
use crate::input;
use crate::messages::message;
use crate::options::filters;
use crate::output::destination::Destination;

pub(crate) const LIST: &str = "events";
pub(crate) const LIST_DESCRIPTION: &str = "a line for each allocation and free";

/// A session of one process.
pub(crate) struct ReplayedCapture {
    session: Session,
    pub model: StackModel,
    index: Vec<Vec<Option<usize>>>,
    has_filters: bool,
}

impl ReplayedCapture {
    pub(crate) fn load(matches: &ArgMatches) -> Result<ReplayedCapture, Failure> {
        let request = filters::request(matches);
        let has_filters = request.filter.chooses_sites() || request.filter.chooses_time();
        let session = input::session_with(matches, request)?;
        if session.processes.len() != 1 {
            return Err(Failure::Usage(format!(
                "this format holds one process: choose one of {} with --process",
                session.processes.len()
            )));
        }
        let (model, index) = stacks_with_index(&session);
        // These formats have no room for notes.
        for note in notes::incomplete(&model.quality) {
            message!("{note}");
        }
        Ok(ReplayedCapture {
            session,
            model,
            index,
            has_filters,
        })
    }

    pub(crate) fn process(&self) -> &Process {
        &self.session.processes[0]
    }

    pub(crate) fn stacks(&self) -> &ProcessStacks {
        &self.model.processes[0]
    }

    /// Whether every event can be listed: the capture has all of them, and no filter was given.
    pub(crate) fn has_events(&self) -> bool {
        let process = self.process();
        let mode = process.header.mode;
        !mode.aggregate && mode.sample_bytes == 0 && !self.has_filters && process.sums.has_totals
    }

    /// Passes the events and the samples of the resident size to `handle`, in order of time.
    pub(crate) fn replay(
        &self,
        handle: &mut dyn FnMut(Step) -> io::Result<()>,
    ) -> Result<io::Result<()>, Failure> {
        // Opened again, because loading consumed the first capture.
        let process = self.process();
        let capture = input::open_one(&process.path)?;
        let mut samples = self.stacks().resident.iter().copied().peekable();
        let mut result = events(&capture, process, &self.index[0], &mut |event| {
            while let Some(sample) = samples.next_if(|it| it.elapsed_ns <= event.elapsed_ns) {
                handle(Step::Resident(sample))?;
            }
            handle(Step::Event(event))
        });
        for sample in samples {
            result = result.and_then(|()| handle(Step::Resident(sample)));
        }
        Ok(result)
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Step {
    Event(Event),
    Resident(Reading),
}

/// `heaptide transform events`: writes all events as lines.
pub(crate) fn write_list(matches: &ArgMatches) -> Result<(), Failure> {
    write_steps(matches, LIST, "tsv", &mut |out, step| match step {
        Some(Step::Event(event)) => transform::events::event(out, event),
        Some(Step::Resident(sample)) => transform::events::resident(out, sample),
        None => Ok(()),
    })
}

/// Writes one step; with `None`, the text between the preface and the first step.
pub(crate) type StepWriter<'a> = dyn FnMut(&mut dyn Write, Option<Step>) -> io::Result<()> + 'a;

/// Writes the lines, stacks and threads of a capture, calls `write` with `None`, and then with each step.
pub(crate) fn write_steps(
    matches: &ArgMatches,
    format: &str,
    extension: &str,
    write: &mut StepWriter,
) -> Result<(), Failure> {
    let destination = Destination::choose(matches, input::first(matches)?, format, extension)?;
    let capture = ReplayedCapture::load(matches)?;
    if !capture.has_events() {
        return Err(Failure::failed(
            "cannot list events, because the capture holds sums or a sample, or filters were given: \
             record every allocation, and omit filters",
        ));
    }
    let mut output = destination.open()?;
    let streams = capture.process().registry.threads.iter();
    let threads = streams.map(|thread| {
        let name = thread.name.as_deref().unwrap_or_default();
        (thread.stream, u64::from(thread.os_id), name)
    });
    let written = output.write(|out: &mut dyn Write| {
        transform::events::preface(out, &capture.model, threads)?;
        write(out, None)?;
        match capture.replay(&mut |step| write(out, Some(step))) {
            Ok(written) => written,
            Err(_) => Err(io::ErrorKind::NotFound.into()),
        }
    });
    written?;
    output.finish()
}
