//! Replies as C sees them.

use keyway_client::Value;
use std::ffi::{c_char, c_int};
use std::ptr::null;

/// `keyway_reply`.
#[derive(Debug)]
pub struct Reply {
    /// One of `enum keyway_kind`.
    kind: c_int,
    what: What,
}

#[derive(Debug)]
enum What {
    Nothing,
    Integer(i64),
    Double(f64),
    /// With a zero behind them.
    Bytes(Vec<u8>),
    Elements(Vec<Reply>),
}

fn with_zero(mut bytes: Vec<u8>) -> What {
    bytes.push(0);
    What::Bytes(bytes)
}

fn all(values: Vec<Value>) -> What {
    What::Elements(values.into_iter().map(Reply::from).collect())
}

impl From<Value> for Reply {
    fn from(value: Value) -> Reply {
        let (kind, what) = match value {
            Value::Nil => (0, What::Nothing),
            Value::Status(bytes) => (1, with_zero(bytes)),
            Value::Error(bytes) => (2, with_zero(bytes)),
            Value::Integer(number) => (3, What::Integer(number)),
            Value::Bytes(bytes) => (4, with_zero(bytes)),
            Value::Array(values) => (5, all(values)),
            Value::Boolean(truth) => (6, What::Integer(truth.into())),
            Value::Double(number) => (7, What::Double(number)),
            Value::BigNumber(digits) => (8, with_zero(digits)),
            Value::Set(values) => (9, all(values)),
            Value::Map(pairs) => {
                (10, all(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect()))
            }
            Value::Push(values) => (11, all(values)),
        };
        Reply { kind, what }
    }
}

/// See `keyway.h`.
///
/// # Safety
/// `reply` is null, or of a function that says it is to be freed, and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_free(reply: *mut Reply) {
    if !reply.is_null() {
        // SAFETY: it was made by `Box::into_raw`, and is given up by this call.
        drop(unsafe { Box::from_raw(reply) });
    }
}

/// See `keyway.h`.
///
/// # Safety
/// `reply` was returned by a function of the library and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_kind_of(reply: *const Reply) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { &*reply }.kind
}

/// See `keyway.h`.
///
/// # Safety
/// As [`keyway_kind_of`]; `length` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_bytes(reply: *const Reply, length: *mut usize) -> *const c_char {
    // SAFETY: as the caller promises.
    let (bytes, len) = match &unsafe { &*reply }.what {
        What::Bytes(bytes) => (bytes.as_ptr().cast(), bytes.len() - 1),
        _ => (null(), 0),
    };
    if !length.is_null() {
        // SAFETY: as the caller promises.
        unsafe { length.write(len) };
    }
    bytes
}

/// See `keyway.h`.
///
/// # Safety
/// As [`keyway_kind_of`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_integer(reply: *const Reply) -> i64 {
    // SAFETY: as the caller promises.
    match unsafe { &*reply }.what {
        What::Integer(number) => number,
        _ => 0,
    }
}

/// See `keyway.h`.
///
/// # Safety
/// As [`keyway_kind_of`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_double(reply: *const Reply) -> f64 {
    // SAFETY: as the caller promises.
    match unsafe { &*reply }.what {
        What::Double(number) => number,
        _ => 0.0,
    }
}

/// # Safety
/// As [`keyway_kind_of`].
unsafe fn elements<'a>(reply: *const Reply) -> &'a [Reply] {
    // SAFETY: as the caller promises.
    match &unsafe { &*reply }.what {
        What::Elements(elements) => elements,
        _ => &[],
    }
}

/// See `keyway.h`.
///
/// # Safety
/// As [`keyway_kind_of`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_count(reply: *const Reply) -> usize {
    // SAFETY: as the caller promises.
    unsafe { elements(reply) }.len()
}

/// See `keyway.h`.
///
/// # Safety
/// As [`keyway_kind_of`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_at(reply: *const Reply, index: usize) -> *const Reply {
    // SAFETY: as the caller promises.
    unsafe { elements(reply) }.get(index).map_or(null(), std::ptr::from_ref)
}
