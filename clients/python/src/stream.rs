//! Bytes to a server and back, with the methods of a socket.

use crate::turns::{Taken, Turns};
use crate::values::connect_error;
use keyway_client::{Endpoint, Refusal, Stream as Bytes, Transport};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBlockingIOError, PyOSError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a wait goes on before it is asked whether a signal came.
pub const SLICE: Duration = Duration::from_millis(100);

/// What who uses an inherited connection is told.
pub const INHERITED: &str =
    "the process that this one was forked off has opened the connection: open another here";

/// What is received and kept while something is sent, in bytes: a server whose replies nobody reads
/// beyond that stops reading.
const EARLY_MAX: usize = 16 << 20;

/// Bytes that are received at once while something is sent.
const EARLY_READ_LEN: usize = 64 << 10;

/// Who leaves the stream to a thread that waits for it leaves it for so long.
const GIVES_WAY: Duration = Duration::from_millis(1);

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
    inner: Turns<Inner>,
    timeout: Mutex<Option<Duration>>,
    transport: &'static str,
    refusal: Option<Refusal>,
}

struct Inner {
    bytes: Bytes,
    /// Received while something was sent; what was not taken begins at `taken`.
    early: Vec<u8>,
    taken: usize,
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
        let transport = name(bytes.transport());
        let refusal = bytes.refusal();
        let inner = Turns::new(Inner { bytes, early: Vec::new(), taken: 0 });
        Ok(Stream { inner, timeout: Mutex::new(None), transport, refusal })
    }

    /// What carries the bytes: "shm", "unix" or "tcp".
    #[getter]
    fn transport(&self) -> &'static str {
        self.transport
    }

    /// Why no memory is shared although the URL is one of shm://; None where it is, or was not asked for.
    #[getter]
    fn refusal(&self) -> Option<String> {
        self.refusal.map(|why| why.to_string())
    }

    /// Bounds how long each of the methods waits for the server: None for ever, 0 not at all.
    fn settimeout(&self, timeout: Option<f64>) -> PyResult<()> {
        *self.timeout() = seconds(timeout)?;
        Ok(())
    }

    fn gettimeout(&self) -> Option<f64> {
        self.timeout().map(|timeout| timeout.as_secs_f64())
    }

    /// Sends all of some bytes. What comes while the server does not take them is kept for who
    /// receives, so that neither side waits for the other.
    fn sendall(&self, py: Python<'_>, data: PyBuffer<u8>) -> PyResult<()> {
        let data = data.to_vec(py)?;
        let mut sent = match data.is_empty() {
            true => 0,
            false => self.slices(py, |inner| inner.send_at_once(&data))?,
        };
        while sent < data.len() {
            sent += self.slices(py, |inner| inner.send(&data[sent..]))?;
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
        let received = self.receive(py, &mut into)?;
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
        let received = self.receive(py, &mut into)?;
        room.set_item(
            PySlice::new(py, 0, received as isize, 1),
            PyBytes::new(py, &into[..received]),
        )?;
        Ok(received)
    }

    /// Says that nothing more will be sent.
    #[pyo3(signature = (_how = 1))]
    fn shutdown(&self, py: Python<'_>, _how: i32) -> PyResult<()> {
        self.slices(py, |inner| inner.bytes.finish())
    }

    /// Ends the connection, whatever another thread does with it. Twice is no error.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }
}

impl Stream {
    /// Never held for longer than it takes to look.
    fn timeout(&self) -> MutexGuard<'_, Option<Duration>> {
        self.timeout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, py: Python<'_>, into: &mut [u8]) -> PyResult<usize> {
        // Room for nothing: nothing to wait for.
        if into.is_empty() {
            return Ok(0);
        }
        self.slices(py, |inner| inner.receive(into))
    }

    /// Does what may take its time, within the timeout and without the interpreter's lock, in
    /// slices between which signals are asked for.
    fn slices<T: Send>(
        &self,
        py: Python<'_>,
        mut does: impl FnMut(&mut Inner) -> io::Result<T> + Send,
    ) -> PyResult<T> {
        let (start, timeout) = (Instant::now(), *self.timeout());
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            let slice = left.map_or(SLICE, |left| left.min(SLICE));
            match py.detach(|| self.slice(slice, &mut does)) {
                Ok(outcome) => return Ok(outcome),
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                Err(error) => return Err(os_error(&error)),
            }
            py.check_signals()?;
            match timeout {
                Some(Duration::ZERO) => {
                    let what = "nothing can be done without waiting";
                    return Err(PyBlockingIOError::new_err((EAGAIN, what)));
                }
                Some(timeout) if start.elapsed() >= timeout => {
                    return Err(PyTimeoutError::new_err("timed out"));
                }
                _ => {}
            }
        }
    }

    fn slice<T>(
        &self,
        slice: Duration,
        does: &mut impl FnMut(&mut Inner) -> io::Result<T>,
    ) -> io::Result<T> {
        let outcome = match self.inner.take(slice) {
            Taken::Turn(mut inner) => {
                inner.bytes.set_timeout(Some(slice));
                does(&mut inner)
            }
            Taken::Busy => return Err(ErrorKind::TimedOut.into()),
            Taken::Closed => return Err(io::Error::other("the stream is closed")),
            Taken::Inherited => return Err(io::Error::other(INHERITED)),
        };
        if outcome.is_err() && self.inner.is_wanted() {
            std::thread::sleep(GIVES_WAY);
        }
        outcome
    }
}

impl Inner {
    /// Sends what can be sent without waiting, which may be nothing.
    fn send_at_once(&mut self, out: &[u8]) -> io::Result<usize> {
        self.bytes.set_timeout(Some(Duration::ZERO));
        match self.bytes.write(out) {
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(0),
            other => other,
        }
    }

    /// Sends some, or receives some that is kept.
    fn send(&mut self, out: &[u8]) -> io::Result<usize> {
        self.early.drain(..self.taken);
        self.taken = 0;
        let len = self.early.len();
        if len >= EARLY_MAX {
            return self.bytes.write(out);
        }
        self.early.resize(len + EARLY_READ_LEN, 0);
        let done = self.bytes.exchange(out, &mut self.early[len..]);
        self.early.truncate(len + done.as_ref().map_or(0, |&(_, received)| received));
        match done? {
            (0, 0) => Err(ErrorKind::BrokenPipe.into()),
            (sent, _) => Ok(sent),
        }
    }

    /// Receives what was kept first.
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let early = &self.early[self.taken..];
        if early.is_empty() {
            return self.bytes.read(into);
        }
        let len = early.len().min(into.len());
        into[..len].copy_from_slice(&early[..len]);
        self.taken += len;
        if self.taken == self.early.len() {
            self.early = Vec::new();
            self.taken = 0;
        }
        Ok(len)
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
