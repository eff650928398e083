//! Charts of memory over time: on the terminal, as SVG, as PNG, and as a page.
//!
//! `axis` finds round numbers and `words` what stands beside the curves, for all of them; [`terminal`] draws in letters;
//! the others render one and the same `scene`.

mod axis;
mod page;
mod png;
mod scene;
mod svg;
pub mod terminal;
mod words;

pub use page::page;
pub use png::png;
pub use svg::svg;
