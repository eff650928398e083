//! The control API: HTTP in the profiled process that starts and stops a recording and serves reports while it runs.
//!
//! The path of a request, file by file: `server` (a listener on its own thread) → [`request`] (parses the bytes) →
//! [`peer`] (the user who sent it) → `handler` → [`routes`] (the table of routes) → [`security`] (access control) →
//! `handler/…` (one file per group of routes) → `program` (this process and its siblings) → `sessions` (captures on
//! disk), `reports`, `downloads`, `render` and `shared_work` (reports, made by another process), [`group`] (the other
//! processes of the program) → `response`. `openapi` describes the table of routes.
//!
//! The API calls a trait, [`Recorder`], and depends neither on the agent nor on the interpreter. This crate has no
//! unsafe code, no panics and no async runtime. A thread that answers requests waits for the interpreter only up to a
//! time limit, and no request can choose a path of the file system.
#![forbid(unsafe_code)]

mod address;
mod archive;
mod calendar;
pub mod client;
pub mod config;
mod downloads;
pub mod group;
mod handler;
mod openapi;
pub mod peer;
mod program;
mod ranges;
pub mod recorder;
mod render;
pub mod reports;
pub mod request;
pub mod response;
pub mod routes;
mod run_files;
pub mod security;
mod server;
mod sessions;
mod shared_work;
pub mod token;
mod wanted;

pub use address::Address;
pub use config::{Config, ReportCommand, ReportOption};
pub use handler::Handler;
pub use recorder::{Options, Recorder};
pub use request::Request;
pub use response::{Body, Response};
pub use server::{Server, is_gone};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The page that lists the routes of an OpenAPI document and lets users try them.
pub const DOCS_PAGE: &str = include_str!("docs.html");

/// Locks `mutex`. A poisoned lock is fine: no holder leaves the protected value half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
