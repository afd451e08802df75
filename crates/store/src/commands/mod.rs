//! The commands, by the family they belong to. Each reads its arguments in the
//! order in which Redis 7.0 does, so that the first fault found is the same.

mod attempt;
mod bit;
mod bitfield;
mod blocking;
mod call;
mod dump;
mod expire;
mod fields;
mod geo;
mod hash;
mod hyperloglog;
mod key;
mod lcs;
mod list;
mod memory;
mod numeric;
mod object;
mod sample;
mod scan;
mod server;
mod set;
mod sort;
mod sorted;
mod stream;
mod string;
mod told;

pub(crate) use attempt::{Found, How};
pub(crate) use blocking::{lane_of, may_serve, settle, waits_for_first};
pub(crate) use told::{FLAGS_COMMAND, reads_others};

use crate::store::{Mode, Patience, Store, Transfer, Turn};
use call::{Call, Outcome, write_fault};
use keyway_command::{Request, Verb};
use keyway_resp::reply;

/// Executes `request`; appends exactly one reply. Tells its effect, if anybody follows the
/// store.
#[inline]
pub(crate) fn execute(
    store: &Store,
    request: &Request<'_>,
    turn: Turn,
    transfer: Option<&Transfer<'_>>,
    out: &mut Vec<u8>,
) {
    if store.effects.is_on() && told::may_change(request) {
        return execute_told(store, request, turn, transfer, out);
    }
    execute_only(store, request, turn, transfer, out);
}

/// Executes a request whose effect somebody follows.
#[inline(never)]
fn execute_told(
    store: &Store,
    request: &Request<'_>,
    turn: Turn,
    transfer: Option<&Transfer<'_>>,
    out: &mut Vec<u8>,
) {
    let is_streamed = transfer.is_some_and(|transfer| transfer.streamed_len() > 0);
    if !is_streamed && told::tells_itself(request) {
        return execute_only(store, request, turn.with(Mode::TELLING), transfer, out);
    }
    told::execute(store, request, turn, is_streamed, out, |turn, out| {
        execute_only(store, request, turn, transfer, out);
    });
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "a few instructions around each command")]
fn execute_only(
    store: &Store,
    request: &Request<'_>,
    turn: Turn,
    transfer: Option<&Transfer<'_>>,
    out: &mut Vec<u8>,
) {
    let call = Call { store, turn, args: request.args, transfer };
    let start = out.len();
    if let Err(fault) = dispatch(&call, request, out) {
        if let Some(transfer) = transfer {
            transfer.withdraw(start);
        }
        out.truncate(start);
        write_fault(request, fault, out);
    }
}

/// Makes an attempt at a command that may wait; what came of it, and how long
/// it would. `out` is as it was unless there is an answer.
pub(crate) fn attempt(
    store: &Store,
    request: &Request<'_>,
    turn: Turn,
    how: How<'_>,
    out: &mut Vec<u8>,
) -> (Found, Patience) {
    if store.effects.is_on() && told::may_change(request) {
        return told::execute(store, request, turn, false, out, |turn, out| {
            attempt_only(store, request, turn, how, out)
        });
    }
    attempt_only(store, request, turn, how, out)
}

fn attempt_only(
    store: &Store,
    request: &Request<'_>,
    turn: Turn,
    how: How<'_>,
    out: &mut Vec<u8>,
) -> (Found, Patience) {
    let call = Call { store, turn, args: request.args, transfer: None };
    let start = out.len();
    let attempted = blocking::attempt(&call, request, how, out);
    attempted.unwrap_or_else(|fault| {
        out.truncate(start);
        write_fault(request, fault, out);
        (Found::Answered, 0)
    })
}

fn dispatch(call: &Call<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    match request.command.verb {
        Verb::Get => string::get(call, out),
        Verb::Set => string::set(call, out),
        Verb::Append => string::append(call, out),
        Verb::Getdel => string::getdel(call, out),
        Verb::Getex => string::getex(call, out),
        Verb::Getrange | Verb::Substr => string::getrange(call, out),
        Verb::Getset => string::getset(call, out),
        Verb::Mget => string::mget(call, out),
        Verb::Mset => string::mset(call, out),
        Verb::Msetnx => string::msetnx(call, out),
        Verb::Psetex => string::setex(call, string::Unit::Millis, out),
        Verb::Setex => string::setex(call, string::Unit::Seconds, out),
        Verb::Setnx => string::setnx(call, out),
        Verb::Setrange => string::setrange(call, out),
        Verb::Strlen => string::strlen(call, out),
        Verb::Lcs => lcs::lcs(call, out),
        Verb::Incr => numeric::increment(call, 1, out),
        Verb::Decr => numeric::increment(call, -1, out),
        Verb::Incrby => numeric::incrby(call, out),
        Verb::Decrby => numeric::decrby(call, out),
        Verb::Incrbyfloat => numeric::incrbyfloat(call, out),
        Verb::Getbit => bit::getbit(call, out),
        Verb::Setbit => bit::setbit(call, out),
        Verb::Bitcount => bit::bitcount(call, out),
        Verb::Bitpos => bit::bitpos(call, out),
        Verb::Bitop => bit::bitop(call, out),
        Verb::Bitfield => bitfield::bitfield(call, false, out),
        Verb::BitfieldRo => bitfield::bitfield(call, true, out),
        _ => dispatch_keys(call, request, out),
    }
}

fn dispatch_keys(call: &Call<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    use expire::{Base, Unit};
    match request.command.verb {
        Verb::Del | Verb::Unlink => key::del(call, out),
        Verb::Exists => key::exists(call, out),
        Verb::Touch => key::touch(call, out),
        Verb::Type => key::key_type(call, out),
        Verb::Rename => key::rename(call, out),
        Verb::Renamenx => key::renamenx(call, out),
        Verb::Copy => key::copy(call, out),
        Verb::Move => key::move_key(call, out),
        Verb::Expire => expire::expire(call, Base::Now, Unit::Seconds, out),
        Verb::Expireat => expire::expire(call, Base::Epoch, Unit::Seconds, out),
        Verb::Pexpire => expire::expire(call, Base::Now, Unit::Millis, out),
        Verb::Pexpireat => expire::expire(call, Base::Epoch, Unit::Millis, out),
        Verb::Ttl => expire::ttl(call, Base::Now, Unit::Seconds, out),
        Verb::Pttl => expire::ttl(call, Base::Now, Unit::Millis, out),
        Verb::Expiretime => expire::ttl(call, Base::Epoch, Unit::Seconds, out),
        Verb::Pexpiretime => expire::ttl(call, Base::Epoch, Unit::Millis, out),
        Verb::Persist => expire::persist(call, out),
        Verb::Scan => scan::scan(call, out),
        Verb::Keys => scan::keys(call, out),
        Verb::Randomkey => scan::randomkey(call, out),
        Verb::ObjectEncoding => object::encoding(call, out),
        Verb::ObjectFreq => object::freq(call, out),
        Verb::ObjectIdletime => object::idletime(call, out),
        Verb::ObjectRefcount => object::refcount(call, out),
        Verb::ObjectHelp => object::help(out),
        Verb::MemoryUsage => memory::usage(call, out),
        Verb::Dbsize => server::dbsize(call, out),
        Verb::Flushdb => server::flushdb(call, out),
        Verb::Flushall => server::flushall(call, out),
        Verb::Swapdb => server::swapdb(call, out),
        Verb::Bgsave => server::bgsave(call, out),
        Verb::Bgrewriteaof => server::bgrewriteaof(call, out),
        Verb::Lastsave => server::lastsave(call, out),
        Verb::Dump => dump::dump(call, out),
        Verb::Restore | Verb::RestoreAsking => dump::restore(call, out),
        Verb::Sort => sort::sort_key(call, true, out),
        Verb::SortRo => sort::sort_key(call, false, out),
        _ => dispatch_hashes(call, request, out),
    }
}

fn dispatch_hashes(call: &Call<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    match request.command.verb {
        Verb::Hset | Verb::Hmset => hash::hset(call, request.command.name, out),
        Verb::Hsetnx => hash::hsetnx(call, out),
        Verb::Hget => hash::hget(call, out),
        Verb::Hmget => hash::hmget(call, out),
        Verb::Hgetall => hash::hgetall(call, out),
        Verb::Hkeys => hash::hkeys(call, false, out),
        Verb::Hvals => hash::hkeys(call, true, out),
        Verb::Hlen => hash::hlen(call, out),
        Verb::Hstrlen => hash::hstrlen(call, out),
        Verb::Hexists => hash::hexists(call, out),
        Verb::Hdel => hash::hdel(call, out),
        Verb::Hincrby => hash::hincrby(call, out),
        Verb::Hincrbyfloat => hash::hincrbyfloat(call, out),
        Verb::Hrandfield => hash::hrandfield(call, out),
        Verb::Hscan => hash::hscan(call, out),
        _ => dispatch_fields(call, request, out),
    }
}

fn dispatch_fields(call: &Call<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    use expire::{Base, Unit};
    match request.command.verb {
        Verb::Hexpire => fields::hexpire(call, Base::Now, Unit::Seconds, out),
        Verb::Hpexpire => fields::hexpire(call, Base::Now, Unit::Millis, out),
        Verb::Hexpireat => fields::hexpire(call, Base::Epoch, Unit::Seconds, out),
        Verb::Hpexpireat => fields::hexpire(call, Base::Epoch, Unit::Millis, out),
        Verb::Httl => fields::httl(call, Base::Now, Unit::Seconds, out),
        Verb::Hpttl => fields::httl(call, Base::Now, Unit::Millis, out),
        Verb::Hexpiretime => fields::httl(call, Base::Epoch, Unit::Seconds, out),
        Verb::Hpexpiretime => fields::httl(call, Base::Epoch, Unit::Millis, out),
        Verb::Hpersist => fields::hpersist(call, out),
        Verb::Hgetex => fields::hgetex(call, out),
        Verb::Hgetdel => fields::hgetdel(call, out),
        Verb::Hsetex => fields::hsetex(call, out),
        _ => dispatch_lists(call, request, out),
    }
}

fn dispatch_lists(call: &Call<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    use list::End;
    match request.command.verb {
        Verb::Lpush => list::push(call, End::Left, false, out),
        Verb::Rpush => list::push(call, End::Right, false, out),
        Verb::Lpushx => list::push(call, End::Left, true, out),
        Verb::Rpushx => list::push(call, End::Right, true, out),
        Verb::Lpop => list::pop(call, End::Left, out),
        Verb::Rpop => list::pop(call, End::Right, out),
        Verb::Llen => list::llen(call, out),
        Verb::Lrange => list::lrange(call, out),
        Verb::Lindex => list::lindex(call, out),
        Verb::Lset => list::lset(call, out),
        Verb::Linsert => list::linsert(call, out),
        Verb::Lrem => list::lrem(call, out),
        Verb::Ltrim => list::ltrim(call, out),
        Verb::Lpos => list::lpos(call, out),
        Verb::Lmove => list::lmove(call, out),
        Verb::Rpoplpush => list::rpoplpush(call, out),
        Verb::Lmpop => list::lmpop(call, out),
        _ => dispatch_sets(call, request, out),
    }
}

fn dispatch_sets(call: &Call<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    use set::Operation;
    match request.command.verb {
        Verb::Sadd => set::sadd(call, out),
        Verb::Srem => set::srem(call, out),
        Verb::Sismember => set::sismember(call, out),
        Verb::Smismember => set::smismember(call, out),
        Verb::Smembers => set::smembers(call, out),
        Verb::Scard => set::scard(call, out),
        Verb::Smove => set::smove(call, out),
        Verb::Spop => set::spop(call, out),
        Verb::Srandmember => set::srandmember(call, out),
        Verb::Sscan => set::sscan(call, out),
        Verb::Sunion => set::combination(call, Operation::Union, out),
        Verb::Sinter => set::combination(call, Operation::Intersection, out),
        Verb::Sdiff => set::combination(call, Operation::Difference, out),
        Verb::Sunionstore => set::store(call, Operation::Union, out),
        Verb::Sinterstore => set::store(call, Operation::Intersection, out),
        Verb::Sdiffstore => set::store(call, Operation::Difference, out),
        Verb::Sintercard => set::sintercard(call, out),
        _ => dispatch_sketches(call, request, out),
    }
}

fn dispatch_sketches(call: &Call<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    use geo::search::{Form, search};
    match request.command.verb {
        Verb::Pfadd => hyperloglog::pfadd(call, out),
        Verb::Pfcount => hyperloglog::pfcount(call, out),
        Verb::Pfmerge => hyperloglog::pfmerge(call, out),
        Verb::Geoadd => geo::geoadd(call, out),
        Verb::Geodist => geo::geodist(call, out),
        Verb::Geohash => geo::geohash(call, out),
        Verb::Geopos => geo::geopos(call, out),
        Verb::Geosearch => search(call, Form::Search, out),
        Verb::Geosearchstore => search(call, Form::SearchStore, out),
        Verb::Georadius => search(call, Form::Radius { stores: true }, out),
        Verb::GeoradiusRo => search(call, Form::Radius { stores: false }, out),
        Verb::Georadiusbymember => search(call, Form::RadiusByMember { stores: true }, out),
        Verb::GeoradiusbymemberRo => search(call, Form::RadiusByMember { stores: false }, out),
        _ => dispatch_sorted(call, request, out),
    }
}

fn dispatch_sorted(call: &Call<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    use set::Operation;
    use sorted::range::By;
    use sorted::{End, combine};
    let name = request.command.name;
    match request.command.verb {
        Verb::Zadd => sorted::zadd(call, false, out),
        Verb::Zincrby => sorted::zadd(call, true, out),
        Verb::Zrem => sorted::zrem(call, out),
        Verb::Zcard => sorted::zcard(call, out),
        Verb::Zscore => sorted::zscore(call, out),
        Verb::Zmscore => sorted::zmscore(call, out),
        Verb::Zrank => sorted::zrank(call, false, out),
        Verb::Zrevrank => sorted::zrank(call, true, out),
        Verb::Zpopmin => sorted::pop(call, End::Min, out),
        Verb::Zpopmax => sorted::pop(call, End::Max, out),
        Verb::Zmpop => sorted::zmpop(call, out),
        Verb::Zrandmember => sorted::zrandmember(call, out),
        Verb::Zscan => sorted::zscan(call, out),
        Verb::Zunion => combine::reply_with(call, name, Operation::Union, out),
        Verb::Zinter => combine::reply_with(call, name, Operation::Intersection, out),
        Verb::Zdiff => combine::reply_with(call, name, Operation::Difference, out),
        Verb::Zunionstore => combine::store(call, name, Operation::Union, out),
        Verb::Zinterstore => combine::store(call, name, Operation::Intersection, out),
        Verb::Zdiffstore => combine::store(call, name, Operation::Difference, out),
        Verb::Zintercard => combine::zintercard(call, name, out),
        Verb::Zcount => sorted::range::count(call, By::Score, out),
        Verb::Zlexcount => sorted::range::count(call, By::Bytes, out),
        Verb::Zremrangebyrank => sorted::range::remove(call, By::Rank, out),
        Verb::Zremrangebyscore => sorted::range::remove(call, By::Score, out),
        Verb::Zremrangebylex => sorted::range::remove(call, By::Bytes, out),
        Verb::Zrangestore => sorted::range::zrangestore(call, out),
        _ => dispatch_ranges(call, request, out),
    }
}

fn dispatch_ranges(call: &Call<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    use sorted::range::{By, Form, zrange};
    let form = |by, reverse| Form { by: Some(by), reverse: Some(reverse) };
    match request.command.verb {
        Verb::Zrange => zrange(call, Form { by: None, reverse: None }, out),
        Verb::Zrevrange => zrange(call, form(By::Rank, true), out),
        Verb::Zrangebyscore => zrange(call, form(By::Score, false), out),
        Verb::Zrevrangebyscore => zrange(call, form(By::Score, true), out),
        Verb::Zrangebylex => zrange(call, form(By::Bytes, false), out),
        Verb::Zrevrangebylex => zrange(call, form(By::Bytes, true), out),
        verb if blocking::is_blocking(verb) => blocking::now(call, request, out),
        _ => dispatch_streams(call, request, out),
    }
}

fn dispatch_streams(call: &Call<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    use stream::{claim, group, info};
    match request.command.verb {
        Verb::Xadd => stream::xadd(call, out),
        Verb::Xlen => stream::xlen(call, out),
        Verb::Xrange => stream::xrange(call, false, out),
        Verb::Xrevrange => stream::xrange(call, true, out),
        Verb::Xdel => stream::xdel(call, out),
        Verb::Xtrim => stream::xtrim(call, out),
        Verb::Xsetid => stream::xsetid(call, out),
        Verb::Xack => group::xack(call, out),
        Verb::Xpending => group::xpending(call, out),
        Verb::Xclaim => claim::xclaim(call, out),
        Verb::Xautoclaim => claim::xautoclaim(call, out),
        Verb::XgroupCreate => group::create(call, out),
        Verb::XgroupSetid => group::setid(call, out),
        Verb::XgroupDestroy => group::destroy(call, out),
        Verb::XgroupCreateconsumer => group::createconsumer(call, out),
        Verb::XgroupDelconsumer => group::delconsumer(call, out),
        Verb::XgroupHelp => group::help("xgroup", out),
        Verb::XinfoStream => info::stream(call, out),
        Verb::XinfoGroups => info::groups(call, out),
        Verb::XinfoConsumers => info::consumers(call, out),
        Verb::XinfoHelp => group::help("xinfo", out),
        _ => {
            let name = request.command.name;
            let text = format!("ERR command '{name}' is not supported by the embedded store yet");
            reply::error(out, &text);
            Ok(())
        }
    }
}
