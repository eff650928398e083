//! What fills the whole terminal: `heaptide tree` and `heaptide live` for people who sit in front of one.
//!
//! In reading order: [`screen`] takes the terminal and gives it back however we leave; `paint` is
//! how things look and `input` the line in which one types what to search for; `tree_state` and `tree_view` are the call tree, `live_state` and `live_view` the running
//! program. The states know nothing of terminals; the views draw a state and decide nothing.

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
pub(crate) use screen::{Left, is_possible, is_possible_with_tty};
pub(crate) use tree_view::show as show_tree;
