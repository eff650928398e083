//! The capture format: bytes ⇄ records.
//!
//! The code in the profiled program (`agent`) and the offline code (`analysis`) share this definition.
//! `docs/reference/capture-format.md` describes the file. In reading order: [`header`] begins a file, [`area`]s follow it,
//! [`event`] and [`registry`] are the contents of chunks, [`wire`] encodes numbers.
//!
//! This crate has no unsafe code, depends neither on interpreters nor on clocks, and does not trust the contents of a file.
#![forbid(unsafe_code)]

pub mod allocator;
pub mod area;
pub mod calendar;
pub mod damage;
pub mod decode;
pub mod event;
pub mod foreign;
pub mod glob;
pub mod header;
pub mod heap;
pub mod identity;
pub mod labels;
pub mod line_table;
pub mod newer;
mod numbered;
pub mod pack;
mod python_arena;
pub mod read;
pub mod reason;
pub mod redact;
pub mod registry;
pub mod stop_mark;
pub mod wire;

pub use allocator::Allocator;
pub use damage::{Damage, DamageCategory};
pub use decode::{DecodedChunk, JobMark, Node, Op, OpAction, Segment, TimeMark};
pub use event::{Frame, Record, Tables};
pub use foreign::ForeignEvents;
pub use header::{Header, Mode};
pub use identity::{Identity, ProcessSelector};
pub use labels::{LabelSelector, Labels};
pub use pack::Packer;
pub use python_arena::{PYTHON_ARENA_FILE, PYTHON_ARENA_NAME};
pub use read::{
    Capture, ChunkRef, ClockPoint, CodeText, GrowingCapture, JobInfo, Jobs, ModuleMapping,
    ModuleText, OpenError, OpenFailure, Registry, RegistryBuilder, Resident, SymbolText,
    ThreadInfo,
};
pub use registry::{
    Code, Entry, JobBegan, JobEnded, Lost, MemoryPart, ModeChange, Module, Outcome, Symbol,
};
pub use stop_mark::StopMark;
