//! The client of a request that the program's own web server received.
//!
//! A report is cancelled once all clients that wait for it have left. An ASGI server reports that a client has left. With a
//! WSGI server, Heaptide watches the socket, if the server provides it.

use std::ffi::c_int;
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The client of one request: it has left once `leave` was called or the watched `connection` is closed.
#[pyclass(module = "heaptide._native", frozen)]
pub struct Client {
    has_left: AtomicBool,
    connection: Option<TcpStream>,
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (connection=None))]
    fn new(connection: Option<c_int>) -> PyResult<Client> {
        Ok(Client {
            has_left: AtomicBool::new(false),
            connection: connection.map(duplicate).transpose()?,
        })
    }

    /// Notes that the client has closed its connection.
    fn leave(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }

    pub fn is_gone(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
            || self
                .connection
                .as_ref()
                .is_some_and(heaptide_control::is_gone)
    }
}

/// Duplicates the descriptor of a connection that the caller keeps open.
pub fn duplicate(fd: c_int) -> PyResult<TcpStream> {
    if fd < 0 {
        return Err(PyValueError::new_err(format!("{fd} is not a connection")));
    }
    // SAFETY: the number is not -1, and `BorrowedFd` only passes it to the system call that duplicates it, which refuses a
    // number that is not open. The Python caller keeps its socket open during the call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(borrowed.try_clone_to_owned()?.into())
}
