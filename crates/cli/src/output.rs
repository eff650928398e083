//! The output of a report: standard output, or a file that is only overwritten with --force.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use heaptide_report::text::Style;

use crate::exit::Failure;

pub(crate) fn arguments() -> [Arg; 2] {
    [
        Arg::new("output")
            .short('o')
            .long("output")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("output file [default: standard output]"),
        Arg::new("force")
            .short('f')
            .long("force")
            .action(ArgAction::SetTrue)
            .help("overwrite an existing file"),
    ]
}

/// An open file or standard output.
pub(crate) struct Output {
    path: Option<PathBuf>,
    out: BufWriter<Box<dyn Write>>,
}

impl Output {
    pub(crate) fn standard() -> Output {
        Output {
            path: None,
            out: BufWriter::with_capacity(1 << 16, Box::new(io::stdout())),
        }
    }

    /// Refuses an existing file before any long work. [`Output::open`] checks again.
    pub(crate) fn check(matches: &ArgMatches) -> Result<(), Failure> {
        match matches.get_one::<PathBuf>("output") {
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

    /// Opens the output of `-o` and `-f`.
    pub(crate) fn open(matches: &ArgMatches) -> Result<Output, Failure> {
        let Some(path) = matches.get_one::<PathBuf>("output") else {
            return Ok(Output::standard());
        };
        Output::file(path, matches.get_flag("force"))
    }

    pub(crate) fn file(path: &Path, force: bool) -> Result<Output, Failure> {
        let mut options = OpenOptions::new();
        options.write(true);
        if force {
            options.create(true).truncate(true);
        } else {
            options.create_new(true);
        }
        let file = options.open(path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => exists(path),
            _ => Failure::writing(path.display(), &error),
        })?;
        Ok(Output {
            path: Some(path.to_owned()),
            out: BufWriter::new(Box::new(file)),
        })
    }

    /// Returns the style: colours in a terminal unless NO_COLOR is set.
    pub(crate) fn style(&self) -> Style {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if self.is_terminal() && !refused {
            Style::Terminal
        } else {
            Style::Plain
        }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.path.is_none() && io::stdout().is_terminal()
    }

    /// Returns columns and lines, from the environment or the terminal; `None` if unlimited.
    pub(crate) fn size(&self) -> (Option<usize>, Option<usize>) {
        let named = |name: &str| {
            let number = std::env::var(name).ok()?.parse::<usize>().ok()?;
            (number > 0).then_some(number)
        };
        let terminal = if self.is_terminal() {
            terminal_size::terminal_size()
        } else {
            None
        };
        let columns = named("COLUMNS").or(terminal.map(|(width, _)| usize::from(width.0)));
        let lines = named("LINES").or(terminal.map(|(_, height)| usize::from(height.0)));
        (columns, lines)
    }

    pub(crate) fn write(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        write(&mut self.out).map_err(|error| self.failure(&error))
    }

    /// Flushes the output and prints the path of the file.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| self.failure(&error))?;
        if let Some(path) = &self.path {
            let line = format!("Wrote {}", path.display());
            writeln!(io::stdout(), "{line}")
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

fn exists(path: &Path) -> Failure {
    Failure::failed(format!(
        "{} exists already: choose another name, or overwrite it with --force",
        path.display()
    ))
}
