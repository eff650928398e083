//! `heaptide compat`: writes and removes commands with the names of other profilers.
//!
//! Platforms search for an executable named `memray` or `mprof`. The written file is a short Python script for this
//! interpreter; `heaptide.compat.installed` runs the front end. Only files with [`MARK`] are removed, and without
//! `--force` only such files are replaced.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};
use heaptide_files::{Existing, NewFile};

use crate::exit::Failure;
use crate::invocation::reinvoke;
use crate::messages::answer;
use crate::options::arguments;

const NAME: &str = "compat";
/// The profilers that are called as commands.
const COMMANDS: [&str; 2] = ["memray", "mprof"];
const MARK: &str =
    "# Written by `heaptide compat install`; remove it with `heaptide compat remove`.";

pub(crate) fn arguments() -> Command {
    let names = || {
        Arg::new("names")
            .value_name("NAMES")
            .required(true)
            .value_delimiter(',')
            .value_parser(COMMANDS)
            .help("commands, separated by commas")
    };
    let folder = || {
        arguments::file(
            "to",
            "folder of the commands, created if missing [default: that of this Python]",
        )
        .value_name("DIR")
    };
    Command::new(NAME)
        .about("Install commands with the names of other profilers")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("install")
                .about("Write commands that run Heaptide under these names")
                .arg(folder())
                .arg(arguments::force("replace the other profiler's command"))
                .arg(names()),
        )
        .subcommand(
            Command::new("remove")
                .about("Remove commands that `install` wrote")
                .arg(folder())
                .arg(names()),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((action, matches)) = matches.subcommand() else {
        return Ok(());
    };
    let python = interpreter()?;
    let folder = match matches.get_one::<PathBuf>("to") {
        Some(folder) => folder.clone(),
        None => python.parent().unwrap_or(Path::new("/")).to_owned(),
    };
    if action == "install" {
        create_folder(&folder)?;
    }
    for name in matches.get_many::<String>("names").into_iter().flatten() {
        let path = folder.join(name);
        match action {
            "install" => install(&path, name, &python, matches.get_flag("force"))?,
            _ => remove(&path)?,
        }
    }
    Ok(())
}

/// Returns the path of the Python that runs this command, without following links, which lead out of a virtual environment.
fn interpreter() -> Result<PathBuf, Failure> {
    let word = reinvoke::interpreter(NAME);
    let path = PathBuf::from(&word);
    if path.components().count() > 1 {
        return std::path::absolute(&path)
            .map_err(|error| Failure::writing(path.display(), &error));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&folders).map(|folder| folder.join(&path));
    candidates.find(|path| path.is_file()).ok_or_else(|| {
        Failure::failed("cannot find the Python of this command: give its full path")
    })
}

/// Creates a missing folder. Other users may run the commands in it, so they may enter it.
fn create_folder(folder: &Path) -> Result<(), Failure> {
    if folder.is_dir() {
        return Ok(());
    }
    let created = fs::create_dir_all(folder)
        .and_then(|()| fs::set_permissions(folder, Permissions::from_mode(0o755)));
    created.map_err(|error| Failure::writing(folder.display(), &error))?;
    answer!("Created {}", folder.display());
    Ok(())
}

fn install(path: &Path, name: &str, python: &Path, force: bool) -> Result<(), Failure> {
    if path.symlink_metadata().is_ok() && !force && !is_installed_by_heaptide(path) {
        return Err(Failure::failed(format!(
            "{} exists and is not Heaptide's: choose another folder with --to, or replace it with --force",
            path.display()
        )));
    }
    let failed = |error: &std::io::Error| Failure::writing(path.display(), error);
    let script = script(name, python.as_os_str());
    let written = NewFile::create(path, Existing::Replace).and_then(|new| {
        new.file().write_all(&script)?;
        // Other users of the environment may run it, like every installed command.
        new.file().set_permissions(Permissions::from_mode(0o755))?;
        new.publish()
    });
    written.map_err(|error| failed(&error))?;
    answer!("Wrote {}", path.display());
    Ok(())
}

fn script(name: &str, python: &OsStr) -> Vec<u8> {
    // The kernel cuts a longer first line, and the path ends at its first space.
    let is_plain = python.len() < 120 && !python.as_bytes().contains(&b' ');
    let mut script = Vec::new();
    if is_plain {
        script.extend([b"#!", python.as_bytes(), b"\n"].concat());
    } else {
        // The file is both a shell script and a Python script. The shell runs these lines; for Python they are a string.
        let quoted = python.to_string_lossy().replace('"', "\\\"");
        script.extend(format!("#!/bin/sh\n'''exec' \"{quoted}\" \"$0\" \"$@\"\n' '''\n").bytes());
    }
    let body = format!(
        "{MARK}\nimport sys\n\nfrom heaptide.compat.installed import main\n\nsys.exit(main({name:?}))\n"
    );
    script.extend(body.bytes());
    script
}

fn is_installed_by_heaptide(path: &Path) -> bool {
    fs::read(path).is_ok_and(|text| String::from_utf8_lossy(&text).contains(MARK))
}

fn remove(path: &Path) -> Result<(), Failure> {
    if !is_installed_by_heaptide(path) {
        return Err(Failure::failed(format!(
            "{} is not a command that `heaptide compat install` wrote: it stays",
            path.display()
        )));
    }
    fs::remove_file(path).map_err(|error| Failure::writing(path.display(), &error))?;
    answer!("Removed {}", path.display());
    Ok(())
}
