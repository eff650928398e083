//! The output of a report: standard output, or a file that is only overwritten with --force.
//!
//! Control characters in text are escaped, for every destination. Other formats have their own escapes and pass
//! unchanged, except to a terminal. A file appears under its name when it is complete, and only the user can read it.

pub(crate) mod color;
pub(crate) mod destination;
pub(crate) mod memray_capture;
pub(crate) mod packed_events;
pub(crate) mod progress;
pub(crate) mod run_summary;
pub(crate) mod timeline_file;

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use heaptide_files::{Existing, NewFile};
use heaptide_report::text::Style;
use heaptide_report::text::controls::{Escaping, escape_line};

use crate::exit::Failure;

pub(crate) fn arguments() -> [Arg; 2] {
    [
        Arg::new("output")
            .short('o')
            .long("output")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("output file, or - for standard output [default: -]"),
        Arg::new("force")
            .short('f')
            .long("force")
            .action(ArgAction::SetTrue)
            .help("overwrite an existing file"),
    ]
}

/// Returns the file of `-o`, unless it is absent or `-`.
fn named_file(matches: &ArgMatches) -> Option<&PathBuf> {
    let path = matches.get_one::<PathBuf>("output");
    path.filter(|path| path.as_os_str() != "-")
}

/// An open file or standard output.
pub(crate) struct Output {
    file: Option<NewFile>,
    path: Option<PathBuf>,
    out: BufWriter<Box<dyn Write>>,
}

impl Output {
    /// Standard output for a text.
    pub(crate) fn standard() -> Output {
        let out = Escaping::new(io::stdout(), style_of_standard() == Style::Terminal);
        Output::unnamed(Box::new(out))
    }

    /// Standard output for a format that is not text: unchanged, unless a terminal would interpret it.
    pub(crate) fn exact() -> Output {
        if io::stdout().is_terminal() {
            return Output::standard();
        }
        Output::unnamed(Box::new(io::stdout()))
    }

    fn unnamed(out: Box<dyn Write>) -> Output {
        Output {
            file: None,
            path: None,
            out: BufWriter::with_capacity(1 << 16, out),
        }
    }

    /// Refuses an existing file before any long work. [`Output::open`] checks again.
    pub(crate) fn check(matches: &ArgMatches) -> Result<(), Failure> {
        match named_file(matches) {
            Some(path) => Output::check_file(path, matches.get_flag("force")),
            None => Ok(()),
        }
    }

    /// Refuses an existing file at `path`.
    pub(crate) fn check_file(path: &Path, force: bool) -> Result<(), Failure> {
        if !force && path.symlink_metadata().is_ok() {
            return Err(exists(path));
        }
        Ok(())
    }

    /// Opens the output of `-o` and `-f` for a text.
    pub(crate) fn open(matches: &ArgMatches) -> Result<Output, Failure> {
        let Some(path) = named_file(matches) else {
            return Ok(Output::standard());
        };
        Output::text_file(path, matches.get_flag("force"))
    }

    /// Opens a file for a text.
    pub(crate) fn text_file(path: &Path, force: bool) -> Result<Output, Failure> {
        Output::named(path, force, |file| Box::new(Escaping::new(file, false)))
    }

    /// Opens a file for any format.
    pub(crate) fn file(path: &Path, force: bool) -> Result<Output, Failure> {
        Output::named(path, force, |file| Box::new(file))
    }

    fn named(
        path: &Path,
        force: bool,
        writer: impl FnOnce(File) -> Box<dyn Write>,
    ) -> Result<Output, Failure> {
        let existing = if force {
            Existing::Replace
        } else {
            Existing::Refuse
        };
        let file = NewFile::create(path, existing).map_err(|error| cannot_create(path, &error))?;
        let handle = file.file().try_clone();
        let handle = handle.map_err(|error| Failure::writing(path.display(), &error))?;
        Ok(Output {
            file: Some(file),
            path: Some(path.to_owned()),
            out: BufWriter::new(writer(handle)),
        })
    }

    /// Returns the style: colours only on standard output.
    pub(crate) fn style(&self) -> Style {
        match &self.path {
            Some(_) => Style::Plain,
            None => style_of_standard(),
        }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.path.is_none() && io::stdout().is_terminal()
    }

    /// Returns columns and lines, from the environment or the terminal; `None` if unlimited.
    pub(crate) fn size(&self) -> (Option<usize>, Option<usize>) {
        match self.is_terminal() {
            true => terminal_size(),
            false => (number("COLUMNS"), number("LINES")),
        }
    }

    pub(crate) fn write(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        write(&mut self.out).map_err(|error| self.failure(&error))
    }

    /// Flushes the output, gives the file its name and prints its path.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| self.failure(&error))?;
        if let (Some(file), Some(path)) = (self.file.take(), &self.path) {
            file.publish()
                .map_err(|error| cannot_create(path, &error))?;
            let shown = path.display().to_string();
            writeln!(io::stdout(), "Wrote {}", escape_line(&shown))
                .map_err(|error| Failure::writing("standard output", &error))?;
        }
        Ok(())
    }

    fn failure(&self, error: &io::Error) -> Failure {
        match &self.path {
            Some(path) => Failure::writing(path.display(), error),
            None => Failure::writing("standard output", error),
        }
    }
}

/// Returns columns and lines, from the environment or a terminal that this process has; `None` if there is none.
pub(crate) fn terminal_size() -> (Option<usize>, Option<usize>) {
    let terminal = terminal_size::terminal_size();
    let columns = number("COLUMNS").or(terminal.map(|(width, _)| usize::from(width.0)));
    let lines = number("LINES").or(terminal.map(|(_, height)| usize::from(height.0)));
    (columns, lines)
}

fn number(variable: &str) -> Option<usize> {
    let number = std::env::var(variable).ok()?.parse::<usize>().ok()?;
    (number > 0).then_some(number)
}

/// The style of standard output, as [`color`] decides.
fn style_of_standard() -> Style {
    if color::is_wanted(io::stdout().is_terminal()) {
        Style::Terminal
    } else {
        Style::Plain
    }
}

fn cannot_create(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::AlreadyExists => exists(path),
        _ => Failure::writing(path.display(), error),
    }
}

pub(crate) fn exists(path: &Path) -> Failure {
    Failure::failed(format!(
        "{} exists already: choose another name, or overwrite it with --force",
        path.display()
    ))
}
