//! Hashes.

use super::call::{Call, Fault, Outcome, SYNTAX};
use super::numeric::{NOT_FINITE, parse_float};
use super::sample::{Walk, Wanted, sample, sample_len, walk_reply};
use super::scan;
use crate::algorithms::number::{INTEGER_LEN_MAX, format_integer, parse_integer};
use crate::collections::hash::Hash;
use crate::edits::hash::{self, Until};
use crate::items::Kind;
use keyway_resp::{Protocol, reply};

/// HSET and HMSET.
pub(super) fn hset(call: &Call<'_>, name: &str, out: &mut Vec<u8>) -> Outcome {
    if call.args.len().is_multiple_of(2) {
        let counts = name == "hset";
        let added = match call.args.len() {
            4 => {
                let [key, field, value] = [1, 2, 3].map(|index| call.arg(index));
                usize::from(call.store.set_field(call.turn, key, field, value)?)
            }
            _ => call.with_key(|mut entry| {
                entry.edit(Kind::Hash, "hset", |editor| {
                    let pairs = call.args_from(2, 2).zip(call.args_from(3, 2));
                    let set = |(field, value)| hash::set(editor, field, value, Until::Ever);
                    pairs.map(set).filter(|is_new| *is_new).count()
                })
            })?,
        };
        if counts {
            reply::integer(out, added as i64);
        } else {
            out.extend_from_slice(b"+OK\r\n");
        }
        return Ok(());
    }
    Err(Fault::Text(match name {
        "hset" => "ERR wrong number of arguments for 'hset' command",
        _ => "ERR wrong number of arguments for 'hmset' command",
    }))
}

/// HSETNX.
pub(super) fn hsetnx(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let field = call.arg(2);
    let done = call.with_key(|mut entry| {
        entry.edit(Kind::Hash, "hset", |editor| {
            let there = editor.view::<Hash<'_>>().is_some_and(|hash| hash.get(field).is_some());
            !there && hash::set(editor, field, call.arg(3), Until::Ever)
        })
    })?;
    reply::integer(out, i64::from(done));
    Ok(())
}

/// Reads the hash of argument 1.
#[inline]
fn read<R>(call: &Call<'_>, work: impl FnOnce(Option<Hash<'_>>) -> R) -> Result<R, Fault> {
    Ok(call.store.read_hash(call.turn, call.arg(1), work)?)
}

fn write_value(call: &Call<'_>, hash: Option<&Hash<'_>>, field: &[u8], out: &mut Vec<u8>) {
    match hash.and_then(|hash| hash.get(field)) {
        Some(value) => reply::bulk(out, value),
        None => call.turn.protocol.null(out),
    }
}

/// HGET.
pub(super) fn hget(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    read(call, |hash| write_value(call, hash.as_ref(), call.arg(2), out))
}

/// HMGET.
pub(super) fn hmget(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    read(call, |hash| {
        reply::array(out, call.args.len() - 2);
        call.args_from(2, 1).for_each(|field| write_value(call, hash.as_ref(), field, out));
    })
}

/// HGETALL.
pub(super) fn hgetall(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    read(call, |hash| match hash {
        Some(hash) => {
            call.turn.protocol.map(out, hash.len());
            hash.visit(|field, value| {
                reply::bulk(out, field);
                reply::bulk(out, value);
            });
        }
        None => call.turn.protocol.map(out, 0),
    })
}

/// HKEYS, or with `values` HVALS.
pub(super) fn hkeys(call: &Call<'_>, values: bool, out: &mut Vec<u8>) -> Outcome {
    read(call, |hash| {
        reply::array(out, hash.as_ref().map_or(0, Hash::len));
        if let Some(hash) = hash {
            hash.visit(|field, value| reply::bulk(out, if values { value } else { field }));
        }
    })
}

/// HLEN.
pub(super) fn hlen(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let len = read(call, |hash| hash.map_or(0, |hash| hash.len()))?;
    reply::integer(out, len as i64);
    Ok(())
}

/// HSTRLEN.
pub(super) fn hstrlen(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let len =
        read(call, |hash| hash.and_then(|hash| hash.get(call.arg(2))).map_or(0, <[u8]>::len))?;
    reply::integer(out, len as i64);
    Ok(())
}

/// HEXISTS.
pub(super) fn hexists(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let there = read(call, |hash| hash.is_some_and(|hash| hash.get(call.arg(2)).is_some()))?;
    reply::integer(out, i64::from(there));
    Ok(())
}

/// HDEL.
pub(super) fn hdel(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let removed = call.with_key(|mut entry| {
        entry.edit(Kind::Hash, "hdel", |editor| {
            call.args_from(2, 1).filter(|field| hash::remove(editor, field)).count()
        })
    })?;
    reply::integer(out, removed as i64);
    Ok(())
}

/// HINCRBY.
pub(super) fn hincrby(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let (field, by) = (call.arg(2), call.integer(3)?);
    let sum = call.with_key(|mut entry| {
        entry.edit(Kind::Hash, "hincrby", |editor| {
            let value = match editor.view::<Hash<'_>>().and_then(|hash| hash.get(field)) {
                Some(value) => {
                    parse_integer(value).ok_or(Fault::Text("ERR hash value is not an integer"))?
                }
                None => 0,
            };
            let sum = value
                .checked_add(by)
                .ok_or(Fault::Text("ERR increment or decrement would overflow"))?;
            let mut buffer = [0; INTEGER_LEN_MAX];
            hash::set(editor, field, format_integer(sum, &mut buffer), Until::Before);
            Ok::<_, Fault>(sum)
        })
    })??;
    reply::integer(out, sum);
    Ok(())
}

/// HINCRBYFLOAT.
pub(super) fn hincrbyfloat(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let field = call.arg(2);
    let by = parse_float(call.arg(3))?.ok_or(Fault::Text("ERR value is NaN or Infinity"))?;
    let text = call.with_key(|mut entry| {
        entry.edit(Kind::Hash, "hincrbyfloat", |editor| {
            let hash = editor.view::<Hash<'_>>();
            let text = hash.and_then(|hash| hash.get(field)).unwrap_or(b"0");
            let value =
                parse_float(text).map_err(|_| Fault::Text("ERR hash value is not a float"))?;
            let sum = value.and_then(|value| value.add(by)).ok_or(NOT_FINITE)?;
            let text = sum.format();
            hash::set(editor, field, &text, Until::Before);
            Ok::<_, Fault>(text)
        })
    })??;
    reply::bulk(out, &text);
    Ok(())
}

/// HRANDFIELD.
pub(super) fn hrandfield(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let random = || call.store.random();
    if call.args.len() == 2 {
        return read(call, |hash| match hash.and_then(|hash| hash.random(random)) {
            Some((field, _)) => reply::bulk(out, field),
            None => call.turn.protocol.null(out),
        });
    }
    let with_values = call.args.len() == 4 && call.is(3, "withvalues");
    let mut wanted = Wanted::parse(call, 2, i64::MAX)?;
    if call.args.len() > 3 && !with_values {
        return Err(SYNTAX);
    }
    if with_values {
        wanted = Wanted::parse(call, 2, i64::MAX / 2)?;
    }
    read(call, |hash| {
        let Some(hash) = hash else {
            reply::array(out, 0);
            return Ok(());
        };
        let nests = with_values && call.turn.protocol == Protocol::Resp3;
        let source = Source::of(hash, wanted, random());
        let len = sample_len(wanted, source.len);
        reply::array(out, if with_values && !nests { 2 * len } else { len });
        let pick = || source.pick(random);
        let visit = |each: &mut dyn FnMut((_, _))| source.visit(each);
        sample(call, wanted, source.len, pick, visit, out, |(field, value), out| {
            if nests {
                reply::array(out, 2);
            }
            reply::bulk(out, field);
            if with_values {
                reply::bulk(out, value);
            }
        })
    })?
}

/// A field with its value.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// The hash from which a sample is drawn.
struct Source<'a> {
    hash: Hash<'a>,
    /// The number of its fields.
    len: usize,
    /// Some of those of a hash that hides others: to look for one among many that
    /// are hidden, time and again, takes longer than to look at some once.
    some: Option<Vec<Pair<'a>>>,
}

impl<'a> Source<'a> {
    fn of(hash: Hash<'a>, wanted: Wanted, start: u64) -> Self {
        let takes_some = hash.hides() && wanted.is_sparse(hash.len());
        let some = takes_some.then(|| hash.some_shown(wanted.count(), start));
        let len = some.as_ref().map_or_else(|| hash.len(), Vec::len);
        Self { hash, len, some }
    }

    fn pick(&self, mut random: impl FnMut() -> u64) -> Option<Pair<'a>> {
        match &self.some {
            Some(some) => some.get(random() as usize % some.len().max(1)).copied(),
            None => self.hash.random(random),
        }
    }

    fn visit(&self, each: &mut dyn FnMut(Pair<'a>)) {
        match &self.some {
            Some(some) => some.iter().for_each(|pair| each(*pair)),
            None => self.hash.visit(|field, value| each((field, value))),
        }
    }
}

/// HSCAN.
pub(super) fn hscan(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let cursor = scan::parse_cursor(call.arg(2))?;
    read(call, |hash| {
        let Some(hash) = hash else {
            walk_reply(out, 0, 0, b"");
            return Ok(());
        };
        let walk = Walk::parse(call)?;
        let (mut strings, mut count) = (Vec::new(), 0);
        let next = hash.scan(cursor, walk.count, |field, value| {
            if walk.wants(field) {
                reply::bulk(&mut strings, field);
                reply::bulk(&mut strings, value);
                count += 2;
            }
        });
        walk_reply(out, next, count, &strings);
        Ok(())
    })?
}
