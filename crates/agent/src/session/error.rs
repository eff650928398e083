//! The reasons why a recording cannot start, with their messages.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::cpython::Unsupported;

/// The reasons why the mode of a recording cannot change.
#[derive(Debug)]
pub enum ChangeError {
    NotRecording,
    NoMemory,
    NoNativeStacks,
    NotWritten,
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChangeError::NotRecording => {
                "the mode cannot change: this process is not being recorded; start a recording first"
            }
            ChangeError::NoMemory => {
                "the mode cannot change: the process has reached its memory limit; raise the limit"
            }
            ChangeError::NoNativeStacks => {
                "the mode cannot change: native frames are read on x86-64 only; leave native out"
            }
            ChangeError::NotWritten => "the mode cannot change: the capture cannot be written",
        })
    }
}

#[derive(Debug)]
pub enum StartError {
    AlreadyRunning(PathBuf),
    JobsAreTraced,
    Exists(PathBuf),
    Open(PathBuf, io::Error),
    Write(PathBuf, io::Error),
    Interpreter(Unsupported),
    NoThreadKey,
    NoMemory,
    NoKeeper(io::Error),
    NoAllocator(&'static str),
    NoNativeStacks,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::AlreadyRunning(path) => write!(
                f,
                "this process is being recorded already, into {}; stop that recording first",
                path.display()
            ),
            StartError::JobsAreTraced => f.write_str(
                "the jobs of this process are being traced already; close that JobTracer first",
            ),
            StartError::Exists(path) => write!(
                f,
                "{} exists already; choose another file, or overwrite it with overwrite=True",
                path.display()
            ),
            StartError::Open(path, error) => write!(f, "could not create {}: {error}", path.display()),
            StartError::Write(path, error) => write!(f, "could not write to {}: {error}", path.display()),
            StartError::Interpreter(unsupported) => unsupported.fmt(f),
            StartError::NoThreadKey => f.write_str(
                "could not record: the process has used up its thread-specific keys; start recording earlier",
            ),
            StartError::NoMemory => f.write_str("could not record: the process has reached its memory limit; raise the limit"),
            StartError::NoKeeper(error) => {
                write!(f, "could not record: the writing thread did not start: {error}")
            }
            StartError::NoAllocator(name) => {
                write!(f, "could not record: the C library has no function {name}")
            }
            StartError::NoNativeStacks => f.write_str(
                "could not record native frames: they are read on x86-64 only; record without --native",
            ),
        }
    }
}
