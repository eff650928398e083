//! The rows of `heaptide summary`: functions with the bytes that they and their callees hold.

use std::rc::Rc;

use super::Measure;
use super::quality::Quality;

#[derive(Clone, Debug)]
pub struct Summary {
    /// In no particular order.
    pub functions: Vec<FunctionSum>,
    /// The total that percentages refer to.
    pub total_bytes: u64,
    pub measure: Measure,
    pub quality: Quality,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSum {
    pub function: Rc<str>,
    pub file: Rc<str>,
    /// Allocated by the function and its callees.
    pub total_bytes: u64,
    /// Allocated by the function itself.
    pub own_bytes: u64,
    /// The number of blocks in `total_bytes`.
    pub n_allocations: u64,
}
