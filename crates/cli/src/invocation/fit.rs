//! Help that fits the terminal. clap wraps paragraphs and options; usage lines and tables, such as examples, are wrapped here.

use clap::Command;

use crate::output::terminal_size;

/// Longer lines are hard to read. All texts fit into this width without wrapping.
const MAX_WIDTH: usize = 100;
/// The second column of a table moves to lines of its own if less than this is left for it.
const MIN_COLUMN: usize = 24;
const USAGE: &str = "Usage: ";

fn width() -> usize {
    terminal_size().0.unwrap_or(MAX_WIDTH).min(MAX_WIDTH)
}

/// Wraps the texts of a command and its subcommands.
pub(crate) fn fitted(command: Command) -> Command {
    let width = width();
    let command = command.term_width(width);
    match width {
        MAX_WIDTH => command,
        _ => with_tables(command, width),
    }
}

fn with_tables(mut command: Command, width: usize) -> Command {
    if let Some(text) = command.get_long_about().map(ToString::to_string) {
        command = command.long_about(fit(&text, width));
    }
    if let Some(text) = command.get_after_help().map(ToString::to_string) {
        command = command.after_help(fit(&text, width));
    }
    command.mut_subcommands(|subcommand| with_tables(subcommand, width))
}

/// Wraps the usage lines of a rendered help or message.
pub(crate) fn usage(text: &str) -> String {
    let width = width();
    let further = " ".repeat(USAGE.len());
    let is_usage = |line: &str| {
        let rest = line
            .strip_prefix(USAGE)
            .or_else(|| line.strip_prefix(&further));
        rest.is_some_and(|rest| rest.starts_with("heaptide "))
    };
    each_line(text, |line| match is_usage(line) {
        true => wrap(line, width, USAGE.len() + 4),
        false => line.to_owned(),
    })
}

fn fit(text: &str, width: usize) -> String {
    each_line(text, |line| fit_line(line, width))
}

fn each_line(text: &str, change: impl Fn(&str) -> String) -> String {
    text.split('\n').map(change).collect::<Vec<_>>().join("\n")
}

/// Wraps a line of text, or of a table, which has several spaces before its second column.
fn fit_line(line: &str, width: usize) -> String {
    let start = line.len() - line.trim_start().len();
    let Some(gap) = line[start..].find("  ").map(|at| start + at) else {
        return wrap(line, width, start);
    };
    let second = line[gap..].trim_start();
    let column = line.chars().count() - second.chars().count();
    if line.chars().count() <= width || column + MIN_COLUMN <= width {
        return wrap(line, width, column);
    }
    let below = start + 6;
    let first = wrap(&line[..gap], width, below);
    let second = format!("{}{second}", " ".repeat(below));
    format!("{first}\n{}", wrap(&second, width, below))
}

/// Breaks a line between words. Further lines begin after `indent` spaces.
fn wrap(line: &str, width: usize, indent: usize) -> String {
    let mut text = String::new();
    let mut used = 0;
    for (index, word) in line.split(' ').enumerate() {
        let cells = word.chars().count();
        let is_full = used + 1 + cells > width && !text.trim().is_empty();
        if index > 0 && is_full && cells > 0 {
            text.truncate(text.trim_end().len());
            text += &format!("\n{}", " ".repeat(indent));
            used = indent;
        } else if index > 0 {
            text.push(' ');
            used += 1;
        }
        text += word;
        used += cells;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "  heaptide stats   show the newest capture of a folder";

    #[test]
    fn lines_that_fit_stay() {
        assert_eq!(fit(LINE, LINE.len()), LINE);
        assert_eq!(fit("a\n\n  b  c\n", 20), "a\n\n  b  c\n");
    }

    #[test]
    fn second_column_continues_below_itself() {
        let expected = "  heaptide stats   show the newest capture\n                   of a folder";
        assert_eq!(fit(LINE, 44), expected);
    }

    #[test]
    fn second_column_moves_below_the_first_where_it_would_be_too_narrow() {
        let expected = "  heaptide stats\n        show the newest\n        capture of a folder";
        assert_eq!(fit(LINE, 28), expected);
    }

    #[test]
    fn usage_continues_with_an_indent() {
        let line = format!("Usage: heaptide run {}", "[OPTION] ".repeat(20));
        let wrapped = usage(line.trim_end());
        assert!(
            wrapped
                .lines()
                .all(|line| line.chars().count() <= MAX_WIDTH)
        );
        assert!(wrapped.contains("\n           [OPTION] "), "{wrapped}");
        assert_eq!(usage("no usage of heaptide\n"), "no usage of heaptide\n");
    }
}
