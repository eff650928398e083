//! Where commands write whose result is a file: beside the capture unless something else is said.
//!
//! `heaptide-<kind>-<stem>.<extension>`, where the stem is the capture's name without `.tide` (a heap snapshot's `.heap`, a component's
//! `.bin`), and without the `heaptide-` of a name that we gave. Anything else in the name stays, so that captures of two processes never
//! give the same name.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, value_parser};

use crate::exit::Failure;
use crate::output::Output;

/// `default` is the name that a file gets without `-o`.
pub(crate) fn arguments(default: &str) -> [Arg; 2] {
    [
        Arg::new("output")
            .short('o')
            .long("output")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help(format!(
                "write into this file, or to standard output if it is - [default: {default}]"
            )),
        Arg::new("force")
            .short('f')
            .long("force")
            .action(ArgAction::SetTrue)
            .help("overwrite the file if it exists"),
    ]
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    /// `None` is standard output.
    path: Option<PathBuf>,
    force: bool,
}

impl Destination {
    /// As the arguments say, else beside a capture; without one on standard output. A file that would be overwritten is
    /// refused here, before any long work.
    pub(crate) fn choose(
        matches: &ArgMatches,
        capture: Option<&PathBuf>,
        kind: &str,
        extension: &str,
    ) -> Result<Destination, Failure> {
        let force = matches.get_flag("force");
        let path = match matches.get_one::<PathBuf>("output") {
            Some(path) if path.as_os_str() == "-" => None,
            Some(path) => Some(path.clone()),
            None => capture.map(|capture| beside(capture, kind, extension)),
        };
        if let Some(path) = &path {
            Output::check_file(path, force)?;
        }
        Ok(Destination { path, force })
    }

    pub(crate) fn open(&self) -> Result<Output, Failure> {
        match &self.path {
            Some(path) => Output::file(path, self.force),
            None => Ok(Output::standard()),
        }
    }
}

fn beside(capture: &Path, kind: &str, extension: &str) -> PathBuf {
    let name = capture.file_name().unwrap_or_default();
    // A name that is no text has no ending that could be taken off.
    let stem = name.to_str().map(stem).map(OsStr::new).unwrap_or(name);
    let mut file = OsString::from(format!("heaptide-{kind}-"));
    file.push(stem);
    file.push(format!(".{extension}"));
    capture.with_file_name(file)
}

fn stem(name: &str) -> &str {
    let stem = name
        .strip_suffix(".tide")
        .or_else(|| name.strip_suffix(".heap"))
        // Components' captures.
        .or_else(|| name.strip_suffix(".bin"))
        .filter(|stem| !stem.is_empty())
        .unwrap_or(name);
    // Only names that we gave, which have the number of a process, lose their beginning: `heaptide-a.tide` and `a.tide` do not meet.
    let first = name.split(".tide").next().unwrap_or(name);
    let is_ours = first
        .rsplit_once('.')
        .is_some_and(|(_, pid)| pid.bytes().all(|byte| byte.is_ascii_digit()));
    stem.strip_prefix("heaptide-")
        .filter(|_| is_ours)
        .unwrap_or(stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lie_beside_the_capture_and_are_made_of_its_stem() {
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
    fn captures_with_different_names_have_different_files() {
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
