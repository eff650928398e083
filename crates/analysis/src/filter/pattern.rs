//! Patterns for modules and files, as users type them.
//!
//! `pandas` is a module, or a file or folder of that name without its suffix. `pandas.core` is a part of it.
//! `etl/load.py` is a file whose path ends like that. `*` matches any text and `?` any character, also in paths. A
//! pattern with a wildcard must match the module, the whole path, or a part of the path that begins after a `/`.

use std::fmt;

use heaptide_capture::glob;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// The forms of the pattern in a path, without wildcards: `/pandas/core/` and `/pandas/core.`.
    folder: String,
    stem: String,
    has_wildcard: bool,
}

impl Pattern {
    /// `None` if the text is empty.
    pub fn new(text: &str) -> Option<Pattern> {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        let is_path = text.contains('/') || text.ends_with(".py");
        let path = if is_path {
            text.trim_matches('/').to_owned()
        } else {
            text.replace('.', "/")
        };
        Some(Pattern {
            text: text.to_owned(),
            folder: format!("/{path}/"),
            stem: format!("/{path}."),
            has_wildcard: text.contains(['*', '?']),
        })
    }

    /// Whether a frame in this file and module matches.
    pub fn matches(&self, file: &str, module: Option<&str>) -> bool {
        if module == Some(self.text.as_str()) || file == self.text {
            return true;
        }
        if self.has_wildcard {
            return module.is_some_and(|module| glob::matches(&self.text, module))
                || glob::matches(&self.text, file)
                || self.matches_part(file);
        }
        // A path may begin at any folder; a file may be named with or without its suffix.
        let ends_with_path = file
            .strip_suffix(self.text.trim_start_matches('/'))
            .is_some_and(|before| before.ends_with('/'));
        ends_with_path || contains(file, &self.folder) || is_stem(file, &self.stem)
    }

    fn matches_part(&self, file: &str) -> bool {
        let mut parts = file.match_indices('/');
        parts.any(|(at, _)| glob::matches(&self.text, &file[at + 1..]))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn contains(file: &str, folder: &str) -> bool {
    file.contains(folder) || file.starts_with(&folder[1..])
}

/// Whether a path ends with the stem and a suffix: `/srv/etl/load.py` does for `/etl/load.`.
fn is_stem(file: &str, stem: &str) -> bool {
    let ending = match file.rfind(stem) {
        Some(at) => &file[at + stem.len()..],
        None => match file.strip_prefix(&stem[1..]) {
            Some(ending) => ending,
            None => return false,
        },
    };
    !ending.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, file: &str, module: Option<&str>) -> bool {
        Pattern::new(pattern)
            .expect("a pattern")
            .matches(file, module)
    }

    const FRAME: &str = "/usr/lib/site-packages/pandas/core/frame.py";

    #[test]
    fn module_matches_by_name_and_its_parts_by_dotted_names() {
        assert!(matches("pandas", FRAME, Some("pandas")));
        assert!(matches("pandas.core", FRAME, Some("pandas")));
        assert!(matches("pandas.core.frame", FRAME, Some("pandas")));
        assert!(!matches("pandas.io", FRAME, Some("pandas")));
        assert!(!matches("panda", FRAME, Some("pandas")));
        assert!(matches("json", "/usr/lib/python3.12/json/decoder.py", None));
    }

    #[test]
    fn file_is_found_by_its_whole_path_its_end_or_its_name() {
        for pattern in [
            FRAME,
            "frame.py",
            "core/frame.py",
            "/core/frame.py",
            "frame",
        ] {
            assert!(matches(pattern, FRAME, Some("pandas")), "{pattern}");
        }
        for pattern in [
            "rame.py",
            "core/frame",
            "core/fram.py",
            "py",
            "ore/frame.py",
        ] {
            let expected = pattern == "core/frame";
            assert_eq!(
                matches(pattern, FRAME, Some("pandas")),
                expected,
                "{pattern}"
            );
        }
        assert!(matches("job.py", "job.py", Some("job")));
        assert!(matches("<string>", "<string>", Some("<string>")));
    }

    #[test]
    fn stars_match_any_text_in_modules_and_paths() {
        assert!(matches("pan*", FRAME, Some("pandas")));
        assert!(matches("*/pandas/*.py", FRAME, Some("pandas")));
        assert!(matches("core/f?ame.py", FRAME, Some("pandas")));
        assert!(!matches("core/f?me.py", FRAME, Some("pandas")));
        assert!(matches("*", "<string>", None));
    }

    #[test]
    fn empty_pattern_is_refused() {
        assert_eq!(Pattern::new("  "), None);
    }
}
