//! Decides which frames are the user's own code.
//!
//! The user's own code is the main script's folder, the package of the main module, editable installs, and the packages
//! that `HEAPTIDE_MY_CODE` names. The capture stores these, and the folders of libraries, because the report may be
//! made on another machine. The deepest folder decides, so a virtual environment in the script's folder is not the
//! user's. In captures without these folders, all code that is neither installed nor part of the standard library is
//! the user's.

use std::borrow::Cow;

use heaptide_capture::Header;

use crate::model::flame::Owner;
use crate::symbols::modules::PACKAGE_FOLDERS;
use crate::symbols::{Location, Modules, is_import_system};

pub struct UserCode<'a> {
    header: &'a Header,
    modules: Modules<'a>,
    /// Named packages as the beginning of a path: `etl/load`.
    packages: Vec<String>,
}

impl<'a> UserCode<'a> {
    pub fn new(header: &'a Header) -> UserCode<'a> {
        let packages = header.user_packages.iter();
        UserCode {
            header,
            modules: Modules::new(header),
            packages: packages.map(|name| name.replace('.', "/")).collect(),
        }
    }

    /// Whether a location is in the user's own code. Native functions are not.
    pub fn contains(&self, at: &Location) -> bool {
        !at.is_native() && self.contains_file(&at.file)
    }

    /// Who wrote a location's file or, for a native function, its library.
    pub fn owner(&self, at: &Location) -> Owner {
        if let Some(library) = &at.library {
            return self.owner_of_library(library);
        }
        if at.is_python_arena() || at.is_own_memory() || is_import_system(&at.file) {
            Owner::Interpreter
        } else if at.is_job() || self.contains_file(&at.file) {
            Owner::User
        } else if self.modules.of(&at.file).is_none() {
            Owner::StandardLibrary
        } else {
            self.owner_of_installed(&self.absolute(&at.file))
        }
    }

    fn owner_of_library(&self, path: &str) -> Owner {
        let name = path.rsplit('/').next().unwrap_or(path);
        if name.starts_with("python") || name.starts_with("libpython") {
            Owner::Interpreter
        } else if path.starts_with('/') && self.modules.of(path).is_none() {
            // Extension modules in lib-dynload.
            Owner::StandardLibrary
        } else {
            self.owner_of_installed(path)
        }
    }

    /// A package, if the file lies in a folder of packages or in Python's prefix. The prefix `/usr` has the files of the
    /// whole system, so it proves nothing.
    fn owner_of_installed(&self, path: &str) -> Owner {
        let folders = self.header.library_paths.iter();
        let mut folders = folders.filter(|folder| folder.trim_end_matches('/') != "/usr");
        if is_installed(path) || folders.any(|folder| depth(path, folder).is_some()) {
            Owner::Package
        } else {
            Owner::Other
        }
    }

    fn contains_file(&self, file: &str) -> bool {
        if is_notebook_cell(file) {
            return true;
        }
        if file.starts_with('<') {
            return self.is_main_text(file);
        }
        let path = self.absolute(file);
        if self.is_named(&path) {
            return true;
        }
        let header = self.header;
        let knows_folders = !(header.user_paths.is_empty() && header.user_packages.is_empty());
        if !knows_folders {
            return !is_installed(&path) && self.modules.of(&path).is_some();
        }
        let libraries = header.library_paths.iter().chain(&header.stdlib_paths);
        let of_library = libraries.filter_map(|folder| depth(&path, folder)).max();
        let user = header.user_paths.iter();
        let user = user.filter_map(|folder| depth(&path, folder)).max();
        // If both depths are equal, the script lies directly in Python's prefix, and the libraries lie deeper.
        user.is_some_and(|user| of_library <= Some(user) && !is_installed(&path[user..]))
    }

    /// Whether the file is the program itself, given by `-c` or on standard input. Code that libraries generate has the
    /// same names.
    fn is_main_text(&self, file: &str) -> bool {
        let command = self.header.command.first().map(String::as_str);
        match file {
            "<string>" => command == Some("-c"),
            "<stdin>" => command == Some("-") || command.is_none_or(str::is_empty),
            _ => false,
        }
    }

    fn absolute<'f>(&self, file: &'f str) -> Cow<'f, str> {
        match file.starts_with('/') {
            true => file.into(),
            false => format!("{}/{file}", self.header.working_directory).into(),
        }
    }

    fn is_named(&self, path: &str) -> bool {
        let below = self.modules.path_below(path);
        self.packages.iter().any(|package| {
            let rest = below.strip_prefix(package.as_str());
            rest.is_some_and(|rest| rest.starts_with('/') || rest == ".py")
        })
    }
}

/// IPython gives each cell its own file name.
fn is_notebook_cell(file: &str) -> bool {
    file.starts_with("<ipython-input-") || file.contains("/ipykernel_")
}

fn is_installed(path: &str) -> bool {
    PACKAGE_FOLDERS.iter().any(|folder| path.contains(folder))
}

/// The length of the folder's path if the file lies below it.
fn depth(path: &str, folder: &str) -> Option<usize> {
    let folder = folder.trim_end_matches('/');
    let rest = path.strip_prefix(folder)?;
    rest.starts_with('/').then_some(folder.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            command: vec!["etl.py".into()],
            working_directory: "/srv/job".into(),
            stdlib_paths: vec!["/usr/lib/python3.12".into()],
            import_paths: vec![
                "/srv/job".into(),
                "/usr/lib/python3.12".into(),
                "/srv/job/.venv/lib/python3.12/site-packages".into(),
            ],
            library_paths: vec!["/srv/job/.venv".into(), "/usr".into()],
            user_paths: vec!["/srv/job".into(), "/home/me/shared".into()],
            user_packages: vec!["company".into(), "vendor.fixed".into()],
            ..Header::default()
        }
    }

    fn is_user_code(header: &Header, file: &str) -> bool {
        UserCode::new(header).contains_file(file)
    }

    #[test]
    fn script_folder_and_editable_installs_are_the_users_code() {
        let header = header();
        assert!(is_user_code(&header, "/srv/job/etl.py"));
        assert!(is_user_code(&header, "etl.py"));
        assert!(is_user_code(&header, "/srv/job/steps/load.py"));
        assert!(is_user_code(&header, "/home/me/shared/src/shared/io.py"));
        assert!(!is_user_code(&header, "/opt/tools/x.py"));
        assert!(!is_user_code(&header, "/srv/job2/etl.py"));
    }

    #[test]
    fn virtual_environment_in_the_script_folder_is_not_the_users_code() {
        let header = header();
        let site = "/srv/job/.venv/lib/python3.12/site-packages";
        assert!(!is_user_code(
            &header,
            &format!("{site}/pandas/core/frame.py")
        ));
        assert!(!is_user_code(&header, "/srv/job/.venv/bin/tool"));
        assert!(!is_user_code(
            &header,
            "/srv/job/.tox/py/lib/python3.12/site-packages/x.py"
        ));
        assert!(!is_user_code(
            &header,
            "/usr/lib/python3.12/json/decoder.py"
        ));
        assert!(!is_user_code(&header, "<frozen importlib._bootstrap>"));
    }

    #[test]
    fn named_packages_are_the_users_code_wherever_they_are_installed() {
        let header = header();
        let site = "/srv/job/.venv/lib/python3.12/site-packages";
        assert!(is_user_code(&header, &format!("{site}/company/io/read.py")));
        assert!(is_user_code(&header, &format!("{site}/company.py")));
        assert!(is_user_code(&header, &format!("{site}/vendor/fixed.py")));
        assert!(!is_user_code(
            &header,
            &format!("{site}/company_tools/x.py")
        ));
        assert!(!is_user_code(&header, &format!("{site}/vendor/other.py")));
    }

    #[test]
    fn generated_code_is_not_the_users_but_cells_and_programs_given_as_text_are() {
        let mut header = header();
        assert!(!is_user_code(&header, "<string>"));
        assert!(is_user_code(&header, "<ipython-input-3-0a1b>"));
        assert!(is_user_code(&header, "/tmp/ipykernel_4711/123.py"));
        header.command = vec!["-c".into()];
        assert!(is_user_code(&header, "<string>"));
    }

    #[test]
    fn every_file_and_library_has_an_owner() {
        let header = header();
        let code = UserCode::new(&header);
        let owner = |file: &str, library: Option<&str>| {
            code.owner(&Location {
                function: "f".into(),
                file: file.into(),
                line: 1,
                library: library.map(Into::into),
            })
        };
        let site = "/srv/job/.venv/lib/python3.12/site-packages";
        assert_eq!(owner("/srv/job/etl.py", None), Owner::User);
        assert_eq!(owner(&format!("{site}/x/y.py"), None), Owner::Package);
        let json = "/usr/lib/python3.12/json/decoder.py";
        assert_eq!(owner(json, None), Owner::StandardLibrary);
        assert_eq!(owner("<frozen runpy>", None), Owner::StandardLibrary);
        let import = "<frozen importlib._bootstrap>";
        assert_eq!(owner(import, None), Owner::Interpreter);
        let native = |library: &str| owner("ceval.c", Some(library));
        assert_eq!(native("/usr/bin/python3.12"), Owner::Interpreter);
        assert_eq!(native("/usr/lib/libpython3.12.so.1.0"), Owner::Interpreter);
        let array = format!("{site}/numpy/core/_multiarray_umath.so");
        assert_eq!(native(&array), Owner::Package);
        assert_eq!(owner("/srv/job/.venv/bin/tool", None), Owner::Package);
        let extension = "/usr/lib/python3.12/lib-dynload/_json.so";
        assert_eq!(native(extension), Owner::StandardLibrary);
    }

    #[test]
    fn code_in_no_known_folder_is_neither_the_users_nor_a_package() {
        let header = header();
        let code = UserCode::new(&header);
        let owner = |file: &str, library: Option<&str>| {
            code.owner(&Location {
                function: "f".into(),
                file: file.into(),
                line: 1,
                library: library.map(Into::into),
            })
        };
        for file in ["/opt/tools/x.py", "/usr/share/app/x.py", "<string>"] {
            assert_eq!(owner(file, None), Owner::Other, "{file}");
        }
        for library in [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/usr/lib/libssl.so.3",
            "[vdso]",
        ] {
            assert_eq!(owner("f.c", Some(library)), Owner::Other, "{library}");
        }
    }

    #[test]
    fn script_below_the_prefix_is_the_users_code() {
        let mut header = header();
        header.library_paths = vec!["/usr".into(), "/usr/lib/python3.12/site-packages".into()];
        header.user_paths = vec!["/usr/local/app".into()];
        assert!(is_user_code(&header, "/usr/local/app/main.py"));
        assert!(!is_user_code(&header, "/usr/local/other/main.py"));
    }

    #[test]
    fn code_that_is_not_installed_is_the_users_in_older_captures() {
        let header = Header {
            user_paths: Vec::new(),
            user_packages: Vec::new(),
            library_paths: Vec::new(),
            ..header()
        };
        assert!(is_user_code(&header, "/srv/job/etl.py"));
        assert!(!is_user_code(
            &header,
            "/v/lib/python3.12/site-packages/x.py"
        ));
        assert!(!is_user_code(
            &header,
            "/usr/lib/python3.12/json/decoder.py"
        ));
    }
}
