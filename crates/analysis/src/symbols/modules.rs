//! The module of a file: the top package below the folder it was imported from.
//!
//! The folders come from the capture, because the report may be made on another machine.

use heaptide_capture::Header;

use super::names::Location;

/// Folder names in which packages are installed.
pub(crate) const PACKAGE_FOLDERS: [&str; 2] = ["/site-packages/", "/dist-packages/"];

pub struct Modules<'a> {
    stdlib: &'a [String],
    /// Longest first, so that the closest folder wins.
    imports: Vec<&'a str>,
}

impl<'a> Modules<'a> {
    pub fn new(header: &'a Header) -> Modules<'a> {
        let mut imports: Vec<&str> = header.import_paths.iter().map(String::as_str).collect();
        imports.retain(|path| !path.is_empty());
        imports.sort_by_key(|path| std::cmp::Reverse(path.len()));
        Modules {
            stdlib: &header.stdlib_paths,
            imports,
        }
    }

    /// The top module of a file, or `None` for the standard library and the import system.
    pub fn of<'f>(&self, file: &'f str) -> Option<&'f str> {
        if file.starts_with('<') {
            return (!file.starts_with("<frozen ")).then_some(file);
        }
        for folder in PACKAGE_FOLDERS {
            if let Some(at) = file.rfind(folder) {
                return Some(top(&file[at + folder.len()..]));
            }
        }
        let below = |folder: &str| {
            let rest = file.strip_prefix(folder.trim_end_matches('/'))?;
            rest.strip_prefix('/')
        };
        // The program's folder may lie below the standard library's prefix, or vice versa.
        let import = self
            .imports
            .iter()
            .find_map(|folder| Some((folder.len(), below(folder)?)));
        let stdlib = self.stdlib.iter().filter(|folder| below(folder).is_some());
        let stdlib = stdlib.map(String::len).max();
        match (stdlib, import) {
            (Some(stdlib), Some((len, rest))) if len > stdlib => Some(top(rest)),
            (Some(_), _) => None,
            (None, Some((_, rest))) => Some(top(rest)),
            (None, None) => Some(top(file.rsplit('/').next().unwrap_or(file))),
        }
    }

    /// The top module of a location. Native functions have none: they belong to a library.
    pub fn of_location<'f>(&self, at: &'f Location) -> Option<&'f str> {
        if at.is_native() {
            None
        } else {
            self.of(&at.file)
        }
    }

    /// The part of a file's path that does not depend on where its package is installed, or the whole path if it is in none
    /// of the known folders.
    pub fn path_below<'f>(&self, file: &'f str) -> &'f str {
        for folder in PACKAGE_FOLDERS {
            if let Some(at) = file.rfind(folder) {
                return &file[at + folder.len()..];
            }
        }
        let below = |folder: &str| {
            let rest = file.strip_prefix(folder.trim_end_matches('/'))?;
            rest.strip_prefix('/').filter(|rest| !rest.is_empty())
        };
        let stdlib = self.stdlib.iter().map(String::as_str);
        let known = self.imports.iter().copied().chain(stdlib);
        let paths = known.filter(|folder| !folder.is_empty()).filter_map(below);
        paths.min_by_key(|rest| rest.len()).unwrap_or(file)
    }
}

/// `pandas/core/frame.py` → `pandas`, `job.py` → `job`.
fn top(path: &str) -> &str {
    match path.split_once('/') {
        Some((package, _)) => package,
        None => path.split_once('.').map_or(path, |(stem, _)| stem),
    }
}

/// Whether a file belongs to Python's import system.
pub fn is_import_system(file: &str) -> bool {
    file.starts_with("<frozen importlib.") || file == "<frozen zipimport>"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(file: &str) -> Option<String> {
        let header = Header {
            stdlib_paths: vec![
                "/usr/lib/python3.11".into(),
                "/usr/lib/python3.11/lib-dynload".into(),
            ],
            import_paths: vec![
                "/srv/job".into(),
                "/usr/lib/python3.11".into(),
                "/usr/lib/python3.11/lib-dynload".into(),
                "/srv/job/vendor".into(),
                String::new(),
            ],
            ..Header::default()
        };
        Modules::new(&header).of(file).map(str::to_owned)
    }

    #[test]
    fn file_belongs_to_the_top_package_below_its_import_folder() {
        assert_eq!(module("/srv/job/etl/load/csv.py").as_deref(), Some("etl"));
        assert_eq!(module("/srv/job/job.py").as_deref(), Some("job"));
        assert_eq!(module("/srv/job/vendor/six.py").as_deref(), Some("six"));
        assert_eq!(module("/elsewhere/x.py").as_deref(), Some("x"));
    }

    #[test]
    fn package_installed_in_the_folder_of_the_standard_library_is_not_part_of_it() {
        let file = "/usr/lib/python3.11/site-packages/pandas/core/frame.py";
        assert_eq!(module(file).as_deref(), Some("pandas"));
        assert_eq!(
            module("/usr/lib/python3/dist-packages/yaml.py").as_deref(),
            Some("yaml")
        );
    }

    #[test]
    fn same_file_of_two_installations_has_the_same_path_below_them() {
        let header = |version: &str, home: &str| Header {
            stdlib_paths: vec![format!("/usr/lib/python{version}")],
            import_paths: vec![home.into(), format!("/usr/lib/python{version}")],
            ..Header::default()
        };
        let (old, new) = (header("3.11", "/srv/old/"), header("3.12", "/srv/new"));
        let pairs = [
            ("/srv/old/etl/load.py", "/srv/new/etl/load.py"),
            (
                "/usr/lib/python3.11/json/decoder.py",
                "/usr/lib/python3.12/json/decoder.py",
            ),
            (
                "/v/lib/python3.11/site-packages/x/y.py",
                "/w/lib/python3.12/site-packages/x/y.py",
            ),
            ("<frozen runpy>", "<frozen runpy>"),
        ];
        for (one, other) in pairs {
            let (old, new) = (Modules::new(&old), Modules::new(&new));
            assert_eq!(old.path_below(one), new.path_below(other));
        }
        assert_eq!(Modules::new(&old).path_below("/opt/x.py"), "/opt/x.py");
    }

    #[test]
    fn standard_library_and_import_system_are_not_modules_of_the_program() {
        assert_eq!(module("/usr/lib/python3.11/json/decoder.py"), None);
        assert_eq!(module("/usr/lib/python3.11/lib-dynload/x.so"), None);
        assert_eq!(module("<frozen importlib._bootstrap>"), None);
        assert_eq!(module("<string>").as_deref(), Some("<string>"));
    }
}
