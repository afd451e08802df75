//! The client library for Python: the module `keyway._keyway`, which the package `keyway` makes
//! presentable. Waits give the interpreter's lock back, and end when a signal's handler raises.
#![forbid(unsafe_code)]

mod connection;
mod stream;
mod turns;
mod values;

use keyway_client::Refusal;
use pyo3::prelude::*;
use std::path::Path;

#[pymodule]
fn _keyway(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    keyway_client::on_fallback(|path, why| Python::attach(|py| warn(py, path, why)));
    module.add_class::<stream::Stream>()?;
    module.add_class::<connection::Connection>()?;
    module.add("ReplyError", py.get_type::<values::ReplyError>())?;
    module.add("ProtocolError", py.get_type::<values::ProtocolError>())
}

/// Tells the logger `keyway` that a server shares no memory; what that raises is nobody's.
fn warn(py: Python<'_>, path: &Path, why: Refusal) {
    let text = keyway_client::fallback_text(path, why);
    let logger = py.import("logging").and_then(|logging| logging.call_method1("getLogger", ("keyway",)));
    let told = logger.and_then(|logger| logger.call_method1("warning", ("%s", text)));
    if let Err(raised) = told {
        raised.write_unraisable(py, None);
    }
}
