//! The client library for Python: the module `keyway._keyway`, which the package `keyway` makes
//! presentable. Waits give the interpreter's lock back, and end when a signal's handler raises.
#![forbid(unsafe_code)]

mod connection;
mod stream;
mod turns;
mod values;

use keyway_client::Refusal;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::Path;

#[pymodule]
fn _keyway(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    keyway_client::on_fallback(|path, why| Python::attach(|py| warn(py, path, why)));
    let in_child = PyDict::new(py);
    in_child.set_item("after_in_child", wrap_pyfunction!(is_forked, module)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&in_child))?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<connection::Connection>()?;
    module.add("ReplyError", py.get_type::<values::ReplyError>())?;
    module.add("ProtocolError", py.get_type::<values::ProtocolError>())
}

#[pyfunction]
fn is_forked() {
    turns::is_forked();
}

/// Tells the logger `keyway` that a server shares no memory; what that raises is nobody's.
fn warn(py: Python<'_>, path: &Path, why: Refusal) {
    let text = keyway_client::fallback_text(path, why);
    let logger =
        py.import("logging").and_then(|logging| logging.call_method1("getLogger", ("keyway",)));
    let told = logger.and_then(|logger| logger.call_method1("warning", ("%s", text)));
    if let Err(raised) = told {
        raised.write_unraisable(py, None);
    }
}
