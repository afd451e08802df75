//! The client library for Python: the module `keyway._keyway`, which the package `keyway` makes
//! presentable. Waits give the interpreter's lock back, and end when a signal's handler raises.
#![forbid(unsafe_code)]

mod connection;
mod stream;
mod turns;
mod values;

use pyo3::prelude::*;

#[pymodule]
fn _keyway(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<stream::Stream>()?;
    module.add_class::<connection::Connection>()?;
    module.add("ReplyError", py.get_type::<values::ReplyError>())?;
    module.add("ProtocolError", py.get_type::<values::ProtocolError>())
}
