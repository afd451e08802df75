//! Bytes to a server and back, with the methods of a socket.

use crate::values::connect_error;
use keyway_client::{Endpoint, Stream as Bytes, Transport};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBlockingIOError, PyOSError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};
use std::io::{self, ErrorKind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a wait goes on before it is asked whether a signal came.
const SLICE: Duration = Duration::from_millis(100);

/// Linux's numbers, by which Python's libraries know an error.
const EAGAIN: i32 = 11;
const EPIPE: i32 = 32;

/// What carries the bytes, by name.
pub fn name(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "tcp",
        Transport::Unix => "unix",
        Transport::Shared => "shm",
    }
}

/// A time as Python's libraries give them: seconds, or None for no bound.
pub fn seconds(time: Option<f64>) -> PyResult<Option<Duration>> {
    let wrong = |_| PyValueError::new_err("a timeout is None, or seconds from 0 on");
    time.map(Duration::try_from_secs_f64).transpose().map_err(wrong)
}

/// A connection to shm:///path, unix:///path or tcp://host:port, as bytes. Its methods are those
/// of a socket that redis-py and others need.
#[pyclass(module = "keyway", frozen)]
pub struct Stream {
    inner: Mutex<Inner>,
}

struct Inner {
    bytes: Option<Bytes>,
    timeout: Option<Duration>,
}

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (url, connect_timeout = Some(5.0)))]
    fn new(py: Python<'_>, url: &str, connect_timeout: Option<f64>) -> PyResult<Stream> {
        let wrong = |error: keyway_client::EndpointError| PyValueError::new_err(error.to_string());
        let endpoint: Endpoint = url.parse().map_err(wrong)?;
        let timeout = seconds(connect_timeout)?;
        let bytes = py.detach(|| Bytes::connect(&endpoint, timeout));
        let bytes = bytes.map_err(|error| connect_error(&endpoint.to_string(), &error))?;
        Ok(Stream { inner: Mutex::new(Inner { bytes: Some(bytes), timeout: None }) })
    }

    /// What carries the bytes: "shm", "unix" or "tcp".
    #[getter]
    fn transport(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.with(py, |inner| inner.open().map(|bytes| name(bytes.transport())))?
    }

    /// Bounds how long each of the methods waits: None for ever, 0 not at all.
    fn settimeout(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = seconds(timeout)?;
        self.with(py, |inner| inner.timeout = timeout)
    }

    fn gettimeout(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.with(py, |inner| inner.timeout.map(|timeout| timeout.as_secs_f64()))
    }

    /// Sends all of some bytes.
    fn sendall(&self, py: Python<'_>, data: PyBuffer<u8>) -> PyResult<()> {
        let data = data.to_vec(py)?;
        let mut sent = 0;
        while sent < data.len() {
            sent += self.exchange(py, &data[sent..], &mut [])?.0;
        }
        Ok(())
    }

    /// Receives up to so many bytes; none at all when the server has ended.
    #[pyo3(signature = (size, _flags = 0))]
    fn recv<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        _flags: i32,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut into = vec![0; size.min(1 << 20)];
        let (_, received) = self.exchange(py, &[], &mut into)?;
        Ok(PyBytes::new(py, &into[..received]))
    }

    /// Receives into a buffer; how many bytes.
    #[pyo3(signature = (buffer, nbytes = 0, _flags = 0))]
    fn recv_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        nbytes: usize,
        _flags: i32,
    ) -> PyResult<usize> {
        let room = PyMemoryView::from(buffer)?.call_method1("cast", ("B",))?;
        let len = match nbytes {
            0 => room.len()?,
            some => some.min(room.len()?),
        };
        let mut into = vec![0; len.min(1 << 20)];
        let (_, received) = self.exchange(py, &[], &mut into)?;
        room.set_item(
            PySlice::new(py, 0, received as isize, 1),
            PyBytes::new(py, &into[..received]),
        )?;
        Ok(received)
    }

    /// Says that nothing more will be sent.
    #[pyo3(signature = (_how = 1))]
    fn shutdown(&self, py: Python<'_>, _how: i32) -> PyResult<()> {
        self.with(py, |inner| inner.open()?.finish().map_err(|error| os_error(&error)))?
    }

    /// Ends the connection. Twice is no error.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |inner| drop(inner.bytes.take()))
    }
}

impl Stream {
    /// Does something with what is inside, without the interpreter's lock while another thread
    /// has it.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        does: impl FnOnce(&mut Inner) -> T + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let mut inner =
                self.inner.lock().map_err(|_| PyOSError::new_err("a thread failed in here"))?;
            Ok(does(&mut inner))
        })
    }

    /// Writes and reads what can be, within the timeout.
    fn exchange(&self, py: Python<'_>, out: &[u8], into: &mut [u8]) -> PyResult<(usize, usize)> {
        let start = Instant::now();
        loop {
            let done = self.with(py, |inner| inner.exchange(out, into, start))??;
            match done {
                Some(both) => return Ok(both),
                None => py.check_signals()?,
            }
        }
    }
}

impl Inner {
    fn open(&mut self) -> PyResult<&mut Bytes> {
        self.bytes.as_mut().ok_or_else(|| PyOSError::new_err("the stream is closed"))
    }

    /// One slice of a wait; `None` when there is more to wait.
    fn exchange(
        &mut self,
        out: &[u8],
        into: &mut [u8],
        start: Instant,
    ) -> PyResult<Option<(usize, usize)>> {
        let timeout = self.timeout;
        let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        let bytes = self.open()?;
        bytes.set_timeout(Some(left.map_or(SLICE, |left| left.min(SLICE))));
        // Nothing to send, and room for nothing: nothing to wait for.
        if out.is_empty() && into.is_empty() {
            return Ok(Some((0, 0)));
        }
        let done = match into.is_empty() {
            true => io::Write::write(bytes, out).map(|written| (written, 0)),
            false => bytes.exchange(out, into),
        };
        match done {
            Ok((0, 0)) if !out.is_empty() => Err(os_error(&ErrorKind::BrokenPipe.into())),
            Ok(both) => Ok(Some(both)),
            Err(error) if error.kind() == ErrorKind::TimedOut => match left {
                Some(left) if left <= SLICE && timeout == Some(Duration::ZERO) => {
                    Err(PyBlockingIOError::new_err((EAGAIN, "nothing can be done without waiting")))
                }
                Some(left) if left <= SLICE => Err(PyTimeoutError::new_err("timed out")),
                _ => Ok(None),
            },
            Err(error) => Err(os_error(&error)),
        }
    }
}

/// With its number, where it is the system's: Python makes the fitting kind of it.
fn os_error(error: &io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, error.to_string())),
        None if error.kind() == ErrorKind::BrokenPipe => {
            PyOSError::new_err((EPIPE, "the server has ended the connection"))
        }
        None => PyOSError::new_err(error.to_string()),
    }
}
