//! What the commands that make pages have in common: their options, and where a page goes.
//!
//! Without `-o` a page is put beside its capture, under a name made of the capture's: captures have different names, so two
//! pages never meet. `-o -` writes to standard output.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use heaptide_analysis::Request;
use heaptide_analysis::aggregate::FlameLimits;
use heaptide_report::html::{self, Page};
use heaptide_report::json::flame::FirstView;

use crate::exit::Failure;
use crate::filters;
use crate::input;
use crate::output::Output;

pub fn arguments(command: Command) -> Command {
    let name = command.get_name().to_owned();
    command
        .arg(
            Arg::new("no_source")
                .long("no-source")
                .action(ArgAction::SetTrue)
                .help("do not put the text of source lines into the page"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help(format!(
                    "write the page into this file, or to standard output if it is - \
                     [default: heaptide-{name}-CAPTURE.html beside the capture]"
                )),
        )
        .arg(
            Arg::new("force")
                .short('f')
                .long("force")
                .action(ArgAction::SetTrue)
                .help("overwrite the file if it exists"),
        )
        .args(filters::arguments())
        .arg(input::argument())
}

pub struct PageOutput<'a> {
    matches: &'a ArgMatches,
    page: Page,
    /// `None` for standard output.
    path: Option<PathBuf>,
}

impl<'a> PageOutput<'a> {
    /// Refuses a file that would be overwritten, before any long work.
    pub fn new(matches: &'a ArgMatches, page: Page) -> Result<PageOutput<'a>, Failure> {
        let captures = matches.get_many::<PathBuf>("captures");
        let first = captures.into_iter().flatten().next();
        let path = match matches.get_one::<PathBuf>("output") {
            Some(path) if path.as_os_str() == "-" => None,
            Some(path) => Some(path.clone()),
            None => first.map(|capture| beside(capture, page)),
        };
        if let Some(path) = &path {
            Output::check_file(path, matches.get_flag("force"))?;
        }
        Ok(PageOutput {
            matches,
            page,
            path,
        })
    }

    /// Reads the captures, and writes the page.
    pub fn make(self, first: FirstView) -> Result<(), Failure> {
        let mut limits = FlameLimits::default();
        if self.matches.get_flag("no_source") {
            limits.max_source_bytes = 0;
        }
        let request = Request {
            lives: true,
            ..filters::request(self.matches)
        };
        let session = input::session_with(self.matches, request)?;
        let mut make = |limits| heaptide_analysis::flame(&session, limits);
        let mut output = match &self.path {
            Some(path) => Output::file(path, self.matches.get_flag("force"))?,
            None => Output::standard(),
        };
        output.write(|out| html::page(out, self.page, &mut make, limits, first))?;
        output.finish()
    }
}

/// `heaptide-job.py.4711.tide` → `heaptide-flamegraph-job.py.4711.html`, in the same folder.
fn beside(capture: &Path, page: Page) -> PathBuf {
    let kind = match page {
        Page::FlameGraph => "flamegraph",
        Page::Table => "table",
        Page::Timeline => "timeline",
    };
    named_after(capture, kind)
}

/// The page of a kind that lies beside a capture.
pub fn named_after(capture: &Path, kind: &str) -> PathBuf {
    let name = capture.file_name().unwrap_or_default();
    // A name that is no text has no ending that could be taken off.
    let stem = name.to_str().map(stem).map(OsString::from);
    let mut file = OsString::from(format!("heaptide-{kind}-"));
    file.push(stem.unwrap_or_else(|| name.to_owned()));
    file.push(".html");
    capture.with_file_name(file)
}

/// What tells a capture's name from others. Only what every capture of ours has is taken off, and both or nothing: else
/// `heaptide-a.tide` and `a.tide` would meet. Components' captures, `scheduler_memory.bin`, are known by their own ending.
fn stem(name: &str) -> &str {
    if name.ends_with("_memory.bin") {
        return name.trim_end_matches(".bin");
    }
    name.strip_prefix("heaptide-")
        .and_then(|name| name.strip_suffix(".tide"))
        .filter(|stem| !stem.is_empty())
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_named_after_its_capture_and_lies_beside_it() {
        let named = |capture: &str, page| beside(Path::new(capture), page).display().to_string();
        assert_eq!(
            named("/srv/heaptide-job.py.4711.tide", Page::FlameGraph),
            "/srv/heaptide-flamegraph-job.py.4711.html"
        );
        assert_eq!(
            named("heaptide-job.py.4711.tide", Page::Table),
            "heaptide-table-job.py.4711.html"
        );
        assert_eq!(
            named("/home/scheduler_memory.bin", Page::FlameGraph),
            "/home/heaptide-flamegraph-scheduler_memory.html"
        );
    }

    #[test]
    fn captures_with_different_names_have_different_pages() {
        let names = [
            "heaptide-job.py.1.tide",
            "heaptide-job.py.2.tide",
            "heaptide-a.tide",
            "a.tide",
            "a_memory.bin",
            "a_memory.tide",
            "heaptide-.tide",
        ];
        let mut pages: Vec<PathBuf> = names
            .iter()
            .map(|name| beside(Path::new(name), Page::FlameGraph))
            .collect();
        pages.sort();
        pages.dedup();
        assert_eq!(pages.len(), names.len());
    }
}
