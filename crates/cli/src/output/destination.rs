//! The destination of commands that write a file: beside the capture by default.
//!
//! The name is `heaptide-<report>-<stem>.<extension>`. The stem is the name of the capture without `.tide` (`.heap` for heap
//! snapshots, `.bin` for components) and without the `heaptide-` of default names. Everything else stays, so that captures of
//! two processes never lead to the same name.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, value_parser};

use crate::exit::Failure;
use crate::options::arguments;
use crate::output::Output;

/// `default` is the name of the file without `-o`.
pub(crate) fn arguments(default: &str) -> [Arg; 2] {
    [
        Arg::new("output")
            .short('o')
            .long("output")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help(format!(
                "output file; - for standard output [default: {default}]"
            )),
        Arg::new("force")
            .short('f')
            .long("force")
            .action(ArgAction::SetTrue)
            .help("overwrite an existing file"),
    ]
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    /// `None` is standard output.
    path: Option<PathBuf>,
    force: bool,
}

impl Destination {
    /// Returns the destination of the arguments, else a file beside the capture, else standard output. Refuses an
    /// existing file before any long work.
    pub(crate) fn choose(
        matches: &ArgMatches,
        capture: Option<&PathBuf>,
        report: &str,
        extension: &str,
    ) -> Result<Destination, Failure> {
        let force = matches.get_flag("force");
        let page = arguments::html_file(matches);
        let output = matches.get_one::<PathBuf>("output");
        if let (Some(page), Some(output)) = (&page, output) {
            return Err(Failure::Usage(format!(
                "--html={} and -o {} name two files: use one",
                page.display(),
                output.display()
            )));
        }
        let path = match page.as_ref().or(output) {
            Some(path) if path.as_os_str() == "-" => None,
            Some(path) => Some(path.clone()),
            None => capture.map(|capture| beside(capture, report, extension)),
        };
        if let Some(path) = &path {
            Output::check_file(path, force)?;
        }
        Ok(Destination { path, force })
    }

    /// The folder of the file; `None` for standard output.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.path.as_deref().and_then(Path::parent)
    }

    /// Opens the destination for a text.
    pub(crate) fn open_text(&self) -> Result<Output, Failure> {
        match &self.path {
            Some(path) => Output::text_file(path, self.force),
            None => Ok(Output::standard()),
        }
    }

    /// Opens the destination for any format.
    pub(crate) fn open(&self) -> Result<Output, Failure> {
        match &self.path {
            Some(path) => Output::file(path, self.force),
            None => Ok(Output::exact()),
        }
    }
}

pub(crate) fn beside(capture: &Path, report: &str, extension: &str) -> PathBuf {
    let name = capture.file_name().unwrap_or_default();
    // A name that is not UTF-8 is kept whole.
    let stem = name.to_str().map(stem).map(OsStr::new).unwrap_or(name);
    let mut file = OsString::from(format!("heaptide-{report}-"));
    file.push(stem);
    file.push(format!(".{extension}"));
    capture.with_file_name(file)
}

fn stem(name: &str) -> &str {
    let stem = name
        .strip_suffix(".tide")
        .or_else(|| name.strip_suffix(".heap"))
        // Captures of components end in `.bin`.
        .or_else(|| name.strip_suffix(".bin"))
        .filter(|stem| !stem.is_empty())
        .unwrap_or(name);
    // Only default names, which contain a process ID, lose their prefix, so that `heaptide-a.tide` and `a.tide` differ.
    let first = name.split(".tide").next().unwrap_or(name);
    let is_default = first
        .rsplit_once('.')
        .is_some_and(|(_, pid)| pid.bytes().all(|byte| byte.is_ascii_digit()));
    stem.strip_prefix("heaptide-")
        .filter(|_| is_default)
        .unwrap_or(stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_beside_the_capture_and_named_after_its_stem() {
        for (capture, file) in [
            (
                "out/heaptide-job.py.4711.tide",
                "out/heaptide-table-job.py.4711.html",
            ),
            (
                "heaptide-job.py.4711.tide.4712",
                "heaptide-table-job.py.4711.tide.4712.html",
            ),
            ("x.tide", "heaptide-table-x.html"),
            ("x.heap", "heaptide-table-x.html"),
            ("x.tide.4712", "heaptide-table-x.tide.4712.html"),
            (
                "scheduler_memory.bin",
                "heaptide-table-scheduler_memory.html",
            ),
            (".tide", "heaptide-table-.tide.html"),
        ] {
            assert_eq!(beside(Path::new(capture), "table", "html"), Path::new(file));
        }
    }

    #[test]
    fn different_captures_lead_to_different_files() {
        let names = [
            "heaptide-job.py.1.tide",
            "heaptide-job.py.2.tide",
            "heaptide-job.py.1.tide.3",
            "heaptide-job.py.1.tide.4",
            "heaptide-a.tide",
            "a.tide",
            "a_memory.bin",
            "b.bin.1",
            "b.bin.2",
            "heaptide-.tide",
        ];
        let mut files = names.map(|name| beside(Path::new(name), "csv", "csv"));
        files.sort();
        assert!(files.windows(2).all(|pair| pair[0] != pair[1]), "{files:?}");
    }
}
