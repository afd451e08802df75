//! redis-benchmark's tests, by its names for them.

use super::{Command, CommandKind, Keys, Sizes, Workload, parse_template};
use crate::error::Error;

/// The tests, in redis-benchmark's order: name, and words. There is one key for all requests unless
/// a number of keys is asked for.
pub const SUITE: &[(&str, &str)] = &[
    ("ping_inline", ""),
    ("ping_mbulk", "PING"),
    ("set", "SET __key__ __data__"),
    ("get", "GET __key__"),
    ("incr", "INCR counter:__rand_int__"),
    ("lpush", "LPUSH mylist __data__"),
    ("rpush", "RPUSH mylist __data__"),
    ("lpop", "LPOP mylist"),
    ("rpop", "RPOP mylist"),
    ("sadd", "SADD myset element:__rand_int__"),
    ("hset", "HSET myhash element:__rand_int__ __data__"),
    ("spop", "SPOP myset"),
    ("zadd", "ZADD myzset 0 element:__rand_int__"),
    ("zpopmin", "ZPOPMIN myzset"),
    ("lrange_100", "LRANGE mylist 0 99"),
    ("lrange_300", "LRANGE mylist 0 299"),
    ("lrange_500", "LRANGE mylist 0 499"),
    ("lrange_600", "LRANGE mylist 0 599"),
    ("mset", ""),
    ("xadd", "XADD mystream * myfield __data__"),
];

/// Keys of redis-benchmark's MSET.
const MSET_KEYS: u32 = 10;

/// The tests of these names, in the order asked for. `ping` is both pings, `lrange` all four; a
/// list is filled before the first LRANGE, as redis-benchmark does.
///
/// # Errors
/// [`Error::Asked`] for a name that is none.
pub fn suite(names: &[String], keys: u64, value_len: u32) -> Result<Vec<Workload>, Error> {
    let mut chosen: Vec<&str> = Vec::new();
    for name in names.iter().map(String::as_str) {
        let group: Vec<&str> = match name {
            "ping" | "lrange" => {
                let all = SUITE.iter().map(|(known, _)| *known);
                all.filter(|known| known.starts_with(&format!("{name}_"))).collect()
            }
            _ => vec![name],
        };
        if group[0].starts_with("lrange_") && !chosen.iter().any(|one| one.starts_with("lrange")) {
            chosen.push("lrange_list");
        }
        chosen.extend(group);
    }
    chosen.into_iter().map(|name| test(name, keys, value_len)).collect()
}

fn test(name: &str, keys: u64, value_len: u32) -> Result<Workload, Error> {
    let words = match SUITE.iter().find(|(known, _)| *known == name) {
        Some((_, words)) => *words,
        None if name == "lrange_list" => "LPUSH mylist __data__",
        None => {
            let known = SUITE.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
            return Err(Error::asked(format!(
                "{name:?} is none of the suite's tests: {known} are"
            )));
        }
    };
    let kind = match name {
        "ping_inline" => CommandKind::Bytes(b"PING\r\n".to_vec()),
        "mset" => CommandKind::Mset(MSET_KEYS),
        _ => CommandKind::Words(words_of(words)?),
    };
    let command = Command { name: name.to_owned(), kind };
    let mut workload = Workload::new(name, vec![(command, 1)]);
    workload.keys = Keys::new(keys);
    workload.sizes = Sizes::Fixed(value_len);
    Ok(workload)
}

fn words_of(text: &str) -> Result<Vec<super::Word>, Error> {
    parse_template(text).map_err(|error| Error::asked(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_groups_become_tests() {
        let names = ["ping", "set", "lrange_600", "lrange"].map(str::to_owned);
        let all: Vec<String> =
            suite(&names, 1, 3).unwrap().into_iter().map(|one| one.name).collect();
        let expected = "ping_inline ping_mbulk set lrange_list lrange_600 lrange_100 lrange_300 \
            lrange_500 lrange_600";
        assert_eq!(all.join(" "), expected);
        assert!(suite(&["sett".to_owned()], 1, 3).is_err());
        for (name, _) in SUITE {
            suite(&[(*name).to_owned()], 1, 3).unwrap();
        }
    }
}
