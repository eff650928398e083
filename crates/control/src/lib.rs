//! HTTP in the running process: switch the recording on and off, and look at it, while the job goes on.
//!
//! The path of a request, file by file: [`server`] (a listener on a thread of its own) → [`request`] (bytes become a
//! request) → [`security`] (may it?) → [`handler`] (which route, and what it does) → [`sessions`] (captures on disk),
//! [`render`] (reports, made by another process), [`group`] (the other workers of the same job) → [`response`].
//! [`routes`] declares every route once; [`openapi`] describes them from that list.
//!
//! What is steered is a trait, [`Steering`]: nothing here knows the agent or the interpreter. Absent here, on purpose:
//! unsafe code, panics, an async runtime, waiting for the interpreter on a thread that answers other requests, and any
//! path of the file system that a request could choose.
#![forbid(unsafe_code)]

pub mod address;
pub mod archive;
pub mod calendar;
pub mod client;
pub mod config;
pub mod group;
pub mod handler;
pub mod json;
pub mod openapi;
mod patience;
pub mod ranges;
pub mod render;
pub mod reports;
pub mod request;
pub mod response;
pub mod routes;
pub mod security;
pub mod server;
pub mod sessions;
pub mod steering;
pub mod switch;

pub use address::Address;
pub use config::{Config, ReportCommand, ReportOption};
pub use handler::Handler;
pub use request::Request;
pub use response::{Body, Response};
pub use server::Server;
pub use steering::{Options, Steering};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. Nothing here leaves what a lock protects half done, so a holder that panicked changes nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
