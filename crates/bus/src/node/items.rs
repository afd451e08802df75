//! Arguments of commands and items of results, as they are on the wire.

use crate::wire::{Reader, Writer};

pub(super) fn read_items(mut from: Reader<'_>, count_max: usize) -> Option<Vec<Vec<u8>>> {
    let count = from.u32()? as usize;
    // Each has a length of four bytes: a lie about their number reserves nothing.
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

/// Items of which the last is not copied: what is before its bytes lies in front.
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

/// The status and the items of a result.
pub(super) fn read_result(body: &[u8]) -> Option<(u16, Vec<Vec<u8>>)> {
    let mut from = Reader::new(body);
    Some((from.u16()?, read_items(from, ITEMS_MAX)?))
}

pub(super) fn write_items<T: AsRef<[u8]>>(items: &[T], out: &mut Writer<'_>) {
    out.u32(items.len() as u32);
    items.iter().for_each(|item| out.bytes(item.as_ref()));
}

/// Arguments of a command at most, its name among them.
pub(super) const ARGS_MAX: usize = 256;

/// Items of a result at most: an empty one takes more memory than bytes on the way.
pub(super) const ITEMS_MAX: usize = 1 << 17;
