//! The rules for every file that Heaptide creates or trusts: who can read it, when it appears, which links it follows.
//!
//! - [`NewFile`]: creates a file with mode 0600, without following links, except to a device or a pipe. The file
//!   appears under its name once its content is complete, unless it can only be written in place, such as a pipe.
//! - [`scratch_file`], [`temporary_path`]: a temporary file that has no name, or one that nobody can guess.
//! - [`private_folder`], [`trusted_folder`], [`check_folder`]: folders for Heaptide's own files, which other users must not
//!   be able to change.
//! - [`OwnFolder`]: reads files of this user in a folder of this user, and nothing that another user planted there.
//!
//! This crate knows no format. It runs in the profiled program and in the command, so it never panics.
#![forbid(unsafe_code)]

mod folders;
mod new_file;
mod own_files;

pub use folders::{check_folder, private_folder, trusted_folder};
pub use new_file::{Existing, NewFile, scratch_file, temporary_path};
pub use own_files::{OwnFolder, open_own};

/// The mode of every new file: only the user can read and write it.
const PRIVATE: rustix::fs::Mode = rustix::fs::Mode::RUSR.union(rustix::fs::Mode::WUSR);

/// Returns the effective user ID of this process.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}
