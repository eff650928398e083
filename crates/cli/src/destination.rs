//! Where commands write whose result is a file: beside the capture unless something else is said.
//!
//! `heaptide-<kind>-<stem>.<extension>`, where the stem is the capture's name without `heaptide-` and `.tide` (or a heap snapshot's `.heap`). Anything
//! else in the name stays, so that captures of two processes never give the same name.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, value_parser};

use crate::exit::Failure;
use crate::output::Output;

pub fn arguments() -> [Arg; 2] {
    [
        Arg::new("output")
            .short('o')
            .long("output")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("write into this file, or to standard output if it is - [default: a name beside the capture]"),
        Arg::new("force")
            .short('f')
            .long("force")
            .action(ArgAction::SetTrue)
            .help("overwrite the file if it exists"),
    ]
}

#[derive(Debug, PartialEq, Eq)]
pub struct Destination {
    /// `None` is standard output.
    path: Option<PathBuf>,
    force: bool,
}

impl Destination {
    /// As the arguments say. A file that would be overwritten is refused here, before any long work.
    pub fn choose(
        matches: &ArgMatches,
        kind: &str,
        extension: &str,
    ) -> Result<Destination, Failure> {
        let force = matches.get_flag("force");
        let path = match matches.get_one::<PathBuf>("output") {
            Some(path) if path.as_os_str() == "-" => None,
            Some(path) => Some(path.clone()),
            None => {
                let captures = matches.get_many::<PathBuf>("captures");
                let first = captures.into_iter().flatten().next();
                first.map(|capture| beside(capture, kind, extension))
            }
        };
        if let Some(path) = &path {
            Output::check_file(path, force)?;
        }
        Ok(Destination { path, force })
    }

    pub fn open(&self) -> Result<Output, Failure> {
        match &self.path {
            Some(path) => Output::file(path, self.force),
            None => Ok(Output::standard()),
        }
    }
}

fn beside(capture: &Path, kind: &str, extension: &str) -> PathBuf {
    let name = capture.file_name().unwrap_or(OsStr::new("capture"));
    let name = name.to_string_lossy();
    let stem = name
        .strip_suffix(".tide")
        .or_else(|| name.strip_suffix(".heap"))
        .unwrap_or(&name);
    let stem = stem.strip_prefix("heaptide-").unwrap_or(stem);
    capture.with_file_name(format!("heaptide-{kind}-{stem}.{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lie_beside_the_capture_and_keep_what_tells_processes_apart() {
        let name = |capture: &str| beside(Path::new(capture), "csv", "csv");
        assert_eq!(
            name("out/heaptide-job.py.4711.tide"),
            Path::new("out/heaptide-csv-job.py.4711.csv")
        );
        assert_eq!(name("x.tide"), Path::new("heaptide-csv-x.csv"));
        assert_eq!(name("x.heap"), Path::new("heaptide-csv-x.csv"));
        assert_eq!(
            name("x.tide.4712"),
            Path::new("heaptide-csv-x.tide.4712.csv")
        );
        assert_ne!(name("x.bin.1"), name("x.bin.2"));
    }
}
