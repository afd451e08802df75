//! Arguments of commands and items of results, in their wire format.

use crate::wire::{Reader, Writer};

pub(super) fn read_items(mut from: Reader<'_>, count_max: usize) -> Option<Vec<Vec<u8>>> {
    let count = from.u32()? as usize;
    // Each has a length of four bytes: a false number reserves nothing.
    if count > count_max || count > from.rest().len() / 4 {
        return None;
    }
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        items.push(from.bytes()?.to_vec());
    }
    from.end()?;
    Some(items)
}

/// Reads items of which the last is not copied. `front` is everything before its bytes.
pub(super) fn read_split(front: &[u8], last: Vec<u8>, count_max: usize) -> Option<Vec<Vec<u8>>> {
    let mut from = Reader::new(front);
    let count = from.u32()? as usize;
    if !(1..=count_max).contains(&count) {
        return None;
    }
    let mut items = Vec::with_capacity(count);
    for _ in 1..count {
        items.push(from.bytes()?.to_vec());
    }
    let is_whole = from.u32()? as usize == last.len() && from.end().is_some();
    items.push(last);
    is_whole.then_some(items)
}

/// Reads the status and the items of a result.
pub(super) fn read_result(body: &[u8]) -> Option<(u16, Vec<Vec<u8>>)> {
    let mut from = Reader::new(body);
    Some((from.u16()?, read_items(from, ITEMS_MAX)?))
}

pub(super) fn write_items<T: AsRef<[u8]>>(items: &[T], out: &mut Writer<'_>) {
    out.u32(items.len() as u32);
    items.iter().for_each(|item| out.bytes(item.as_ref()));
}

/// Most arguments of a command, including its name.
pub(super) const ARGS_MAX: usize = 256;

/// Most items of a result: an empty one takes more memory than bytes on the wire.
pub(super) const ITEMS_MAX: usize = 1 << 17;
