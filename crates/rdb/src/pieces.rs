//! Pieces of a file, appended one by one, for a caller that writes the file itself.
//!
//! [`Writer`](crate::Writer) composes a file in one place and checks its order. Here the caller
//! keeps the order: [`header`], then fields, libraries, databases and keys, then [`end`]. Each
//! function only appends. Several threads can therefore compose parts of one file. The caller sums
//! up the checksum as it joins the parts.

use crate::crc64::Crc64;
use crate::event::Key;
use crate::format::{write_bytes, write_len, write_text};
use crate::kind;
use crate::version::Version;

/// Appends the first bytes of a file.
pub fn header(version: Version, out: &mut Vec<u8>) {
    let (word, width) = if version.is_of_valkey() { ("VALKEY", 3) } else { ("REDIS", 4) };
    let header = format!("{word}{:0width$}", version.number());
    out.extend_from_slice(header.as_bytes());
}

/// Appends an auxiliary field. Servers ignore fields that they do not know.
pub fn aux(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(kind::OPCODE_AUX);
    write_text(name, out);
    write_text(value, out);
}

/// Appends the source code of a library of functions.
pub fn library(code: &[u8], out: &mut Vec<u8>) {
    out.push(kind::OPCODE_LIBRARY);
    write_bytes(code, out);
}

/// Appends the database of the keys that follow.
pub fn database(number: u64, out: &mut Vec<u8>) {
    numbers(kind::OPCODE_DATABASE, &[number], out);
}

/// Appends how many keys the database has, and how many of them expire: a hint.
pub fn sizes(keys: u64, expiring: u64, out: &mut Vec<u8>) {
    numbers(kind::OPCODE_SIZES, &[keys, expiring], out);
}

/// Appends a key of a value of type `kind`. The value follows. [`Key::value`] is ignored.
pub fn key(key: &Key<'_>, kind: u8, out: &mut Vec<u8>) {
    attributes(key, out);
    out.push(kind);
    write_text(key.name, out);
}

/// Appends what stands in front of the type of a key's value: when it expires, and how it was used.
pub fn attributes(key: &Key<'_>, out: &mut Vec<u8>) {
    if let Some(millis) = key.expires_ms {
        out.push(kind::OPCODE_EXPIRES_MS);
        // Later times cannot be written, and are as good as never.
        let millis = i64::try_from(millis).unwrap_or(i64::MAX);
        out.extend_from_slice(&millis.to_le_bytes());
    }
    if let Some(seconds) = key.idle_seconds {
        numbers(kind::OPCODE_IDLE, &[seconds], out);
    }
    if let Some(frequency) = key.frequency {
        out.extend_from_slice(&[kind::OPCODE_FREQUENCY, frequency]);
    }
}

/// Appends the end of a file. `crc` has summed up all bytes before.
pub fn end(crc: &mut Crc64, checked: bool, out: &mut Vec<u8>) {
    let opcode = [kind::OPCODE_END];
    crc.update(&opcode);
    out.extend_from_slice(&opcode);
    let sum = if checked { crc.sum() } else { 0 };
    out.extend_from_slice(&sum.to_le_bytes());
}

pub(crate) fn numbers(opcode: u8, numbers: &[u64], out: &mut Vec<u8>) {
    out.push(opcode);
    numbers.iter().for_each(|number| write_len(*number, out));
}
