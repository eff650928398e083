//! Renders the models of `analysis`. This crate chooses rounding, units and colours; it computes no numbers.
//!
//! In reading order: [`units`] formats sizes and times. [`text`] writes for terminals, [`json`] for programs, [`html`]
//! pages; [`transform`] exports recordings and [`heap_export`] heap snapshots to the formats of other tools.
//! [`object_graph`] draws a few objects; it and [`timeline`] write SVG through [`markup`] and PNG
//! through [`raster`].
#![forbid(unsafe_code)]

pub mod heap_export;
pub mod html;
pub mod json;
mod markup;
pub mod object_graph;
mod raster;
pub mod shell;
pub mod text;
pub mod timeline;
pub mod transform;
pub mod units;
