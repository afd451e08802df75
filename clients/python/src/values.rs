//! Python's values from replies, arguments from Python's values, and errors.

use keyway_client::{Error, Value};
use pyo3::create_exception;
use pyo3::exceptions::{PyConnectionError, PyException, PyTimeoutError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};
use std::io;

create_exception!(keyway, ReplyError, PyException, "The server has answered with an error.");
create_exception!(keyway, ProtocolError, PyException, "The server has sent what is no reply.");

/// A connection that there is not.
pub fn connect_error(place: &str, error: &io::Error) -> PyErr {
    let text = format!("cannot connect to {place}: {error}");
    match error.kind() {
        io::ErrorKind::TimedOut => PyTimeoutError::new_err(text),
        _ => PyConnectionError::new_err(text),
    }
}

/// Of a connection.
pub fn error(error: Error) -> PyErr {
    match &error {
        Error::Endpoint(_) => PyValueError::new_err(error.to_string()),
        Error::Connect(place, why) => connect_error(place, why),
        Error::Lost(why) if why.kind() == io::ErrorKind::TimedOut => {
            PyTimeoutError::new_err("no reply in time; the connection is closed")
        }
        Error::Lost(_) | Error::Closed => PyConnectionError::new_err(error.to_string()),
        Error::Protocol(_) => ProtocolError::new_err(error.to_string()),
        Error::Refused(text) => ReplyError::new_err(text.clone()),
    }
}

/// The bytes of an argument: of bytes, a string (UTF-8), an integer or a float.
pub fn argument(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.extract::<String>()?.into_bytes());
    }
    if let Ok(bytes) = value.cast::<PyByteArray>() {
        return Ok(bytes.to_vec());
    }
    // A truth is an integer to Python, and to a server it is none.
    if !value.is_instance_of::<PyBool>() {
        // Kinds of numbers, as those of an enumeration, may show as something else.
        let py = value.py();
        for number in [py.get_type::<PyInt>(), py.get_type::<PyFloat>()] {
            if value.is_instance(&number)? {
                let digits = number.call_method1("__repr__", (value,))?;
                return Ok(digits.extract::<String>()?.into_bytes());
            }
        }
    }
    let kind = value.get_type().name()?;
    Err(PyTypeError::new_err(format!("an argument is bytes, str, int or float, not {kind}")))
}

/// A reply: None, bytes, int, bool, float, a list, a dict; a status is a str, and an error a
/// [`ReplyError`], which is not raised.
pub fn value<'py>(py: Python<'py>, reply: Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match reply {
        Value::Nil => py.None().into_bound(py),
        Value::Status(text) => PyString::new(py, &String::from_utf8_lossy(&text)).into_any(),
        Value::Error(text) => {
            let text = String::from_utf8_lossy(&text).into_owned();
            ReplyError::new_err(text).into_value(py).into_bound(py).into_any()
        }
        Value::Integer(number) => number.into_pyobject(py)?.into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, &bytes).into_any(),
        Value::Boolean(truth) => truth.into_pyobject(py)?.to_owned().into_any(),
        Value::Double(number) => number.into_pyobject(py)?.into_any(),
        Value::BigNumber(digits) => {
            let digits = String::from_utf8_lossy(&digits).into_owned();
            py.get_type::<PyInt>().call1((digits,))?
        }
        Value::Array(values) | Value::Set(values) | Value::Push(values) => list(py, values)?,
        Value::Map(pairs) => dict(py, pairs)?,
    })
}

fn list(py: Python<'_>, values: Vec<Value>) -> PyResult<Bound<'_, PyAny>> {
    let values: Vec<_> = values.into_iter().map(|one| value(py, one)).collect::<PyResult<_>>()?;
    Ok(PyList::new(py, values)?.into_any())
}

/// A dict, or a list of pairs where a key is none for a dict.
fn dict(py: Python<'_>, pairs: Vec<(Value, Value)>) -> PyResult<Bound<'_, PyAny>> {
    let is_key = |key: &Value| key.elements().is_none() && !matches!(key, Value::Map(_));
    if pairs.iter().all(|(key, _)| is_key(key)) {
        let dict = PyDict::new(py);
        for (key, one) in pairs {
            dict.set_item(value(py, key)?, value(py, one)?)?;
        }
        return Ok(dict.into_any());
    }
    let pairs: Vec<_> = pairs
        .into_iter()
        .map(|(key, one)| Ok((value(py, key)?, value(py, one)?)))
        .collect::<PyResult<_>>()?;
    Ok(PyList::new(py, pairs)?.into_any())
}
