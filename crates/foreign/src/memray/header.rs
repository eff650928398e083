//! The beginning of a memray file.
//!
//! ```text
//! "memray\0"  u32 format  u32 Python's version  u8 native stacks?  u8 content: 0 all allocations, 1 sums
//! u64 allocations and frees  u64 frames (not used)  u64 start  u64 end (milliseconds since 1970)
//! text command line  u32 process  u64 main thread  u64 number of memray's frames at its root
//! u8 Python's allocator  u8 Python's allocators recorded?  u8 object lifetimes recorded?
//! format 13: text standard library  texts site-packages, empty one at the end  texts sys.path, empty one at the end
//! ```
//! memray writes the header when recording begins, and again when it ends.

use heaptide_capture::{Header, Mode, OpenFailure};

use super::MAGIC;
use super::bytes::Bytes;
use super::input::Input;

/// A header, with the fields that Heaptide's header does not have.
#[derive(Clone, Debug)]
pub struct FileHeader {
    pub common: Header,
    pub is_aggregated: bool,
    pub has_native_stacks: bool,
    pub start_ms: u64,
    pub end_ms: u64,
    /// memray's number of the main thread. memray numbers threads from 1, in the order in which it first saw them.
    pub main_thread: u64,
    /// Number of the main thread's outermost frames that belong to memray.
    pub n_own_frames: usize,
}

impl FileHeader {
    /// Returns the number of a stack's outermost frames that belong to memray.
    pub fn n_hidden(&self, thread: u64) -> usize {
        if thread == self.main_thread {
            self.n_own_frames
        } else {
            0
        }
    }

    pub fn read(input: &mut Input) -> Result<FileHeader, OpenFailure> {
        loop {
            let mut bytes = Bytes::new(input.rest());
            let n_before = bytes.n_left();
            if let Some(header) = parse(&mut bytes) {
                let n_read = n_before - bytes.n_left();
                input.advance(n_read);
                return header;
            }
            if !input.widen() {
                return Err(OpenFailure::DamagedHeader);
            }
        }
    }
}

fn parse(bytes: &mut Bytes) -> Option<Result<FileHeader, OpenFailure>> {
    bytes.raw(MAGIC.len())?;
    let format = bytes.u32()?;
    if !matches!(format, 12 | 13) {
        return Some(Err(OpenFailure::Memray(format)));
    }
    let python_version = bytes.u32()?;
    let has_native_stacks = bytes.u8()? != 0;
    let is_aggregated = match bytes.u8()? {
        0 => false,
        1 => true,
        _ => return Some(Err(OpenFailure::DamagedHeader)),
    };
    let _n_events = bytes.u64()?;
    let _n_frames = bytes.u64()?;
    let start_ms = bytes.u64()?;
    let end_ms = bytes.u64()?;
    let command = text(bytes.text()?);
    let pid = bytes.u32()?;
    let main_thread = bytes.u64()?;
    let n_own_frames = bytes.u64()?;
    let python_allocator = match bytes.u8()? {
        1 => "pymalloc",
        2 => "pymalloc_debug",
        3 => "malloc",
        _ => "other",
    };
    let objects = bytes.u8()? != 0;
    let _lives_of_objects = bytes.u8()?;
    let mut stdlib_paths = Vec::new();
    let mut import_paths = Vec::new();
    if format >= 13 {
        stdlib_paths.push(text(bytes.text()?));
        import_paths = texts(bytes)?;
        import_paths.extend(texts(bytes)?);
        import_paths.dedup();
    }
    Some(Ok(FileHeader {
        common: Header {
            version: format,
            pid,
            started_unix_ns: start_ms.saturating_mul(1_000_000),
            mode: Mode {
                objects,
                aggregate: is_aggregated,
                ..Mode::default()
            },
            // memray joins the words with spaces, so spaces within a word are lost.
            command: command.split(' ').map(str::to_owned).collect(),
            python_version,
            python_allocator: python_allocator.to_owned(),
            main_thread: u32::try_from(main_thread).unwrap_or(0),
            stdlib_paths,
            import_paths,
            sample_interval_ms: 10,
            profiler_version: format!("memray (format {format})"),
            ..Header::default()
        },
        is_aggregated,
        has_native_stacks,
        start_ms,
        end_ms,
        main_thread,
        n_own_frames: usize::try_from(n_own_frames).unwrap_or(usize::MAX),
    }))
}

/// Reads texts up to an empty one.
fn texts(bytes: &mut Bytes) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    loop {
        match bytes.text()? {
            b"" => return Some(texts),
            bytes => texts.push(text(bytes)),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
