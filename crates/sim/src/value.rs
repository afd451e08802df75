//! Values that contain where they belong: `key#write#length#` and filling. So a reply in the wrong
//! place, or with a wrong byte, is found.

/// Creates the value of a write, with at least `len` bytes.
pub fn compose(key: &[u8], write: u64, len: usize) -> Vec<u8> {
    let mut value = key.to_vec();
    value.extend_from_slice(format!("#{write}#{len}#").as_bytes());
    let filling = b'a' + (write % 26) as u8;
    if value.len() < len {
        value.resize(len, filling);
    }
    value
}

/// Returns the number of the write from which a value came.
///
/// # Errors
/// Returns what is wrong with the value.
pub fn check(key: &[u8], value: &[u8]) -> Result<u64, String> {
    let fault =
        || format!("the value {} is none of {}", crate::wire::clip(value), crate::wire::clip(key));
    let rest =
        value.strip_prefix(key).and_then(|rest| rest.strip_prefix(b"#")).ok_or_else(fault)?;
    let mut parts = rest.splitn(3, |&byte| byte == b'#');
    let mut number = || -> Option<u64> { std::str::from_utf8(parts.next()?).ok()?.parse().ok() };
    let (Some(write), Some(len)) = (number(), number()) else { return Err(fault()) };
    if compose(key, write, len as usize) != value {
        return Err(fault());
    }
    Ok(write)
}
