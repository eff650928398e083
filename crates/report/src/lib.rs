//! Renders answers: for people as text, for other tools as JSON. Rounding, units and colours live here; numbers do not.
//!
//! In reading order: [`units`] writes sizes and times, [`text`] what a terminal shows, [`json`] what programs read, [`heap_export`] object heaps in other tools' forms,
//! [`object_graph`] pictures of a few objects, of [`markup`] as those of a [`timeline`].
#![forbid(unsafe_code)]

pub mod heap_export;
pub mod html;
pub mod json;
mod markup;
pub mod object_graph;
pub mod shell;
pub mod text;
pub mod timeline;
pub mod transform;
pub mod units;
