//! The client library for C. `include/keyway.h` says what each function is for; what is here
//! turns its pointers into values and back.

#![warn(missing_docs)]

mod reply;

use keyway_client::{Connection, Error, Options, Transport};
pub use reply::Reply;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// `keyway_connection`.
#[derive(Debug)]
pub struct Handle {
    connection: Connection,
    /// Of the last call that failed, with its zero.
    error: Vec<u8>,
    /// Why no memory is shared, with its zero; empty where it is.
    refusal: Vec<u8>,
}

/// `keyway_options`.
#[repr(C)]
#[derive(Debug)]
pub struct RawOptions {
    connect_timeout_ms: i64,
    timeout_ms: i64,
    username: *const c_char,
    password: *const c_char,
    database: u32,
}

/// `text` as UTF-8; `None` when it is null or something else.
///
/// # Safety
/// Not null, it ends with a zero byte and stays as it is while the result is used.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

fn time(ms: i64, usual: Option<Duration>) -> Option<Duration> {
    match u64::try_from(ms) {
        Ok(0) => usual,
        Ok(ms) => Some(Duration::from_millis(ms)),
        Err(_) => None,
    }
}

/// # Safety
/// `options` is null or points to what the header says.
unsafe fn options(options: *const RawOptions) -> Result<Options, Error> {
    let usual = Options::default();
    // SAFETY: as the caller promises.
    let Some(raw) = (unsafe { options.as_ref() }) else { return Ok(usual) };
    // SAFETY: both are null or end with a zero byte.
    let words = unsafe { [text(raw.username), text(raw.password)] };
    if words[0].is_none() != raw.username.is_null() || words[1].is_none() != raw.password.is_null()
    {
        return Err(Error::Refused("a name or a password is not UTF-8".to_owned()));
    }
    Ok(Options {
        connect_timeout: time(raw.connect_timeout_ms, usual.connect_timeout),
        timeout: time(raw.timeout_ms, usual.timeout),
        username: words[0].map(str::to_owned),
        password: words[1].map(str::to_owned),
        database: raw.database,
        ..usual
    })
}

/// See `keyway.h`.
///
/// # Safety
/// As the header says: pointers are null where that is allowed, or point to what it names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_open(
    url: *const c_char,
    options: *const RawOptions,
    error: *mut c_char,
    error_size: usize,
) -> *mut Handle {
    // SAFETY: as the caller promises.
    let opened = unsafe { open(url, options) };
    match opened {
        Ok(connection) => {
            let why = connection.stream().refusal();
            let refusal = why.map_or(Vec::new(), |why| format!("{why}\0").into_bytes());
            Box::into_raw(Box::new(Handle { connection, error: vec![0], refusal }))
        }
        Err(why) => {
            // SAFETY: the caller has `error_size` bytes there.
            unsafe { tell(&why.to_string(), error, error_size) };
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// As [`keyway_open`].
unsafe fn open(url: *const c_char, raw: *const RawOptions) -> Result<Connection, Error> {
    // SAFETY: as the caller promises.
    let (url, options) = unsafe { (text(url), options(raw)?) };
    let url = url.ok_or_else(|| Error::Refused("the URL is null, or not UTF-8".to_owned()))?;
    Connection::open_with(url, &options)
}

/// # Safety
/// `into` is null, or there are `size` bytes at it.
unsafe fn tell(what: &str, into: *mut c_char, size: usize) {
    if into.is_null() || size == 0 {
        return;
    }
    let len = what.len().min(size - 1);
    // SAFETY: `len + 1` bytes are there, as the caller promises.
    unsafe {
        std::ptr::copy_nonoverlapping(what.as_ptr().cast(), into, len);
        into.add(len).write(0);
    }
}

/// See `keyway.h`.
///
/// # Safety
/// `connection` is null, or of [`keyway_open`] and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_close(connection: *mut Handle) {
    if !connection.is_null() {
        // SAFETY: it was made by `Box::into_raw`, and is given up by this call.
        drop(unsafe { Box::from_raw(connection) });
    }
}

/// See `keyway.h`.
///
/// # Safety
/// `connection` is of [`keyway_open`] and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_transport_of(connection: *const Handle) -> c_int {
    // SAFETY: as the caller promises.
    match unsafe { &*connection }.connection.stream().transport() {
        Transport::Tcp => 0,
        Transport::Unix => 1,
        Transport::Shared => 2,
    }
}

/// See `keyway.h`.
///
/// # Safety
/// `connection` is of [`keyway_open`] and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_refusal(connection: *const Handle) -> *const c_char {
    // SAFETY: as the caller promises.
    let refusal = unsafe { &(*connection).refusal };
    if refusal.is_empty() { std::ptr::null() } else { refusal.as_ptr().cast() }
}

/// See `keyway.h`.
#[unsafe(no_mangle)]
pub extern "C" fn keyway_on_fallback(
    told: Option<unsafe extern "C" fn(*const c_char, *const c_char)>,
) {
    keyway_client::on_fallback(move |path, why| {
        let texts = (CString::new(path.as_os_str().as_bytes()), CString::new(why.to_string()));
        if let (Some(told), (Ok(path), Ok(why))) = (told, texts) {
            // SAFETY: both end with a zero byte, and are there until it returns.
            unsafe { told(path.as_ptr(), why.as_ptr()) };
        }
    });
}

/// See `keyway.h`.
///
/// # Safety
/// `connection` is of [`keyway_open`] and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_error(connection: *const Handle) -> *const c_char {
    // SAFETY: as the caller promises.
    unsafe { &*connection }.error.as_ptr().cast()
}

/// See `keyway.h`.
///
/// # Safety
/// `connection` is of [`keyway_open`] and not closed; `arguments` has `count` pointers, and
/// `lengths`, if it is not null, as many lengths of what they point to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_append(
    connection: *mut Handle,
    count: usize,
    arguments: *const *const c_char,
    lengths: *const usize,
) -> c_int {
    // SAFETY: as the caller promises.
    let (handle, words) = unsafe { (&mut *connection, words(count, arguments, lengths)) };
    match words.and_then(|words| handle.connection.append(&words)) {
        Ok(()) => 0,
        Err(why) => {
            handle.fail(&why);
            -1
        }
    }
}

/// # Safety
/// As [`keyway_append`].
unsafe fn words<'a>(
    count: usize,
    arguments: *const *const c_char,
    lengths: *const usize,
) -> Result<Vec<&'a [u8]>, Error> {
    let word = |index| {
        // SAFETY: there are `count` of them, as the caller promises.
        let start = unsafe { *arguments.add(index) };
        let len = match lengths.is_null() {
            true => None,
            // SAFETY: there are as many lengths.
            false => Some(unsafe { *lengths.add(index) }),
        };
        match len {
            Some(0) => Ok(&[][..]),
            _ if start.is_null() => {
                Err(Error::Refused(format!("argument {index}, counted from 0, is null")))
            }
            // SAFETY: without a length it ends with a zero byte.
            None => Ok(unsafe { CStr::from_ptr(start) }.to_bytes()),
            // SAFETY: so many bytes are there.
            Some(len) => Ok(unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) }),
        }
    };
    (0..count).map(word).collect()
}

/// See `keyway.h`.
///
/// # Safety
/// As [`keyway_append`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_command(
    connection: *mut Handle,
    count: usize,
    arguments: *const *const c_char,
    lengths: *const usize,
) -> *mut Reply {
    // SAFETY: as the caller promises.
    unsafe {
        match keyway_append(connection, count, arguments, lengths) {
            0 => keyway_next(connection),
            _ => std::ptr::null_mut(),
        }
    }
}

/// See `keyway.h`.
///
/// # Safety
/// `connection` is of [`keyway_open`] and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_next(connection: *mut Handle) -> *mut Reply {
    // SAFETY: as the caller promises.
    let handle = unsafe { &mut *connection };
    match handle.connection.reply() {
        Ok(value) => Box::into_raw(Box::new(Reply::from(value))),
        Err(why) => {
            handle.fail(&why);
            std::ptr::null_mut()
        }
    }
}

/// See `keyway.h`.
///
/// # Safety
/// `connection` is of [`keyway_open`] and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_flush(connection: *mut Handle) -> c_int {
    // SAFETY: as the caller promises.
    let handle = unsafe { &mut *connection };
    match handle.connection.flush() {
        Ok(()) => 0,
        Err(why) => {
            handle.fail(&why);
            -1
        }
    }
}

/// See `keyway.h`.
///
/// # Safety
/// `connection` is of [`keyway_open`] and not closed; `reply` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_next_within(
    connection: *mut Handle,
    wait_ms: u32,
    reply: *mut *mut Reply,
) -> c_int {
    // SAFETY: as the caller promises.
    let handle = unsafe { &mut *connection };
    let wait = Duration::from_millis(wait_ms.into());
    let (came, code) = match handle.connection.reply_within(wait) {
        Ok(Some(value)) => (Box::into_raw(Box::new(Reply::from(value))), 1),
        Ok(None) => (std::ptr::null_mut(), 0),
        Err(why) => {
            handle.fail(&why);
            (std::ptr::null_mut(), -1)
        }
    };
    // SAFETY: as the caller promises.
    unsafe { reply.write(came) };
    code
}

/// See `keyway.h`.
///
/// # Safety
/// `connection` is of [`keyway_open`] and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn keyway_next_push(connection: *mut Handle) -> *mut Reply {
    // SAFETY: as the caller promises.
    match unsafe { &mut *connection }.connection.take_push() {
        Some(value) => Box::into_raw(Box::new(Reply::from(value))),
        None => std::ptr::null_mut(),
    }
}

impl Handle {
    fn fail(&mut self, why: &Error) {
        self.error = why.to_string().into_bytes();
        // A zero within would cut it.
        self.error.retain(|&byte| byte != 0);
        self.error.push(0);
    }
}
