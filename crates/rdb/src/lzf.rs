//! LZF, with which servers compress long strings.

/// A packed string does not unpack to what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// Appends the `len` bytes that were packed with LZF. With a wrong form, or another number of
/// bytes, it returns an error, and some bytes may have been appended. An unpacked length of 0 fits
/// any input, as in Redis.
///
/// ```text
///  000nnnnn                      n + 1 bytes as they are
///  nnnooooo oooooooo             n + 2 bytes from o + 1 bytes before
///  111ooooo nnnnnnnn oooooooo    n + 9 bytes from there
/// ```
///
/// # Errors
/// Returns [`Damaged`].
pub fn unpack(packed: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), Damaged> {
    if len == 0 {
        return Ok(());
    }
    let start = out.len();
    let mut rest = packed.iter();
    while let Some(&control) = rest.next() {
        let left = len - (out.len() - start);
        if control < 32 {
            let run = rest.as_slice().get(..usize::from(control) + 1).ok_or(Damaged)?;
            if run.len() > left {
                return Err(Damaged);
            }
            out.extend_from_slice(run);
            rest = rest.as_slice()[run.len()..].iter();
            continue;
        }
        let mut count = usize::from(control >> 5) + 2;
        if control >> 5 == 7 {
            count += usize::from(*rest.next().ok_or(Damaged)?);
        }
        let low = *rest.next().ok_or(Damaged)?;
        let back = usize::from(u16::from_be_bytes([control & 0x1f, low])) + 1;
        let from = out.len().checked_sub(back).filter(|from| *from >= start).ok_or(Damaged)?;
        if count > left {
            return Err(Damaged);
        }
        if back == 1 {
            let byte = out[from];
            out.resize(out.len() + count, byte);
            continue;
        }
        // A reference may overlap with the bytes that are being written, which repeat then: each
        // time there are more of them to copy.
        let mut missing = count;
        while missing > 0 {
            let run = missing.min(out.len() - from);
            out.extend_from_within(from..from + run);
            missing -= run;
        }
    }
    if out.len() - start == len { Ok(()) } else { Err(Damaged) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_unpacks_to_its_length_and_no_other() {
        // "abc", then nine bytes from three bytes before.
        let packed = [2, b'a', b'b', b'c', 0xe0, 0, 2];
        for len in 0..20 {
            let mut out = b"before".to_vec();
            let done = unpack(&packed, len, &mut out).is_ok();
            assert_eq!(done, len == 12 || len == 0);
            assert!(len != 12 || out == b"beforeabcabcabcabc");
        }
        assert_eq!(unpack(&[0, b'a', 0x20, 1], 4, &mut b"before".to_vec()), Err(Damaged));
        assert_eq!(unpack(&[0, b'a', 0xe0, 0], 12, &mut Vec::new()), Err(Damaged));
        assert_eq!(unpack(&[1, b'a'], 2, &mut Vec::new()), Err(Damaged));
    }
}
