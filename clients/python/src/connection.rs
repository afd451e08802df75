//! Commands and replies.

use crate::stream::{INHERITED, SLICE, name, seconds};
use crate::turns::{Taken, Turn, Turns};
use crate::values::{ReplyError, argument, error, value};
use keyway_client::{Connection as Inner, Error, Options, Refusal, Value};
use pyo3::exceptions::{PyConnectionError, PyTimeoutError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// A connection to a server, at shm:///path, unix:///path or tcp://host:port. Threads that share
/// one take turns.
#[pyclass(module = "keyway", frozen)]
pub struct Connection {
    inner: Turns<Inner>,
    transport: &'static str,
    refusal: Option<Refusal>,
    timeout: Option<Duration>,
}

#[pymethods]
impl Connection {
    #[new]
    #[pyo3(signature = (url, *, timeout = Some(60.0), connect_timeout = Some(5.0), username = None, password = None, database = 0))]
    fn new(
        py: Python<'_>,
        url: &str,
        timeout: Option<f64>,
        connect_timeout: Option<f64>,
        username: Option<String>,
        password: Option<String>,
        database: u32,
    ) -> PyResult<Connection> {
        let timeout = seconds(timeout)?;
        let bare =
            Options { connect_timeout: seconds(connect_timeout)?, timeout, ..Options::default() };
        let options = Options { username, password, database, ..Options::default() };
        let first = options.first_commands().map_err(error)?;
        let inner = py.detach(|| Inner::open_with(url, &bare)).map_err(error)?;
        let transport = name(inner.stream().transport());
        let refusal = inner.stream().refusal();
        let connection = Connection { inner: Turns::new(inner), transport, refusal, timeout };
        for command in &first {
            raised(py, connection.reply(py, command)?)?;
        }
        Ok(connection)
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

    /// Sends a command and returns its reply; an error is raised.
    #[pyo3(signature = (*arguments))]
    fn command<'py>(&self, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let py = arguments.py();
        raised(py, self.reply(py, &words(arguments.as_any())?)?)
    }

    /// Sends many commands at once and returns their replies in order. Errors of single commands
    /// are in the list, as ReplyError.
    fn pipeline<'py>(&self, commands: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = commands.py();
        let commands: Vec<Vec<Vec<u8>>> =
            commands.try_iter()?.map(|command| words(&command?)).collect::<PyResult<_>>()?;
        if commands.iter().any(Vec::is_empty) {
            return Err(ReplyError::new_err("a command has at least a name"));
        }
        let mut turn = self.turn(py)?;
        let appended = py.detach(|| commands.iter().try_for_each(|command| turn.append(command)));
        appended.map_err(error)?;
        let mut replies = Vec::new();
        let replies = self.all_or_closed(py, &mut turn, move |inner| {
            while replies.len() < commands.len() {
                match inner.ready_reply()? {
                    Some(reply) => replies.push(reply),
                    None => return Ok(None),
                }
            }
            Ok(Some(std::mem::take(&mut replies)))
        })?;
        drop(turn);
        let values: Vec<_> =
            replies.into_iter().map(|reply| value(py, reply)).collect::<PyResult<_>>()?;
        PyList::new(py, values)
    }

    /// Sends a command without waiting for a reply, such as SUBSCRIBE, whose replies are read with
    /// receive().
    #[pyo3(signature = (*arguments))]
    fn send(&self, arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
        let words = words(arguments.as_any())?;
        let py = arguments.py();
        let mut turn = self.turn(py)?;
        turn.append(&words).map_err(error)?;
        self.all_or_closed(py, &mut turn, |inner| Ok(inner.is_flushed()?.then_some(())))
    }

    /// Waits for the next reply or message, for `within` seconds where that is said: TimeoutError then
    /// leaves the connection as it is. So does a signal's handler that raises.
    #[pyo3(signature = (within = None))]
    fn receive<'py>(&self, py: Python<'py>, within: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let until = seconds(within)?.map(|within| Instant::now().checked_add(within));
        let mut turn = self.turn(py)?;
        let came = match until.flatten() {
            None => self.all(py, &mut turn, next)?,
            Some(until) => self.before(py, &mut turn, until)?,
        };
        drop(turn);
        raised(py, came)
    }

    /// Ends the connection, whatever another thread does with it. Twice is no error.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}

impl Connection {
    /// Waits for the connection. A signal's handler that raises ends that.
    fn turn(&self, py: Python<'_>) -> PyResult<Turn<'_, Inner>> {
        loop {
            match py.detach(|| self.inner.take(SLICE)) {
                Taken::Turn(turn) => return Ok(turn),
                Taken::Busy => py.check_signals()?,
                Taken::Closed => return Err(closed()),
                Taken::Inherited => return Err(PyConnectionError::new_err(INHERITED)),
            }
        }
    }

    /// Sends a command and waits for its reply, which may be an error.
    fn reply<A: AsRef<[u8]>>(&self, py: Python<'_>, command: &[A]) -> PyResult<Value> {
        let mut turn = self.turn(py)?;
        turn.append(command).map_err(error)?;
        self.all_or_closed(py, &mut turn, Inner::ready_reply)
    }

    /// What comes next before `until`, whatever the timeout is.
    fn before(
        &self,
        py: Python<'_>,
        turn: &mut Turn<'_, Inner>,
        until: Instant,
    ) -> PyResult<Value> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let came = py.detach(|| match next(turn)? {
                None => turn.receive_within(left.min(SLICE)),
                some => Ok(some),
            });
            match came {
                Ok(Some(value)) => return Ok(value),
                Ok(None) if left.is_zero() => {
                    return Err(PyTimeoutError::new_err("nothing has come in time"));
                }
                Ok(None) => py.check_signals()?,
                Err(why) => {
                    self.close(py);
                    return Err(error(why));
                }
            }
            if self.inner.is_closed() {
                return Err(closed());
            }
        }
    }

    /// As [`Connection::all`]; a wait that was ended before leaves replies that would be taken for
    /// others', and so ends the connection.
    fn all_or_closed<T: Send>(
        &self,
        py: Python<'_>,
        turn: &mut Turn<'_, Inner>,
        ready: impl FnMut(&mut Inner) -> Result<Option<T>, Error> + Send,
    ) -> PyResult<T> {
        self.all(py, turn, ready).inspect_err(|_| self.close(py))
    }

    /// Sends and receives until `ready`, in slices between which signals are asked for; the server
    /// may do nothing for the timeout and no longer.
    fn all<T: Send>(
        &self,
        py: Python<'_>,
        turn: &mut Turn<'_, Inner>,
        mut ready: impl FnMut(&mut Inner) -> Result<Option<T>, Error> + Send,
    ) -> PyResult<T> {
        // None before the first wait.
        let mut done = None;
        loop {
            let slice = py.detach(|| slice(turn, &mut ready, &mut done, self.timeout));
            match slice {
                Ok(Some(outcome)) => return Ok(outcome),
                Ok(None) => py.check_signals()?,
                Err(why) => {
                    self.close(py);
                    return Err(error(why));
                }
            }
            if self.inner.is_closed() {
                return Err(closed());
            }
        }
    }
}

/// One slice of a wait; `None` when there is more to wait. When the server last did something is in
/// `done`.
fn slice<T>(
    inner: &mut Inner,
    ready: &mut impl FnMut(&mut Inner) -> Result<Option<T>, Error>,
    done: &mut Option<Instant>,
    timeout: Option<Duration>,
) -> Result<Option<T>, Error> {
    let start = Instant::now();
    let mut now = start;
    loop {
        if let Some(outcome) = ready(inner)? {
            return Ok(Some(outcome));
        }
        let waited = now.duration_since(*done.get_or_insert(now));
        let left = timeout.map_or(SLICE, |timeout| timeout.saturating_sub(waited));
        let in_slice = SLICE.saturating_sub(now - start);
        if in_slice.is_zero() {
            return Ok(None);
        }
        let is_moved = inner.advance(left.min(in_slice))?;
        now = Instant::now();
        match is_moved {
            true => *done = Some(now),
            false if left.is_zero() => return Err(Error::Lost(ErrorKind::TimedOut.into())),
            false => {}
        }
    }
}

/// A message that came between replies, or what is there next.
fn next(inner: &mut Inner) -> Result<Option<Value>, Error> {
    match inner.take_push() {
        None => inner.ready(),
        push => Ok(push),
    }
}

fn closed() -> PyErr {
    PyConnectionError::new_err("the connection is closed")
}

/// A reply; an error is raised.
fn raised(py: Python<'_>, reply: Value) -> PyResult<Bound<'_, PyAny>> {
    match reply {
        Value::Error(text) => Err(ReplyError::new_err(String::from_utf8_lossy(&text).into_owned())),
        reply => value(py, reply),
    }
}

/// The arguments of a command.
fn words(command: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<u8>>> {
    // Both would be taken for as many arguments as they have characters.
    if command.is_instance_of::<PyString>() || command.is_instance_of::<PyBytes>() {
        let what = format!(
            "a command is a list of arguments, not {}: [\"GET\", \"k\"]",
            command.get_type().name()?
        );
        return Err(PyTypeError::new_err(what));
    }
    command.try_iter()?.map(|word| argument(&word?)).collect()
}
