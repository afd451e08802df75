//! Random operations on a target and on a real server, reply by reply.

use super::{Target, fresh_tag};
use crate::client::Client;
use crate::random::Random;
use crate::value::Value;

/// What operations are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The string commands, and the key commands that one string key takes.
    Strings,
}

/// Words a template is filled with: `K` a key, `I` an index, `N` a number,
/// `V` a value, `F` a float, `B` a bit offset, `T` a time that never passes.
const TEMPLATES: &[&str] = &[
    "SET K V",
    "SET K N",
    "SET K V NX",
    "SET K V XX",
    "SET K V GET",
    "SET K V KEEPTTL",
    "SET K V EXAT T",
    "SET K N PXAT T000",
    "GET K",
    "GET K",
    "GETSET K V",
    "GETDEL K",
    "GETEX K PERSIST",
    "GETEX K EXAT T",
    "SETNX K V",
    "APPEND K V",
    "STRLEN K",
    "INCR K",
    "DECR K",
    "INCRBY K N",
    "DECRBY K N",
    "INCRBYFLOAT K F",
    "SETRANGE K I V",
    "GETRANGE K I I",
    "SUBSTR K I I",
    "SETBIT K B 1",
    "SETBIT K B 0",
    "GETBIT K B",
    "BITCOUNT K",
    "BITCOUNT K I I",
    "BITCOUNT K I I BIT",
    "BITPOS K 1",
    "BITPOS K 0 I",
    "BITPOS K 1 I I",
    "BITPOS K 0 I I BIT",
    "BITOP AND K K K",
    "BITOP OR K K K",
    "BITOP XOR K K",
    "BITOP NOT K K",
    "BITFIELD K GET u5 B",
    "BITFIELD K SET i13 B N",
    "BITFIELD K INCRBY u7 B I",
    "BITFIELD K OVERFLOW SAT INCRBY i9 B N",
    "BITFIELD K OVERFLOW FAIL INCRBY u3 #1 I",
    "MSET K V K V",
    "MSETNX K V K V",
    "MGET K K K",
    "LCS K K LEN",
    "LCS K K",
    "DEL K",
    "DEL K K",
    "UNLINK K",
    "EXISTS K K",
    "TOUCH K K",
    "TYPE K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K",
    "COPY K K REPLACE",
    "OBJECT ENCODING K",
    "EXPIREAT K T",
    "EXPIREAT K T NX",
    "EXPIREAT K T XX",
    "EXPIREAT K T GT",
    "EXPIREAT K T LT",
    "PEXPIREAT K T123",
    "EXPIRE K -1",
    "PERSIST K",
    "EXPIRETIME K",
    "PEXPIRETIME K",
];

/// Plays `count` operations of `family` drawn from `seed` on `target` and on
/// `reference` and compares every reply, errors' texts too. Keys share a hash
/// tag, so a sharded target keeps them on one shard. Operations go out in
/// pipelines of random depth.
///
/// # Panics
/// At the first difference, with the seed and the operations on that key set.
pub fn differential(target: &Target, reference: &Target, family: Family, seed: u64, count: usize) {
    let Family::Strings = family;
    let mut random = Random::new(seed);
    let tag = fresh_tag();
    let (mut ours, mut theirs) = (target.client(), reference.client());
    let mut history: Vec<String> = Vec::new();
    let mut done = 0;
    while done < count {
        let depth = 1 + random.below(40);
        let batch: Vec<Vec<Vec<u8>>> = (0..depth).map(|_| operation(&mut random, &tag)).collect();
        let bytes: Vec<u8> = batch.iter().flat_map(|one| crate::client::encode(one)).collect();
        ours.send(&bytes);
        theirs.send(&bytes);
        for one in &batch {
            history.push(show(one));
            compare(&mut ours, &mut theirs, &history, &target.name, seed);
        }
        done += depth;
    }
}

fn compare(ours: &mut Client, theirs: &mut Client, history: &[String], name: &str, seed: u64) {
    let (got, wanted): (Value, Value) = (ours.reply(), theirs.reply());
    if got != wanted {
        let from = history.len().saturating_sub(30);
        panic!(
            "{name} differs from the real server (seed {seed})\n got    {got:?}\n wanted {wanted:?}\n \
             last operations:\n  {}",
            history[from..].join("\n  ")
        );
    }
}

fn operation(random: &mut Random, tag: &str) -> Vec<Vec<u8>> {
    random.pick(TEMPLATES).split(' ').map(|word| fill(word, random, tag)).collect()
}

fn fill(word: &str, random: &mut Random, tag: &str) -> Vec<u8> {
    match word {
        "K" => format!("{{{tag}}}{}", random.below(6)).into_bytes(),
        "I" => (random.below(24) as i64 - 12).to_string().into_bytes(),
        "N" => number(random).to_string().into_bytes(),
        "F" => (*random.pick(&["0.5", "-1.25", "3", "1e3", "0.1", "x", "-2.5e-3", ""])).into(),
        "B" => random.below(80).to_string().into_bytes(),
        "V" => value(random),
        _ => match word.strip_prefix('T') {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                format!("{}{digits}", 4_102_444_800_u64 + random.below(1000) as u64).into_bytes()
            }
            _ => word.as_bytes().to_vec(),
        },
    }
}

fn number(random: &mut Random) -> i64 {
    match random.below(8) {
        0 => i64::MAX - random.below(3) as i64,
        1 => i64::MIN + random.below(3) as i64,
        2 => random.next_u64() as i64,
        _ => random.below(200) as i64 - 100,
    }
}

fn value(random: &mut Random) -> Vec<u8> {
    match random.below(6) {
        0 => number(random).to_string().into_bytes(),
        1 => Vec::new(),
        2 => {
            let length = 1 + random.below(100);
            random.bytes(length)
        }
        3 => b"mytextandyours"[random.below(10)..].to_vec(),
        4 => vec![*random.pick(&[0_u8, 0xFF, b'a']); random.below(70)],
        _ => format!("v{}", random.below(1000)).into_bytes(),
    }
}

fn show(words: &[Vec<u8>]) -> String {
    words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisServer;

    #[test]
    fn two_real_servers_never_differ() {
        let (one, two) = (RedisServer::start(), RedisServer::start());
        let target = |server: &RedisServer| Target::new("redis", server.address(), &[]);
        differential(&target(&one), &target(&two), Family::Strings, 1, 5_000);
    }
}
