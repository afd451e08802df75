//! Strings as numbers.

use super::call::{Call, Fault, NOT_AN_INTEGER, Outcome};
use crate::algorithms::extended::{Extended, Fault as NumberFault};
use crate::algorithms::number::{INTEGER_LEN_MAX, format_integer, parse_integer};
use crate::items::Encoding;
use keyway_base::KeyspaceEvents;
use keyway_resp::reply;

const NOT_A_FLOAT: Fault = Fault::Text("ERR value is not a valid float");
pub(super) const NOT_FINITE: Fault = Fault::Text("ERR increment would produce NaN or Infinity");

/// INCR and DECR, and what INCRBY and DECRBY come down to.
pub(super) fn increment(call: &Call<'_>, by: i64, out: &mut Vec<u8>) -> Outcome {
    let sum = call.with_key(|mut entry| {
        let (value, expiry) = match entry.text()? {
            Some(item) => (parse_integer(item.value()).ok_or(NOT_AN_INTEGER)?, item.expiry()),
            None => (0, None),
        };
        let sum = value
            .checked_add(by)
            .ok_or(Fault::Text("ERR increment or decrement would overflow"))?;
        let mut buffer = [0; INTEGER_LEN_MAX];
        entry.set(format_integer(sum, &mut buffer), Encoding::Text, expiry);
        entry.notify(KeyspaceEvents::STRING, "incrby");
        Ok::<_, Fault>(sum)
    })?;
    reply::integer(out, sum);
    Ok(())
}

/// INCRBY.
pub(super) fn incrby(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    increment(call, call.integer(2)?, out)
}

/// DECRBY.
pub(super) fn decrby(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let by = call.integer(2)?;
    let by = by.checked_neg().ok_or(Fault::Text("ERR decrement would overflow"))?;
    increment(call, by, out)
}

/// INCRBYFLOAT.
pub(super) fn incrbyfloat(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let text = call.with_key(|mut entry| {
        let (value, expiry) = match entry.text()? {
            Some(item) => (parse_float(item.value())?, item.expiry()),
            None => (parse_float(b"0")?, None),
        };
        let by = parse_float(call.arg(2))?;
        let sum = match (value, by) {
            (Some(value), Some(by)) => value.add(by).ok_or(NOT_FINITE)?,
            _ => return Err(NOT_FINITE),
        };
        let text = sum.format();
        entry.set(&text, Encoding::Plain, expiry);
        entry.notify(KeyspaceEvents::STRING, "incrbyfloat");
        Ok::<_, Fault>(text)
    })?;
    reply::bulk(out, &text);
    Ok(())
}

/// The number, or `None` for infinity.
pub(super) fn parse_float(text: &[u8]) -> Result<Option<Extended>, Fault> {
    match Extended::parse(text) {
        Ok(number) => Ok(Some(number)),
        Err(NumberFault::Infinite) => Ok(None),
        Err(NumberFault::Invalid) => Err(NOT_A_FLOAT),
    }
}
