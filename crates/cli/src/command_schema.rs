//! What the commands declare, for those who offer them by another door: name, purpose and options.

use std::path::PathBuf;

use clap::builder::{PossibleValue, ValueParser};
use clap::{Arg, ArgAction};

use crate::commands;

pub struct CommandOption {
    /// Without dashes.
    pub name: String,
    pub help: String,
    pub takes_value: bool,
    /// Empty if any value may be given.
    pub values: Vec<String>,
}

/// Name, purpose and options of every command. Options that name files are left out.
pub fn command_options() -> Vec<(String, String, Vec<CommandOption>)> {
    let commands = commands::ALL.iter().map(|command| (command.arguments)());
    commands
        .map(|command| {
            let about = command
                .get_about()
                .map_or(String::new(), ToString::to_string);
            let options = command
                .get_arguments()
                .filter(|argument| !names_files(argument));
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
    fn commands_tell_their_options_and_keep_their_files_to_themselves() {
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
