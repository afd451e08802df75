//! Walks over a database: SCAN, KEYS, RANDOMKEY.
//!
//! A cursor names a shard and a reversed hash in the order of those within
//! it: `shard << 32 | reversed`, 0 at the start and the end. That order is the
//! same for every size of a table, so a walk returns every key that was there
//! throughout, though tables grow and shrink meanwhile.

use super::call::{Call, Fault, Outcome, SYNTAX};
use crate::items::{Item, Position};
use keyway_base::glob;
use keyway_resp::reply;

/// Reversed hashes in a shard.
const HASHES: u64 = 1 << 32;
/// Keys looked at when COUNT is not given.
const COUNT_DEFAULT: u64 = 10;
/// Tries to hit a random item before any is taken: a table is at least a
/// tenth full.
const RANDOM_TRIES: u32 = 256;
/// Items of a bucket that random picks reach alike.
const RANDOM_ITEMS: u64 = 16;

struct Options<'a> {
    count: u64,
    pattern: Option<&'a [u8]>,
    /// The name of the type asked for, in any case.
    kind: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(call: &Call<'a>) -> Result<Self, Fault> {
        let mut options = Self { count: COUNT_DEFAULT, pattern: None, kind: None };
        let mut index = 2;
        while index < call.args.len() {
            let has_value = index + 1 < call.args.len();
            match () {
                () if call.is(index, "count") && has_value => {
                    let count = u64::try_from(call.integer(index + 1)?).unwrap_or(0);
                    if count == 0 {
                        return Err(SYNTAX);
                    }
                    options.count = count;
                }
                () if call.is(index, "match") && has_value => {
                    options.pattern = Some(call.arg(index + 1)).filter(|pattern| *pattern != b"*");
                }
                () if call.is(index, "type") && has_value => {
                    options.kind = Some(call.arg(index + 1));
                }
                () => return Err(SYNTAX),
            }
            index += 2;
        }
        Ok(options)
    }

    fn wants(&self, item: &Item<'_>, now_millis: u64) -> bool {
        let kind = item.encoding().kind().name().as_bytes();
        self.kind.is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind))
            && self.pattern.is_none_or(|pattern| glob::matches(pattern, item.key()))
            && !item.is_gone(now_millis)
    }
}

/// A cursor in the forms that C's `strtoul` reads.
pub(super) fn parse_cursor(text: &[u8]) -> Result<u64, Fault> {
    const INVALID: Fault = Fault::Text("ERR invalid cursor");
    let (negative, digits) = match text {
        [] => return Ok(0),
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let text = std::str::from_utf8(digits).map_err(|_| INVALID)?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(INVALID);
    }
    let value: u64 = text.parse().map_err(|_| INVALID)?;
    Ok(if negative { value.wrapping_neg() } else { value })
}

/// Spaces of the client's database in all shards.
fn space_count(call: &Call<'_>) -> usize {
    call.store.shard_count() * call.store.quotas.width()
}

/// The shard of the space of this index, and which of the database's it is
/// there.
fn space_at(call: &Call<'_>, index: usize) -> (usize, usize) {
    (index / call.store.quotas.width(), index % call.store.quotas.width())
}

/// Looks at `count` items from `cursor` on, or a few more; the next cursor.
fn walk(call: &Call<'_>, cursor: u64, count: u64, mut visit: impl FnMut(&Item<'_>)) -> u64 {
    let (mut index, mut reversed) = (cursor / HASHES, cursor % HASHES);
    let mut seen = 0;
    let space_count = space_count(call) as u64;
    while index < space_count {
        let (shard, database) = space_at(call, index as usize);
        let mut shard = call.store.shard(shard);
        let database = call.store.first_space(call.turn.database) + database;
        if let Some(space) = shard.existing_space(database).filter(|space| space.table.len() > 0) {
            let table = &space.table;
            while reversed < HASHES && seen < count {
                let bucket = table.bucket_of((reversed as u32).reverse_bits());
                for position in table.positions(bucket) {
                    visit(&table.item(position));
                    seen += 1;
                }
                reversed = table.span(bucket).end;
            }
        } else {
            reversed = HASHES;
        }
        if reversed < HASHES {
            return index * HASHES + reversed;
        }
        (index, reversed) = (index + 1, 0);
        if seen >= count && index < space_count {
            return index * HASHES;
        }
    }
    0
}

/// SCAN.
pub(super) fn scan(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let cursor = parse_cursor(call.arg(1))?;
    let options = Options::parse(call)?;
    let (mut keys, mut key_count) = (Vec::new(), 0);
    let next = walk(call, cursor, options.count, |item| {
        if options.wants(item, call.turn.now_millis) {
            reply::bulk(&mut keys, item.key());
            key_count += 1;
        }
    });
    reply::array(out, 2);
    reply::bulk(out, next.to_string().as_bytes());
    reply::array(out, key_count);
    out.extend_from_slice(&keys);
    Ok(())
}

/// KEYS. Locks one shard after the other: keys set or deleted meanwhile may be
/// in the reply or not.
pub(super) fn keys(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let pattern = Some(call.arg(1)).filter(|pattern| *pattern != b"*");
    let options = Options { count: u64::MAX, pattern, kind: None };
    let (mut keys, mut key_count) = (Vec::new(), 0);
    walk(call, 0, options.count, |item| {
        if options.wants(item, call.turn.now_millis) {
            reply::bulk(&mut keys, item.key());
            key_count += 1;
        }
    });
    reply::array(out, key_count);
    out.extend_from_slice(&keys);
    Ok(())
}

/// RANDOMKEY: every key is as likely, but for those in very full buckets.
pub(super) fn randomkey(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let len_of = |index: usize| {
        let (shard, database) = space_at(call, index);
        let mut shard = call.store.shard(shard);
        let database = call.store.first_space(call.turn.database) + database;
        shard.existing_space(database).map_or(0, |space| space.table.len() as u64)
    };
    let space_count = space_count(call);
    let total: u64 = (0..space_count).map(len_of).sum();
    let mut skip = call.store.random() % total.max(1);
    let start = (0..space_count).find(|index| {
        let len = len_of(*index);
        let here = skip < len;
        skip = if here { skip } else { skip - len };
        here
    });
    // Expired keys, or other clients, may have emptied the chosen shard.
    let start = start.unwrap_or(0);
    for step in 0..space_count {
        if random_in_space(call, (start + step) % space_count, out) {
            return Ok(());
        }
    }
    call.turn.protocol.null(out);
    Ok(())
}

/// Appends a random key of a space; whether there was any.
fn random_in_space(call: &Call<'_>, index: usize, out: &mut Vec<u8>) -> bool {
    let (shard, database) = space_at(call, index);
    let mut shard = call.store.shard(shard);
    let database = call.store.first_space(call.turn.database) + database;
    let Some(space) = shard.existing_space(database) else { return false };
    let table = &space.table;
    if table.len() == 0 {
        return false;
    }
    let is_live = |position: &Position| !table.item(*position).is_gone(call.turn.now_millis);
    let random_item = || {
        let random = call.store.random();
        let bucket = table.bucket_of(random as u32);
        table.positions(bucket).nth(((random >> 32) % RANDOM_ITEMS) as usize)
    };
    let tried = (0..RANDOM_TRIES).find_map(|_| random_item().filter(is_live));
    let any = || (0..table.bucket_count()).find_map(|bucket| table.positions(bucket).find(is_live));
    let Some(position) = tried.or_else(any) else { return false };
    reply::bulk(out, table.item(position).key());
    true
}
