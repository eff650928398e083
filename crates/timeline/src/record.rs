//! Writes a timeline while the run goes on. Every call that adds something ends in one write of whole lines, so a kill
//! at any instant leaves a file that lacks nothing but the moment it happened in.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::model::{Call, Ending, Header, Memory};
use crate::{dat, own};

/// The form of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Heaptide's: every process, every figure.
    Own,
    /// mprof's `.dat`.
    Dat {
        /// `-C`: the main curve is the sum of all processes instead of the first one alone.
        include_children: bool,
        /// `-M`: a curve for each child.
        multiprocess: bool,
    },
}

/// A process that was seen for the first time.
#[derive(Clone, Debug)]
pub struct Appeared<'a> {
    /// Its number in this file: pids are used again.
    pub number: usize,
    pub pid: u32,
    pub parent: u32,
    pub name: &'a str,
    pub command: &'a str,
}

/// One look at everything.
#[derive(Clone, Debug, Default)]
pub struct Tick {
    pub time_s: f64,
    /// Number, pid and memory of each process that was there; the program itself has the number 0.
    pub processes: Vec<(usize, u32, Memory)>,
    pub group: Option<u64>,
    pub limit: Option<u64>,
}

/// Writes one file.
pub struct Recorder<W: Write> {
    out: W,
    form: Form,
    header: Header,
    line: String,
    own: own::Written,
}

impl<W: Write> Recorder<W> {
    pub fn begin(out: W, form: Form, header: Header) -> io::Result<Recorder<W>> {
        let mut recorder = Recorder {
            out,
            form,
            header,
            line: String::new(),
            own: own::Written::default(),
        };
        match form {
            Form::Own => own::header(&mut recorder.line, &recorder.header),
            Form::Dat { .. } => dat::header(&mut recorder.line, &recorder.header),
        }
        recorder.flush()?;
        Ok(recorder)
    }

    pub fn appeared(&mut self, time_s: f64, process: &Appeared<'_>) -> io::Result<()> {
        if self.form == Form::Own {
            own::appeared(&mut self.line, time_s - self.header.started_s, process);
        }
        self.flush()
    }

    pub fn ended(&mut self, time_s: f64, number: usize) -> io::Result<()> {
        if self.form == Form::Own {
            let time_s = time_s - self.header.started_s;
            own::ended(&mut self.line, &mut self.own, time_s, number);
        }
        self.flush()
    }

    pub fn tick(&mut self, tick: &Tick) -> io::Result<()> {
        match self.form {
            Form::Own => own::tick(&mut self.line, &mut self.own, &self.header, tick),
            Form::Dat {
                include_children,
                multiprocess,
            } => dat::tick(
                &mut self.line,
                &mut self.own.limit,
                self.header.backend,
                tick,
                (include_children, multiprocess),
            ),
        }
        self.flush()
    }

    pub fn call(&mut self, call: &Call) -> io::Result<()> {
        match self.form {
            Form::Own => own::call(&mut self.line, self.header.started_s, call),
            Form::Dat { .. } => dat::call(&mut self.line, call),
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
        let prefix = match self.form {
            Form::Own => "",
            Form::Dat { .. } => dat::OURS,
        };
        // Text in memory always has room.
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
