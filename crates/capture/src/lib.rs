//! What a capture *is*: bytes ⇄ records.
//!
//! The one thing that the profiled program (`agent`) and everything that runs afterwards (`analysis`) agree on.
//! `docs/reference/capture-format.md` draws the file. In reading order: [`header`] is the beginning of a file, [`area`] what follows it,
//! [`event`] and [`registry`] what stands in the two kinds of chunks, [`wire`] how numbers become bytes.
//!
//! Absent here, on purpose: unsafe code, interpreters, clocks, and trust in what a file says.
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
pub mod line_table;
pub mod pack;
pub mod read;
pub mod registry;
pub mod wire;

pub use allocator::Allocator;
pub use damage::{Damage, DamageCategory};
pub use decode::{DecodedChunk, Node, Op, OpAction, Segment, TimeMark};
pub use event::{Frame, Record, Tables};
pub use foreign::ForeignEvents;
pub use header::{Header, Mode};
pub use pack::Packer;
pub use read::{
    Capture, ChunkRef, ClockPoint, CodeText, GrowingCapture, ModuleMapping, ModuleText, OpenError,
    OpenFailure, Registry, RegistryBuilder, Resident, SymbolText, ThreadInfo,
};
pub use registry::{Code, Entry, Lost, MemoryPart, Module, Symbol};
