//! The declared commands and options, for other front ends (the control API).

use std::path::PathBuf;

use clap::builder::{PossibleValue, ValueParser};
use clap::{Arg, ArgAction};

use crate::commands;

pub struct CommandOption {
    /// Without dashes.
    pub name: String,
    pub help: String,
    pub takes_value: bool,
    /// The allowed values; empty if any value is allowed.
    pub values: Vec<String>,
}

/// Returns name, help and options of every command, without options that name files.
pub fn command_options() -> Vec<(String, String, Vec<CommandOption>)> {
    let commands = commands::all().map(|command| (command.arguments)());
    commands
        .map(|command| {
            let about = command
                .get_about()
                .map_or(String::new(), ToString::to_string);
            let options = command
                .get_arguments()
                // Hidden options exist only for command lines of memray and mprof, and most have no effect.
                .filter(|argument| !names_files(argument) && !argument.is_hide_set());
            let options = options.filter_map(describe).collect();
            (command.get_name().to_owned(), about, options)
        })
        .collect()
}

fn names_files(argument: &Arg) -> bool {
    argument.get_value_parser().type_id() == ValueParser::path_buf().type_id()
        || argument.get_value_parser().type_id() == clap::value_parser!(PathBuf).type_id()
}

fn describe(argument: &Arg) -> Option<CommandOption> {
    let values = argument.get_possible_values();
    let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    Some(CommandOption {
        name: argument.get_long()?.to_owned(),
        help: argument
            .get_help()
            .map_or(String::new(), ToString::to_string),
        takes_value,
        values: if takes_value {
            values
                .iter()
                .map(PossibleValue::get_name)
                .map(str::to_owned)
                .collect()
        } else {
            Vec::new()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_has_options_but_none_that_name_files() {
        let commands = command_options();
        let stats = commands
            .iter()
            .find(|command| command.0 == "stats")
            .unwrap();
        assert!(stats.1.contains("peak"));
        let names: Vec<&str> = stats.2.iter().map(|option| option.name.as_str()).collect();
        assert!(names.contains(&"num-largest") && names.contains(&"json"));
        assert!(!names.contains(&"output"));
        let largest = stats
            .2
            .iter()
            .find(|option| option.name == "num-largest")
            .unwrap();
        assert!(largest.takes_value);
    }
}
