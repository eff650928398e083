//! The first bytes of a capture: the profiled program, the recording options, and the units of its numbers.
//!
//! ```text
//! 0 magic (8)   8 version (u32)   12 length of the fields (u32)   16 checksum of the fields (u64)   24 fields
//! field: varint tag, varint length, bytes
//! ```
//! A reader skips unknown tags, so fields can be added without a new version. The version changes only when older readers
//! would misread the file. A reader reads all versions up to its own.

use crate::identity::{Facts, Identity, fact_text, parse_fact};
use crate::labels::{self, Labels};
use crate::newer::{NewerFormat, WRITTEN_BY};
use crate::wire::{Reader, Writer, checksum};

pub const MAGIC: [u8; 8] = *b"\x89TIDE\r\n\x1a";
/// The newest version that this reader understands.
pub const VERSION: u32 = 2;
/// The version of a capture without jobs whose mode never changed. Readers of this version stop at job marks, and give
/// events after a mode change the wrong weight.
pub const FIRST_VERSION: u32 = 1;
/// Offset of the version, which can be raised while the file is written: no checksum covers it.
pub const VERSION_AT: u64 = MAGIC.len() as u64;
/// Magic number, version, length, checksum.
pub const PREFIX_LEN: usize = 24;
/// Longer headers count as damage.
pub const MAX_FIELDS_LEN: usize = 1 << 20;

/// Mean bytes between two samples when sampling is requested without a number.
pub const DEFAULT_SAMPLE_BYTES: u64 = 512 * 1024;

/// Milliseconds between two readings of the resident size, unless the user chooses another interval.
pub const DEFAULT_INTERVAL_MS: u32 = 10;

/// The recording mode, as every front end passes it to the agent and every capture stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mode {
    /// Python's own allocators are also recorded.
    pub objects: bool,
    /// Mean bytes between two recorded allocations; 0 records every one.
    pub sample_bytes: u64,
    /// The file is bounded: it holds sums and the last events, not every event.
    pub aggregate: bool,
    pub follow_fork: bool,
    /// Stacks contain native frames between the Python frames.
    pub native: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Header {
    /// Version of the file's format.
    pub version: u32,
    /// The identifier of the session, which all its processes share.
    pub session: [u8; 16],
    pub pid: u32,
    pub parent_pid: u32,
    /// Wall-clock time at which recording began.
    pub started_unix_ns: u64,
    pub mode: Mode,
    /// The profiled program's arguments, from `sys.argv` or from the process.
    pub command: Vec<String>,
    pub executable: String,
    pub working_directory: String,
    pub host: String,
    /// As `sys.hexversion`: 0x030b07f0 is 3.11.7.
    pub python_version: u32,
    /// The allocator that Python itself uses: `pymalloc`, `malloc`, …
    pub python_allocator: String,
    /// Operating-system id of the main thread.
    pub main_thread: u32,
    /// Folders of the standard library; frames there are not the program's own.
    pub stdlib_paths: Vec<String>,
    /// Folders on the import path. The path of a file relative to one of them gives its module name.
    pub import_paths: Vec<String>,
    /// Folders whose frames are the profiler's own and are left out at the root of a stack.
    pub own_paths: Vec<String>,
    /// Folders in which libraries are installed: Python's prefixes and site-packages.
    pub library_paths: Vec<String>,
    /// Folders of the user's own code; see `analysis::user_code`.
    pub user_paths: Vec<String>,
    /// Packages that are the user's own code wherever they are installed.
    pub user_packages: Vec<String>,
    /// The functions on the stack outside of the one that started the recording, outermost first: `first
    /// line<tab>name<tab>file`. Reports leave them out at the root of a stack, as memray does.
    pub outer_functions: Vec<String>,
    /// A clock unit is `1 << tick_shift` raw counter ticks.
    pub tick_shift: u32,
    pub sample_interval_ms: u32,
    pub profiler_version: String,
    /// Recording began in a running process, so frees of blocks that are not in the file are normal.
    pub joined_late: bool,
    /// Resident bytes when `heaptide attach` entered the process; 0 if recording began otherwise.
    pub attached_at_bytes: u64,
    /// Facts that distinguish this process from others with the same ID, as keys and values; see [`crate::identity`].
    pub facts: Facts,
}

const SESSION: u64 = 1;
const PID: u64 = 2;
const PARENT_PID: u64 = 3;
const STARTED: u64 = 4;
const OBJECTS: u64 = 5;
const SAMPLE_BYTES: u64 = 6;
const AGGREGATE: u64 = 7;
const FOLLOW_FORK: u64 = 8;
const COMMAND: u64 = 9;
const EXECUTABLE: u64 = 10;
const WORKING_DIRECTORY: u64 = 11;
const HOST: u64 = 12;
const PYTHON_VERSION: u64 = 13;
const PYTHON_ALLOCATOR: u64 = 14;
const MAIN_THREAD: u64 = 15;
const STDLIB_PATH: u64 = 16;
const IMPORT_PATH: u64 = 17;
const OWN_PATH: u64 = 18;
const TICK_SHIFT: u64 = 19;
const SAMPLE_INTERVAL: u64 = 20;
const PROFILER_VERSION: u64 = WRITTEN_BY;
const JOINED_LATE: u64 = 22;
const NATIVE: u64 = 23;
const ATTACHED_AT: u64 = 30;
const FACT: u64 = 40;
const LIBRARY_PATH: u64 = 41;
const USER_PATH: u64 = 42;
const USER_PACKAGE: u64 = 43;
const OUTER_FUNCTION: u64 = 44;

/// The reason why the beginning of a file is not a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Another file format.
    Foreign,
    /// Written by a later release.
    Newer(NewerFormat),
    /// A capture whose header is cut or overwritten.
    Damaged,
}

impl Header {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        put(&mut fields, SESSION, &self.session);
        put_number(&mut fields, PID, self.pid.into());
        put_number(&mut fields, PARENT_PID, self.parent_pid.into());
        put_number(&mut fields, STARTED, self.started_unix_ns);
        put_number(&mut fields, OBJECTS, self.mode.objects.into());
        put_number(&mut fields, SAMPLE_BYTES, self.mode.sample_bytes);
        put_number(&mut fields, AGGREGATE, self.mode.aggregate.into());
        put_number(&mut fields, FOLLOW_FORK, self.mode.follow_fork.into());
        put_each(&mut fields, COMMAND, &self.command);
        put(&mut fields, EXECUTABLE, self.executable.as_bytes());
        put(
            &mut fields,
            WORKING_DIRECTORY,
            self.working_directory.as_bytes(),
        );
        put(&mut fields, HOST, self.host.as_bytes());
        put_number(&mut fields, PYTHON_VERSION, self.python_version.into());
        put(
            &mut fields,
            PYTHON_ALLOCATOR,
            self.python_allocator.as_bytes(),
        );
        put_number(&mut fields, MAIN_THREAD, self.main_thread.into());
        put_each(&mut fields, STDLIB_PATH, &self.stdlib_paths);
        put_each(&mut fields, IMPORT_PATH, &self.import_paths);
        put_each(&mut fields, OWN_PATH, &self.own_paths);
        put_number(&mut fields, TICK_SHIFT, self.tick_shift.into());
        put_number(&mut fields, SAMPLE_INTERVAL, self.sample_interval_ms.into());
        put(
            &mut fields,
            PROFILER_VERSION,
            self.profiler_version.as_bytes(),
        );
        put_number(&mut fields, JOINED_LATE, self.joined_late.into());
        if self.mode.native {
            put_number(&mut fields, NATIVE, 1);
        }
        if self.attached_at_bytes > 0 {
            put_number(&mut fields, ATTACHED_AT, self.attached_at_bytes);
        }
        for fact in &self.facts {
            put(&mut fields, FACT, fact_text(fact).as_bytes());
        }
        put_each(&mut fields, LIBRARY_PATH, &self.library_paths);
        put_each(&mut fields, USER_PATH, &self.user_paths);
        put_each(&mut fields, USER_PACKAGE, &self.user_packages);
        put_each(&mut fields, OUTER_FUNCTION, &self.outer_functions);

        let mut bytes = Vec::with_capacity(PREFIX_LEN + fields.len());
        bytes.extend_from_slice(&MAGIC);
        let version = self.version.clamp(FIRST_VERSION, VERSION);
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&(fields.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&checksum(&fields).to_le_bytes());
        bytes.extend_from_slice(&fields);
        bytes
    }

    pub fn identity(&self) -> Identity {
        Identity::new(self.pid, &self.host, &self.facts)
    }

    /// The labels of the process. In an opened capture they include labels that were set during the recording.
    pub fn labels(&self) -> Labels {
        labels::of(&self.facts)
    }

    /// The name of the run; empty in captures of older releases.
    pub fn run(&self) -> &str {
        labels::run(&self.facts)
    }

    /// The title of the process: its role or its program.
    pub fn title(&self) -> String {
        labels::title(&self.labels(), &self.command)
    }

    pub(crate) fn add_labels(&mut self, later: &[(String, String)]) {
        for (key, value) in later {
            labels::set(&mut self.facts, key, value);
        }
    }

    /// Returns the length of the whole header, given its first [`PREFIX_LEN`] bytes. Headers of later versions have the
    /// same prefix, so that the error can name the release that wrote the file.
    pub fn total_len(prefix: &[u8]) -> Result<usize, HeaderError> {
        if !prefix.starts_with(&MAGIC) {
            return Err(HeaderError::Foreign);
        }
        let mut input = Reader::new(&prefix[MAGIC.len()..]);
        let version = input.u32().ok_or(HeaderError::Damaged)?;
        let fields_len = input.u32().ok_or(HeaderError::Damaged)? as usize;
        match version {
            0 => Err(HeaderError::Damaged),
            1..=VERSION if fields_len > MAX_FIELDS_LEN => Err(HeaderError::Damaged),
            _ => Ok(PREFIX_LEN + fields_len.min(MAX_FIELDS_LEN)),
        }
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Header, HeaderError> {
        let total_len = Header::total_len(bytes)?;
        let mut prefix = Reader::new(&bytes[MAGIC.len()..]);
        let version = prefix.u32().ok_or(HeaderError::Damaged)?;
        if version > VERSION {
            let fields = bytes.get(PREFIX_LEN..).unwrap_or_default();
            return Err(HeaderError::Newer(NewerFormat::new(version, fields)));
        }
        let fields = bytes
            .get(PREFIX_LEN..total_len)
            .ok_or(HeaderError::Damaged)?;
        let expected = bytes.get(16..24).ok_or(HeaderError::Damaged)?;
        if checksum(fields).to_le_bytes() != expected {
            return Err(HeaderError::Damaged);
        }
        let mut header = Header {
            version,
            ..Header::default()
        };
        let mut input = Reader::new(fields);
        while !input.is_at_end() {
            let tag = input.varint().ok_or(HeaderError::Damaged)?;
            let value = input.text().ok_or(HeaderError::Damaged)?;
            header.set(tag, value).ok_or(HeaderError::Damaged)?;
        }
        Ok(header)
    }

    fn set(&mut self, tag: u64, value: &[u8]) -> Option<()> {
        let text = || String::from_utf8_lossy(value).into_owned();
        let number = || Reader::new(value).varint();
        let small = || u32::try_from(number()?).ok();
        match tag {
            SESSION => self.session = value.try_into().ok()?,
            PID => self.pid = small()?,
            PARENT_PID => self.parent_pid = small()?,
            STARTED => self.started_unix_ns = number()?,
            OBJECTS => self.mode.objects = number()? != 0,
            SAMPLE_BYTES => self.mode.sample_bytes = number()?,
            AGGREGATE => self.mode.aggregate = number()? != 0,
            FOLLOW_FORK => self.mode.follow_fork = number()? != 0,
            COMMAND => self.command.push(text()),
            EXECUTABLE => self.executable = text(),
            WORKING_DIRECTORY => self.working_directory = text(),
            HOST => self.host = text(),
            PYTHON_VERSION => self.python_version = small()?,
            PYTHON_ALLOCATOR => self.python_allocator = text(),
            MAIN_THREAD => self.main_thread = small()?,
            STDLIB_PATH => self.stdlib_paths.push(text()),
            IMPORT_PATH => self.import_paths.push(text()),
            OWN_PATH => self.own_paths.push(text()),
            TICK_SHIFT => self.tick_shift = small()?,
            SAMPLE_INTERVAL => self.sample_interval_ms = small()?,
            PROFILER_VERSION => self.profiler_version = text(),
            JOINED_LATE => self.joined_late = number()? != 0,
            NATIVE => self.mode.native = number()? != 0,
            ATTACHED_AT => self.attached_at_bytes = number()?,
            FACT => self.facts.extend(parse_fact(&text())),
            LIBRARY_PATH => self.library_paths.push(text()),
            USER_PATH => self.user_paths.push(text()),
            USER_PACKAGE => self.user_packages.push(text()),
            OUTER_FUNCTION => self.outer_functions.push(text()),
            _ => {}
        }
        Some(())
    }
}

fn put(fields: &mut Vec<u8>, tag: u64, value: &[u8]) {
    let mut head = [0; 20];
    let mut out = Writer::new(&mut head);
    out.varint(tag);
    out.varint(value.len() as u64);
    let len = out.len();
    fields.extend_from_slice(&head[..len]);
    fields.extend_from_slice(value);
}

fn put_number(fields: &mut Vec<u8>, tag: u64, value: u64) {
    let mut bytes = [0; 10];
    let mut out = Writer::new(&mut bytes);
    out.varint(value);
    let len = out.len();
    put(fields, tag, &bytes[..len]);
}

fn put_each(fields: &mut Vec<u8>, tag: u64, values: &[String]) {
    for value in values {
        put(fields, tag, value.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            version: VERSION,
            session: [7; 16],
            pid: 4711,
            command: vec!["job.py".into(), "--fast".into(), String::new()],
            python_version: 0x030b_07f0,
            mode: Mode {
                sample_bytes: 1 << 19,
                ..Mode::default()
            },
            import_paths: vec!["/srv/job".into()],
            library_paths: vec!["/usr".into()],
            user_paths: vec!["/srv/job".into()],
            user_packages: vec!["etl".into()],
            outer_functions: vec!["12\tmain\t/srv/job/run.py".into()],
            attached_at_bytes: 5 << 20,
            host: "web-1".into(),
            facts: vec![
                ("start".into(), "83456.12s".into()),
                ("role".into(), "worker".into()),
            ],
            ..Header::default()
        }
    }

    #[test]
    fn header_round_trips() {
        assert_eq!(Header::from_bytes(&header().to_bytes()), Ok(header()));
        assert_eq!(header().identity().start, "83456.12s");
    }

    #[test]
    fn field_of_a_later_release_is_skipped() {
        let mut fields = header().to_bytes()[PREFIX_LEN..].to_vec();
        put(&mut fields, 9_999, b"from the future");
        let mut bytes = header().to_bytes();
        bytes.truncate(MAGIC.len() + 4);
        bytes.extend_from_slice(&(fields.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&checksum(&fields).to_le_bytes());
        bytes.extend_from_slice(&fields);
        assert_eq!(Header::from_bytes(&bytes), Ok(header()));
    }

    #[test]
    fn other_files_newer_captures_and_cut_headers_give_different_errors() {
        const LATER: u32 = VERSION + 1;
        let bytes = header().to_bytes();
        assert_eq!(Header::from_bytes(b"PK\x03\x04"), Err(HeaderError::Foreign));
        assert_eq!(
            Header::from_bytes(&bytes[..bytes.len() - 1]),
            Err(HeaderError::Damaged)
        );
        let mut newer = bytes.clone();
        newer[8] = LATER as u8;
        let newer_format = |written_by: Option<&str>| {
            Err(HeaderError::Newer(NewerFormat {
                format: LATER,
                written_by: written_by.map(str::to_owned),
            }))
        };
        assert_eq!(Header::from_bytes(&newer), newer_format(None));
        let mut named = Header {
            profiler_version: "9.8.7".into(),
            ..header()
        };
        let with_version = |header: &Header| {
            let mut bytes = header.to_bytes();
            bytes[8] = LATER as u8;
            bytes
        };
        let bytes = with_version(&named);
        assert_eq!(Header::from_bytes(&bytes), newer_format(Some("9.8.7")));
        // A cut header may still contain the release. A release with control characters is ignored.
        assert!(matches!(
            Header::from_bytes(&bytes[..40]),
            Err(HeaderError::Newer(_))
        ));
        named.profiler_version = "9\u{1b}[2J".into();
        assert_eq!(
            Header::from_bytes(&with_version(&named)),
            newer_format(None)
        );
    }
}
