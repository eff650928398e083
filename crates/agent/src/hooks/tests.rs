//! Tests of the list of hooked functions: against the documentation, and against itself.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::*;

/// The functions that record nothing.
const OTHERS: [&str; 8] = [
    "dlsym",
    "dlclose",
    "sigaction",
    "signal",
    "pthread_sigmask",
    "sigprocmask",
    "execv",
    "execve",
];

fn names() -> Vec<&'static str> {
    HOOKS.iter().map(|it| it.name.to_str().unwrap()).collect()
}

/// `README.md` and the Markdown files below `docs/` of a folder, each as one line of text.
fn documents(folder: &Path) -> Vec<String> {
    let mut folders: Vec<PathBuf> = vec![folder.join("docs")];
    let mut files = vec![folder.join("README.md")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                files.push(path);
            }
        }
    }
    let texts = files
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap());
    texts
        .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn every_function_is_listed_once() {
    let unique: HashSet<_> = names().into_iter().collect();
    assert_eq!(unique.len(), HOOKS.len());
}

#[test]
fn every_hook_of_every_function_has_its_own_address() {
    let mut addresses = HashSet::new();
    let mut n_hooks = 0;
    for hook in HOOKS {
        let n_modes = if OTHERS.contains(&hook.name.to_str().unwrap()) {
            1
        } else {
            3
        };
        for address in hook.by_mode[..n_modes]
            .iter()
            .chain(hook.by_library.iter().flatten())
        {
            assert_ne!(address(), 0);
            assert!(hook.has_hook_at(address()));
            addresses.insert(address());
            n_hooks += 1;
        }
    }
    assert_eq!(addresses.len(), n_hooks);
}

#[test]
fn lookup_by_name_finds_every_function_that_the_process_has() {
    prepare().unwrap();
    for hook in HOOKS {
        let name = named(hook.name).map(|other| other.name);
        assert_eq!(name.is_some(), hook.real() != 0, "{:?}", hook.name);
        assert!(name.is_none_or(|name| name == hook.name));
    }
    assert!(named(c"malloc").is_some());
    for name in [c"mallo", c"malloc2", c"sbrk", c"", c"Malloc"] {
        assert!(named(name).is_none());
    }
}

#[test]
fn allocators_have_the_names_of_their_functions() {
    let mut covered = HashSet::new();
    for hook in HOOKS {
        let name = hook.name.to_str().unwrap().trim_end_matches("64");
        for (position, allocator) in hook.allocators.iter().enumerate() {
            let suffix = if position == 0 { "" } else { "_FILE" };
            assert_eq!(allocator.name(), name.to_uppercase() + suffix);
            covered.insert(*allocator);
        }
    }
    for allocator in Allocator::ALL {
        let is_pythons = allocator.name().starts_with("PYMALLOC_");
        assert!(is_pythons != covered.contains(&allocator), "{allocator:?}");
    }
}

#[test]
fn documentation_lists_every_recorded_function() {
    let recorded = names().into_iter().filter(|name| !OTHERS.contains(name));
    let list = recorded
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ");
    let is_listed = documents(root()).iter().any(|text| text.contains(&list));
    assert!(
        is_listed,
        "neither README.md nor docs/ has this list: {list}"
    );
}

#[test]
fn format_description_lists_every_allocator_with_its_number() {
    let list = Allocator::ALL.map(|it| format!("{} {}", it as u8, it.name().to_lowercase()));
    let list = format!("Allocators: {}.", list.join(", "));
    let is_listed = documents(root()).iter().any(|text| text.contains(&list));
    assert!(
        is_listed,
        "the description of the capture format lacks: {list}"
    );
}
