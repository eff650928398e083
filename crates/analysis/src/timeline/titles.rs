//! Names of processes in charts: an interpreter is named by its program, not `python`.

use heaptide_capture::labels;
use heaptide_timeline::Process;

/// The title of a process: the program of an interpreter, else the name of the process.
pub fn title(process: &Process) -> String {
    let is_python = |word: &str| {
        let name = word.rsplit('/').next().unwrap_or_default();
        name.starts_with("python")
    };
    let mut words = process.command.split(' ');
    if !is_python(&process.name) || !words.next().is_some_and(is_python) {
        return process.name.clone();
    }
    let words: Vec<String> = words.map(str::to_owned).collect();
    let title = labels::title(&[], &words);
    // The title is empty if there is no program. It begins with `-` if an unknown option of the interpreter comes first.
    match title.starts_with('-') || title.is_empty() {
        true => process.name.clone(),
        false => title,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreter_is_named_by_its_program() {
        let name = |name: &str, command: &str| {
            title(&Process {
                name: name.to_owned(),
                command: command.to_owned(),
                ..Process::default()
            })
        };
        assert_eq!(
            name("python3", "/usr/bin/python3 -u /srv/etl.py --fast"),
            "etl.py"
        );
        assert_eq!(name("python", "python -m celery worker"), "celery");
        assert_eq!(name("python", "python -X dev etl.py"), "etl.py");
        assert_eq!(name("python", "python"), "python");
        assert_eq!(name("sleep", "sleep 5"), "sleep");
        assert_eq!(name("python", ""), "python");
        assert_eq!(name("python", "python -é x"), "python");
    }
}
