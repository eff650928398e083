//! Checks the options of a report command before the capture exists, so that mistakes are reported before the run.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;

use crate::invocation::help;

/// A placeholder for the capture, which does not exist yet.
const CAPTURE: &str = "capture";

/// Checks whether `heaptide COMMAND OPTIONS... CAPTURE` is valid; if not, returns the reason. The options cannot set the
/// destination of the report.
pub fn check_report_options(command: &str, options: Vec<OsString>) -> Result<(), String> {
    let words = ["heaptide", command].map(OsString::from);
    let end = ["--", CAPTURE].map(OsString::from);
    let line = words.into_iter().chain(options).chain(end);
    let matches = crate::command()
        .try_get_matches_from(line)
        .map_err(|error| first_sentence(&error))?;
    let Some((_, matches)) = matches.subcommand() else {
        return Err(format!("there is no command {command}"));
    };
    let captures = matches.try_get_many::<PathBuf>("captures").ok().flatten();
    let unexpected = captures
        .into_iter()
        .flatten()
        .find(|path| path.as_os_str() != CAPTURE);
    if let Some(unexpected) = unexpected {
        return Err(format!(
            "{} is not an option of {command}: see heaptide {command} --help",
            unexpected.display()
        ));
    }
    if matches!(matches.try_get_one::<PathBuf>("output"), Ok(Some(_))) {
        return Err(format!(
            "-o is not allowed for {command}: the destination of the report is fixed"
        ));
    }
    Ok(())
}

fn first_sentence(error: &clap::Error) -> String {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            "--help and --version make no report".to_owned()
        }
        _ => {
            let text = help::in_plain_words(&error.to_string());
            let line = text.lines().next().unwrap_or_default();
            line.strip_prefix("error: ").unwrap_or(line).to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str) -> Result<(), String> {
        let mut words = line.split_whitespace();
        let command = words.next().unwrap_or_default();
        check_report_options(command, words.map(OsString::from).collect())
    }

    #[test]
    fn valid_options_are_accepted() {
        for line in [
            "flamegraph",
            "flamegraph --leaks",
            "table --leaks --no-source",
            "flamegraph -f --inverted",
        ] {
            assert_eq!(check(line), Ok(()), "{line}");
        }
    }

    #[test]
    fn invalid_options_are_reported_in_one_line() {
        for (line, word) in [
            ("flamegraph --leeks", "--leeks"),
            ("flamegraph other.tide", "other.tide"),
            ("flamegraph --leaks 5", "5"),
            ("table -o elsewhere.html", "-o"),
            ("flamegraph --help", "--help"),
            ("flamegraf", "flamegraf"),
        ] {
            let sentence = check(line).expect_err(line);
            assert!(
                sentence.contains(word) && !sentence.contains('\n'),
                "{line}: {sentence}"
            );
        }
    }
}
