//! The Python interpreter and the C library of another process, and the addresses of the functions to call there.

use heaptide_procfs::{self as procfs, Mapping};

use crate::image::{Image, NoImage, Symbol};
use crate::memory::Memory;
use crate::refusal::Refusal;

/// The oldest Python that Heaptide records.
const OLDEST: (u8, u8) = (3, 10);

#[derive(Clone, Debug)]
pub struct Interpreter {
    pub version: (u8, u8),
    /// `_PyRuntime`, the root of the interpreter's state.
    pub runtime: Option<Symbol>,
    pub ensure_gil: u64,
    pub release_gil: u64,
    /// `int PyRun_SimpleString(const char *)`.
    pub run_text: u64,
    /// The function that evaluates Python code: a thread in it holds no lock of the C library.
    pub evaluation: Symbol,
}

/// Functions of the C library, and the address range of its code.
#[derive(Clone, Debug)]
pub struct CLibrary {
    pub pthread_create: u64,
    pub pthread_self: u64,
    pub pthread_detach: u64,
    pub mmap: u64,
    pub munmap: u64,
    /// Lowest and highest address of each library with these functions.
    code: Vec<(u64, u64)>,
}

impl CLibrary {
    pub fn contains(&self, address: u64) -> bool {
        let mut code = self.code.iter();
        code.any(|&(start, end)| (start..end).contains(&address))
    }
}

impl Interpreter {
    pub fn find(pid: u32, mappings: &[Mapping]) -> Result<Interpreter, Refusal> {
        let memory = Memory::of(pid);
        let program = procfs::program_name(pid);
        let executable = executable(pid, mappings);
        let is_library = |mapping: &&Mapping| file_name(&mapping.path).starts_with("libpython");
        let candidates = mappings.iter().filter(is_library).chain(executable);
        let mut is_other_machine = false;
        for mapping in candidates {
            match Image::read(&memory, mapping) {
                Ok(image) => {
                    if let Some(found) = Interpreter::of(&memory, &image, mappings, &program) {
                        return found.supported(pid);
                    }
                }
                Err(NoImage::OtherMachine) => is_other_machine = true,
                Err(NoImage::Other) => {}
            }
        }
        Err(if is_other_machine {
            Refusal::OtherMachine { pid, program }
        } else if let Some(version) = version_by_name(mappings, &program) {
            if version < OLDEST {
                Refusal::UnsupportedVersion { pid, version }
            } else {
                Refusal::NoSymbols { pid, program }
            }
        } else {
            Refusal::NotPython { pid, program }
        })
    }

    fn of(
        memory: &Memory,
        image: &Image,
        mappings: &[Mapping],
        program: &str,
    ) -> Option<Interpreter> {
        let address = |name| image.symbol(name).map(|symbol| symbol.address);
        let reported = image
            .symbol("Py_Version")
            .and_then(|symbol| memory.read(symbol.address, 4).ok())
            .map(|bytes| (bytes[3], bytes[2]));
        Some(Interpreter {
            version: reported.or_else(|| version_by_name(mappings, program))?,
            runtime: image.symbol("_PyRuntime"),
            ensure_gil: address("PyGILState_Ensure")?,
            release_gil: address("PyGILState_Release")?,
            run_text: address("PyRun_SimpleString")?,
            evaluation: image.symbol("_PyEval_EvalFrameDefault")?,
        })
    }

    fn supported(self, pid: u32) -> Result<Interpreter, Refusal> {
        if self.version < OLDEST {
            return Err(Refusal::UnsupportedVersion {
                pid,
                version: self.version,
            });
        }
        Ok(self)
    }
}

impl CLibrary {
    pub fn find(pid: u32, mappings: &[Mapping]) -> Result<CLibrary, Refusal> {
        let memory = Memory::of(pid);
        let is_musl = |mapping: &Mapping| file_name(&mapping.path).starts_with("ld-musl");
        if mappings.iter().any(is_musl) {
            return Err(Refusal::Musl(pid));
        }
        let mut images = Vec::new();
        let mut code = Vec::new();
        // Before glibc 2.34, threads were in a separate library.
        for wanted in ["libc.so.6", "libc-2", "libpthread"] {
            let is_match = |mapping: &&Mapping| file_name(&mapping.path).starts_with(wanted);
            let Some(first) = mappings.iter().find(is_match) else {
                continue;
            };
            let Ok(image) = Image::read(&memory, first) else {
                continue;
            };
            let same = mappings.iter().filter(|mapping| mapping.path == first.path);
            let end = same.map(|mapping| mapping.end).max().unwrap_or(first.end);
            code.push((first.start, end));
            images.push(image);
        }
        let address = |name| {
            let found = images.iter().find_map(|image| image.symbol(name));
            found.map(|symbol| symbol.address)
        };
        let found = || {
            Some(CLibrary {
                pthread_create: address("pthread_create")?,
                pthread_self: address("pthread_self")?,
                pthread_detach: address("pthread_detach")?,
                mmap: address("mmap")?,
                munmap: address("munmap")?,
                code,
            })
        };
        found().ok_or(Refusal::NoLibc(pid))
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn executable(pid: u32, mappings: &[Mapping]) -> Option<&Mapping> {
    let path = procfs::executable(pid)?;
    let path = path.to_string_lossy();
    mappings.iter().find(|mapping| mapping.path == path)
}

/// Derives the version from file names: Python before 3.11 has no symbol `Py_Version`.
fn version_by_name(mappings: &[Mapping], program: &str) -> Option<(u8, u8)> {
    let names = mappings.iter().map(|mapping| mapping.path.as_str());
    let mut libraries = names.clone().map(file_name);
    let by_library =
        libraries.find_map(|name| version_after(name.strip_prefix("libpython")?, false));
    let by_program = || version_after(program.strip_prefix("python")?, false);
    // Modules of the standard library: `_bisect.cpython-310-x86_64-linux-gnu.so`.
    let by_module = || {
        let mut names = names.map(file_name);
        names.find_map(|name| version_after(name.split_once(".cpython-")?.1, true))
    };
    by_library.or_else(by_program).or_else(by_module)
}

/// Parses `3.12`, or `312` if it is written without a dot.
fn version_after(text: &str, has_no_dot: bool) -> Option<(u8, u8)> {
    let major = text.chars().next()?.to_digit(10)? as u8;
    let rest = &text[1..];
    let rest = if has_no_dot {
        rest
    } else {
        rest.strip_prefix('.')?
    };
    let end = rest.find(|letter: char| !letter.is_ascii_digit());
    let minor = rest[..end.unwrap_or(rest.len())].parse().ok()?;
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(path: &str) -> Vec<Mapping> {
        vec![Mapping {
            start: 0,
            end: 1,
            is_readable: true,
            file_offset: 0,
            path: path.into(),
        }]
    }

    #[test]
    fn version_is_derived_from_library_program_or_module() {
        let library = mapped("/usr/lib/libpython3.10.so.1.0");
        assert_eq!(version_by_name(&library, "uwsgi"), Some((3, 10)));
        assert_eq!(version_by_name(&[], "python3.9"), Some((3, 9)));
        let module = mapped("/lib/_bisect.cpython-313-x86_64-linux-gnu.so");
        assert_eq!(version_by_name(&module, "python3"), Some((3, 13)));
        assert_eq!(version_by_name(&[], "python2.7"), Some((2, 7)));
        assert_eq!(version_by_name(&[], "python3"), None);
        assert_eq!(version_by_name(&mapped("/bin/sleep"), "sleep"), None);
    }

    #[test]
    fn unsupported_c_libraries_give_different_refusals() {
        let pid = std::process::id();
        let found = |path: &str| CLibrary::find(pid, &mapped(path)).map(|_| ());
        assert_eq!(found("/lib/ld-musl-x86_64.so.1"), Err(Refusal::Musl(pid)));
        // Linked statically: no C library is mapped.
        assert_eq!(found("/opt/python/bin/python3"), Err(Refusal::NoLibc(pid)));
    }

    #[test]
    fn program_that_is_not_python_is_refused() {
        let pid = std::process::id();
        let mappings = procfs::mappings(pid).expect("own mappings are readable");
        let found = Interpreter::find(pid, &mappings);
        assert!(matches!(found, Err(Refusal::NotPython { .. })), "{found:?}");
    }
}
