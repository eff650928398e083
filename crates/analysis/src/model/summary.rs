//! The rows of `heaptide summary`: functions, with what they and those they called hold.

use std::rc::Rc;

use super::Measure;
use super::quality::Quality;

#[derive(Clone, Debug)]
pub struct Summary {
    /// In no particular order.
    pub functions: Vec<FunctionSum>,
    /// What 100 % is.
    pub total_bytes: u64,
    pub measure: Measure,
    pub quality: Quality,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSum {
    pub function: Rc<str>,
    pub file: Rc<str>,
    /// Allocated by the function or by what it called.
    pub total_bytes: u64,
    /// Allocated by the function itself.
    pub own_bytes: u64,
    /// Blocks behind `total_bytes`.
    pub n_allocations: u64,
}
