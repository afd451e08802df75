//! Commands and replies.

use crate::stream::{name, seconds};
use crate::values::{ReplyError, argument, error, value};
use keyway_client::{Connection as Inner, Options, Value};
use pyo3::exceptions::{PyConnectionError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::sync::Mutex;

/// A connection to a server, at shm:///path, unix:///path or tcp://host:port. Threads that share
/// one take turns.
#[pyclass(module = "keyway", frozen)]
pub struct Connection {
    inner: Mutex<Option<Inner>>,
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
        let options = Options {
            connect_timeout: seconds(connect_timeout)?,
            timeout: seconds(timeout)?,
            username,
            password,
            database,
            ..Options::default()
        };
        let inner = py.detach(|| Inner::open_with(url, &options)).map_err(error)?;
        Ok(Connection { inner: Mutex::new(Some(inner)) })
    }

    /// What carries the bytes: "shm", "unix" or "tcp".
    #[getter]
    fn transport(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.with(py, |inner| Ok(name(inner.stream().transport())))
    }

    /// Sends a command and returns its reply; an error is raised.
    #[pyo3(signature = (*arguments))]
    fn command<'py>(&self, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let py = arguments.py();
        let words = words(arguments.as_any())?;
        let reply = self.with(py, |inner| inner.command(&words).map_err(error))?;
        value(py, reply)
    }

    /// Sends many commands at once and returns their replies in order. Errors of single commands
    /// are in the list, as ReplyError.
    fn pipeline<'py>(&self, commands: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = commands.py();
        let commands: Vec<Vec<Vec<u8>>> =
            commands.try_iter()?.map(|command| words(&command?)).collect::<PyResult<_>>()?;
        let replies = self.with(py, |inner| {
            let mut pipeline = inner.pipeline();
            commands.iter().for_each(|command| {
                pipeline.add(command);
            });
            pipeline.run().map_err(error)
        })?;
        let values: Vec<_> =
            replies.into_iter().map(|reply| value(py, reply)).collect::<PyResult<_>>()?;
        PyList::new(py, values)
    }

    /// Sends a command without waiting for a reply, such as SUBSCRIBE, whose replies are read with
    /// receive().
    #[pyo3(signature = (*arguments))]
    fn send(&self, arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
        let words = words(arguments.as_any())?;
        self.with(arguments.py(), |inner| inner.append(&words).map_err(error))
    }

    /// Waits for the next reply or message.
    fn receive<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.with(py, |inner| inner.receive().map_err(error))? {
            Value::Error(text) => {
                Err(ReplyError::new_err(String::from_utf8_lossy(&text).into_owned()))
            }
            reply => value(py, reply),
        }
    }

    /// Ends the connection. Twice is no error.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.lock().map(|mut inner| drop(inner.take())).map_err(|_| failed()))
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}

impl Connection {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        does: impl FnOnce(&mut Inner) -> PyResult<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let mut inner = self.inner.lock().map_err(|_| failed())?;
            let closed = || PyConnectionError::new_err("the connection is closed");
            does(inner.as_mut().ok_or_else(closed)?)
        })
    }
}

fn failed() -> PyErr {
    PyRuntimeError::new_err("a thread failed within the connection")
}

fn words(command: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<u8>>> {
    command.try_iter()?.map(|word| argument(&word?)).collect()
}
