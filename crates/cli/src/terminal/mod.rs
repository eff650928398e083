//! Full-screen terminal views: `heaptide tree` and `heaptide live`.
//!
//! In reading order: [`screen`] takes over the terminal and restores it; `paint` has colours and common lines; `input`
//! is the search line. `tree_state` and `tree_view` show the call tree, `live_state` and `live_view` the live heap. The
//! states do not depend on a terminal; the views only draw them.

mod curve;
mod input;
mod live_state;
mod live_view;
mod paint;
pub(crate) mod screen;
mod tree_state;
mod tree_view;

pub(crate) use live_view::{Companion, show as show_live};
pub(crate) use paint::Paint;
pub(crate) use screen::{Exit, is_possible, is_possible_with_tty};
pub(crate) use tree_view::show as show_tree;
