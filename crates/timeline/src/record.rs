//! Writes a timeline during the run. Every call ends in one write of whole lines, so a kill at any instant loses at most the
//! last sample.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::model::{Call, Ending, Header, Memory};
use crate::{heaptide_format, mprof_format};

/// The format of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Heaptide's: every process with all its sizes.
    Heaptide,
    /// mprof's `.dat`.
    Mprof {
        /// `-C`: the main curve is the sum of all processes instead of the first one alone.
        include_children: bool,
        /// `-M`: a curve for each child.
        multiprocess: bool,
    },
}

/// A process that is new, or has a new name.
#[derive(Clone, Debug)]
pub struct NewProcess<'a> {
    /// Its number in this file; pids may be reused.
    pub number: usize,
    pub pid: u32,
    pub parent: u32,
    pub name: &'a str,
    pub command: &'a str,
    pub start: &'a str,
}

/// One sample of all processes.
#[derive(Clone, Debug, Default)]
pub struct Tick {
    pub time_s: f64,
    /// Number, pid and memory of each process; the program itself has number 0.
    pub processes: Vec<(usize, u32, Memory)>,
    pub group: Option<u64>,
    pub limit: Option<u64>,
}

/// Returns the header of a file.
pub fn header_text(format: Format, header: &Header) -> String {
    let mut text = String::new();
    match format {
        Format::Heaptide => heaptide_format::header(&mut text, header),
        Format::Mprof { .. } => mprof_format::header(&mut text, header),
    }
    text
}

/// Writes one file.
pub struct Recorder<W: Write> {
    out: W,
    format: Format,
    header: Header,
    line: String,
    written: heaptide_format::Written,
}

impl<W: Write> Recorder<W> {
    /// Writes the header and continues after it.
    pub fn begin(mut out: W, format: Format, header: Header) -> io::Result<Recorder<W>> {
        out.write_all(header_text(format, &header).as_bytes())?;
        Ok(Recorder::after_header(out, format, header))
    }

    /// Continues a file that has its header.
    pub fn after_header(out: W, format: Format, header: Header) -> Recorder<W> {
        Recorder {
            out,
            format,
            header,
            line: String::new(),
            written: heaptide_format::Written::default(),
        }
    }

    pub fn appeared(&mut self, time_s: f64, process: &NewProcess<'_>) -> io::Result<()> {
        if self.format == Format::Heaptide {
            heaptide_format::appeared(&mut self.line, time_s - self.header.started_s, process);
        }
        self.flush()
    }

    pub fn ended(&mut self, time_s: f64, number: usize) -> io::Result<()> {
        if self.format == Format::Heaptide {
            let time_s = time_s - self.header.started_s;
            heaptide_format::ended(&mut self.line, &mut self.written, time_s, number);
        }
        self.flush()
    }

    pub fn tick(&mut self, tick: &Tick) -> io::Result<()> {
        match self.format {
            Format::Heaptide => {
                heaptide_format::tick(&mut self.line, &mut self.written, &self.header, tick)
            }
            Format::Mprof {
                include_children,
                multiprocess,
            } => mprof_format::tick(
                &mut self.line,
                &mut self.written.limit,
                self.header.backend,
                tick,
                (include_children, multiprocess),
            ),
        }
        self.flush()
    }

    pub fn call(&mut self, call: &Call) -> io::Result<()> {
        match self.format {
            Format::Heaptide => heaptide_format::call(&mut self.line, self.header.started_s, call),
            Format::Mprof { .. } => mprof_format::call(&mut self.line, call),
        }
        self.flush()
    }

    pub fn finish(&mut self, time_s: f64, ending: Ending, n_oom_kills: u64) -> io::Result<()> {
        let word = match ending {
            Ending::Exit(code) => format!("exit {code}"),
            Ending::Signal(number) => format!("signal {number}"),
            Ending::Unknown => "ended".to_owned(),
            Ending::StillRunning => "running".to_owned(),
        };
        let prefix = match self.format {
            Format::Heaptide => "",
            Format::Mprof { .. } => mprof_format::PREFIX,
        };
        // Writing into a string cannot fail.
        if n_oom_kills > 0 {
            let _ = writeln!(self.line, "{prefix}oom {n_oom_kills}");
        }
        let since = time_s - self.header.started_s;
        let _ = writeln!(self.line, "{prefix}over {since:.4} {word}");
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.out.write_all(self.line.as_bytes());
        self.line.clear();
        written
    }
}
