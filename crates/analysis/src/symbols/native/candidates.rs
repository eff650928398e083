//! Files that may hold the symbols of a library: its own file, and separate debug files.

use std::path::{Path, PathBuf};

use heaptide_capture::ModuleText;

use super::object_file;
use crate::files;

/// The folder in which distributions install debug files.
const DEBUG_FOLDER: &str = "/usr/lib/debug";

/// Files with symbols of this library, those with the most symbols first. Files with another build ID are left out.
pub fn candidates(module: &ModuleText) -> Vec<PathBuf> {
    let own = PathBuf::from(&module.path);
    let has_id = !module.build_id.is_empty();
    let mut candidates = Vec::new();
    if has_id {
        candidates.extend(by_build_id(&module.build_id));
    }
    let identity = object_file::identity(&own);
    let is_own = identity
        .as_ref()
        .is_some_and(|identity| identity.build_id == module.build_id);
    if let Some(link) = identity
        .filter(|_| is_own)
        .and_then(|identity| identity.debug_link)
    {
        let linked = beside(&own, &link).into_iter().find(|path| {
            let linked = object_file::identity(path);
            linked.is_some_and(|linked| !has_id || linked.build_id == module.build_id)
        });
        candidates.extend(linked);
    }
    if is_own {
        candidates.push(own);
    }
    candidates
}

/// The debug file named after the build ID.
fn by_build_id(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = PathBuf::from(format!("{DEBUG_FOLDER}/.build-id/{first:02x}/{rest}.debug"));
    files::exists(&path).then_some(path)
}

/// Possible paths of the debug file that a library names.
fn beside(library: &Path, name: &str) -> Vec<PathBuf> {
    let Some(folder) = library.parent() else {
        return Vec::new();
    };
    let below = folder.strip_prefix("/").unwrap_or(folder);
    let paths = [
        folder.join(name),
        folder.join(".debug").join(name),
        Path::new(DEBUG_FOLDER).join(below).join(name),
    ];
    // A library that names itself has no debug file.
    paths
        .into_iter()
        .filter(|path| path != library && files::exists(path))
        .collect()
}
