//! The help of commands, completion scripts, manual pages, and messages about invalid arguments.

use crate::{Folder, error_text, printed};

#[test]
fn help_groups_the_commands() {
    let folder = Folder::new();
    let text = printed(&folder.heaptide("--help"));
    let mut rest = text.as_str();
    for word in [
        "Record:\n  run ",
        "Report on a capture:\n  stats ",
        "Objects:\n  heap ",
        "Over time:\n  record ",
        "Serve and control:\n  jobs ",
        "More:\n  list ",
        "Examples:",
        "--color <WHEN>",
    ] {
        let at = rest.find(word);
        assert!(at.is_some(), "{word}: {text}");
        rest = &rest[at.unwrap_or(0)..];
    }
    assert_eq!(text.matches("\n  parse ").count(), 1);
    assert!(!text.contains("\n\n\n"), "{text}");
}

#[test]
fn help_is_also_a_command() {
    let folder = Folder::new();
    for (command, option) in [
        ("help", "--help"),
        ("help run", "run --help"),
        ("help heap types", "heap types --help"),
        ("version", "--version"),
    ] {
        let asked = printed(&folder.heaptide(command));
        assert_eq!(asked, printed(&folder.heaptide(option)), "{command}");
        assert!(!asked.is_empty());
    }
}

#[test]
fn help_fits_the_terminal() {
    let folder = Folder::new();
    let names = |heading: &str, help: &str| -> Vec<String> {
        let (_, rest) = help.split_once(heading).expect("it lists commands");
        let commands = rest.split("\nOptions:").next().unwrap_or_default();
        let rows = commands.lines().filter_map(|row| row.strip_prefix("  "));
        let names = rows.filter_map(|row| row.split(' ').next());
        let names = names.filter(|name| !name.is_empty() && *name != "heaptide");
        names.map(str::to_owned).collect()
    };
    let mut all = names("Record:", &printed(&folder.heaptide("help")));
    let below_heap = names("Commands:", &printed(&folder.heaptide("help heap")));
    all.extend(below_heap.iter().map(|name| format!("heap {name}")));
    assert!(
        all.len() > 40 && all.contains(&"heap suspects".to_owned()),
        "{all:?}"
    );
    for name in all {
        for width in [60, 80, 200] {
            let line = format!("{name} --help");
            let mut command = folder.command(&line);
            let output = command
                .env("COLUMNS", width.to_string())
                .output()
                .expect("it runs");
            let text = printed(&output);
            let long = text
                .lines()
                .filter(|line| line.chars().count() > width.min(100));
            assert_eq!(
                long.collect::<Vec<_>>(),
                Vec::<&str>::new(),
                "{line} at {width}"
            );
        }
    }
}

#[test]
fn short_help_has_no_filters() {
    let folder = Folder::new();
    let short = printed(&folder.heaptide("stats -h"));
    let long = printed(&folder.heaptide("stats --help"));
    assert!(!short.contains("--hide-imports") && long.contains("--hide-imports"));
    assert!(
        short.contains("--leaks") && short.contains("Examples:"),
        "{short}"
    );
}

#[test]
fn most_used_commands_have_examples() {
    let folder = Folder::new();
    for command in
        "run stats tree summary flamegraph table timeline transform lines plot".split(' ')
    {
        let text = printed(&folder.heaptide(&format!("{command} --help")));
        let example = format!("Examples:\n  heaptide {command}");
        assert!(text.contains(&example), "{text}");
    }
}

#[test]
fn completion_scripts_know_commands_and_options() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&folder.heaptide(&format!("completions {shell}")));
        for word in ["flamegraph", "follow-fork", "suspects"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(folder.heaptide("completions tcsh").status.code(), Some(2));
}

#[test]
fn manual_pages_are_written_for_commands_and_subcommands() {
    let folder = Folder::new();
    let page = printed(&folder.heaptide("man run"));
    assert!(
        page.contains(".TH heaptide-run 1") && page.contains("follow"),
        "{page}"
    );
    assert!(printed(&folder.heaptide("man")).contains(".TH heaptide 1"));
    assert!(printed(&folder.heaptide("man heap types")).contains(".TH heaptide-heap-types 1"));
    assert_eq!(folder.heaptide("man nonsense").status.code(), Some(2));
}

#[test]
fn messages_about_numbers_are_plain() {
    let folder = Folder::new();
    for line in [
        "attach abc",
        "tree --depth x",
        "stats -n 1.5",
        "run --interval soon x.py",
    ] {
        let output = folder.heaptide(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        let text = error_text(&output);
        assert!(text.contains("must be a whole number"), "{text}");
        assert!(!text.contains("invalid digit"), "{text}");
    }
}

#[test]
fn options_with_underscores_also_accept_dashes() {
    let folder = Folder::new();
    for line in [
        "worker --trace-memory --max-jobs 3 --max-memory 100 x:y",
        "worker --trace_memory --max_jobs 3 --max_memory 100 x:y",
    ] {
        let output = folder.heaptide(line);
        assert_eq!(output.status.code(), Some(0), "{}", error_text(&output));
    }
}

#[test]
fn colours_can_be_forced_and_refused() {
    let folder = Folder::new();
    folder.capture("job.tide", "alloc a 100 at main");
    let coloured = printed(&folder.heaptide("stats --color always job.tide"));
    assert!(coloured.contains("\x1b[1m"), "{coloured}");
    assert_eq!(
        printed(&folder.heaptide("--color=always stats job.tide")),
        coloured
    );
    let plain = printed(&folder.heaptide("stats --color never job.tide"));
    assert_eq!(plain, printed(&folder.heaptide("stats job.tide")));
    assert_eq!(
        folder
            .heaptide("stats --color green job.tide")
            .status
            .code(),
        Some(2)
    );
}

#[test]
fn timeline_given_as_a_capture_is_reported_with_the_command_that_reads_it() {
    let folder = Folder::new();
    folder.write("x.timeline", b"heaptide-timeline 1\n");
    let text = error_text(&folder.heaptide("flamegraph x.timeline"));
    assert_eq!(
        text,
        "heaptide: x.timeline is a timeline, not a capture: draw it with heaptide plot x.timeline\n"
    );
}

#[test]
fn memrays_layout_has_memrays_sizes() {
    let folder = Folder::new();
    folder.capture(
        "job.tide",
        "alloc a 41_810_000 at main".replace('_', "").as_str(),
    );
    let tree = printed(&folder.heaptide("tree --layout=memray job.tide"));
    assert!(tree.contains("📂 41.810MB (100.00 %) <ROOT>"), "{tree}");
    let stats = printed(&folder.heaptide("stats --layout=memray job.tide"));
    assert!(stats.contains("-> 41.810MB"), "{stats}");
    assert!(printed(&folder.heaptide("stats job.tide")).contains("-> 41.8 MB"));
}
