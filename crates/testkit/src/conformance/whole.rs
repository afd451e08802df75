//! Cases that are code: sizes, binary keys, depth, every split point.

use std::time::Duration;

use super::{Target, fresh_tag};
use crate::client::{Client, encode, encode_words};
use crate::random::Random;
use crate::value::Value;

/// Plays them all.
///
/// # Panics
/// At the first wrong reply.
pub fn whole(target: &Target) {
    values_of_every_size_come_back(target);
    keys_of_any_bytes(target);
    a_pipeline_cut_at_every_byte(target);
    a_deep_pipeline_keeps_its_order(target);
    many_clients_do_not_mix(target);
    a_big_value_cut_into_small_writes(target);
    a_reply_follows_a_half_closed_client(target);
}

/// Sizes around every buffer a server might use, up to 8 MB.
fn values_of_every_size_come_back(target: &Target) {
    let mut client = target.client();
    let tag = fresh_tag();
    let mut random = Random::new(7);
    let around = |size: usize| [size - 1, size, size + 1];
    let mut sizes: Vec<usize> = vec![0, 1, 63, 64];
    for power in [8, 10, 12, 14, 16, 18, 20] {
        sizes.extend(around(1 << power));
    }
    sizes.push(8 << 20);
    for size in sizes {
        let key = format!("{tag}:{size}");
        let value = random.bytes(size);
        assert_eq!(
            client.command(&[b"SET", key.as_bytes(), &value]),
            Value::simple("OK"),
            "{size}"
        );
        assert!(
            client.command(&["GET", &key]) == Value::Bulk(value),
            "{size} bytes came back changed"
        );
        assert_eq!(client.command(&["STRLEN", &key]), Value::Integer(size as i64));
        assert_eq!(client.command(&["DEL", &key]), Value::Integer(1));
    }
}

fn keys_of_any_bytes(target: &Target) {
    let mut client = target.client();
    let tag = fresh_tag().into_bytes();
    let mut random = Random::new(11);
    let mut keys: Vec<Vec<u8>> = (0..=255_u8).map(|byte| [&tag[..], &[byte]].concat()).collect();
    for size in [100, 1000, 20_000, 100_000] {
        keys.push([&tag[..], &random.bytes(size)].concat());
    }
    for (index, key) in keys.iter().enumerate() {
        let set = client.command(&[b"SET", &key[..], index.to_string().as_bytes()]);
        assert_eq!(set, Value::simple("OK"), "key {}", key[..key.len().min(80)].escape_ascii());
    }
    for (index, key) in keys.iter().enumerate() {
        assert_eq!(client.command(&[b"GET", &key[..]]), Value::bulk(index.to_string()));
        assert_eq!(client.command(&[b"DEL", &key[..]]), Value::Integer(1));
    }
}

/// The same pipeline in two writes, for every cut there is, with the server
/// made to look in between.
fn a_pipeline_cut_at_every_byte(target: &Target) {
    let tag = fresh_tag();
    let key = format!("{{{tag}}}k");
    let mut bytes = encode(&["SET", &key, "a\r\nb"]);
    bytes.extend(encode(&["GET", &key]));
    bytes.extend(b"PING\r\n");
    bytes.extend(encode(&["MGET", &key, &format!("{{{tag}}}none")]));
    bytes.extend(encode(&["NOSUCH", "x"]));
    bytes.extend(encode(&["DEL", &key]));
    let mut witness = target.client();
    let mut client = target.client();
    client.send(&bytes);
    let wanted = client.replies(6);
    for cut in 1..bytes.len() {
        client.send(&bytes[..cut]);
        assert_eq!(witness.words("PING"), Value::simple("PONG"));
        client.send(&bytes[cut..]);
        assert_eq!(client.replies(6), wanted, "cut at {cut}");
    }
}

fn a_deep_pipeline_keeps_its_order(target: &Target) {
    const DEPTH: usize = 20_000;
    let tag = fresh_tag();
    let mut client = target.client();
    let mut bytes = Vec::new();
    for nth in 0..DEPTH {
        match nth % 4 {
            0 => bytes.extend(encode(&["SET", &format!("{tag}:{nth}"), &nth.to_string()])),
            1 => bytes.extend(encode(&["GET", &format!("{tag}:{}", nth - 1)])),
            2 => bytes.extend(encode(&["ECHO", &nth.to_string()])),
            _ => bytes.extend(encode(&["DEL", &format!("{tag}:{}", nth - 3)])),
        }
    }
    let mut writer = client.writer();
    let sending = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &bytes));
    for nth in 0..DEPTH {
        let wanted = match nth % 4 {
            0 => Value::simple("OK"),
            1 => Value::bulk((nth - 1).to_string()),
            2 => Value::bulk(nth.to_string()),
            _ => Value::Integer(1),
        };
        assert_eq!(client.reply(), wanted, "reply {nth}");
    }
    sending.join().expect("the writer").expect("all requests sent");
}

/// Sixty-four clients with keys of their own, served at once.
fn many_clients_do_not_mix(target: &Target) {
    const CLIENTS: usize = 64;
    const ROUNDS: usize = 50;
    let tag = fresh_tag();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| target.client()).collect();
    for round in 0..ROUNDS {
        for (nth, client) in clients.iter_mut().enumerate() {
            let key = format!("{tag}:{nth}");
            let mut bytes = encode(&["SET", &key, &format!("{nth}-{round}")]);
            bytes.extend(encode(&["GET", &key]));
            client.send(&bytes);
        }
        for (nth, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.reply(), Value::simple("OK"));
            assert_eq!(client.reply(), Value::bulk(format!("{nth}-{round}")), "client {nth}");
        }
    }
}

fn a_big_value_cut_into_small_writes(target: &Target) {
    let key = fresh_tag();
    let value = Random::new(3).bytes(1 << 20);
    let mut client = target.client();
    let mut random = Random::new(5);
    let mut rest = &encode(&[b"SET", key.as_bytes(), &value])[..];
    while !rest.is_empty() {
        let length = (1 + random.below(9_000)).min(rest.len());
        client.send(&rest[..length]);
        rest = &rest[length..];
    }
    assert_eq!(client.reply(), Value::simple("OK"));
    assert!(client.command(&["GET", &key]) == Value::Bulk(value), "1 MB came back changed");
    assert_eq!(client.command(&["DEL", &key]), Value::Integer(1));
}

fn a_reply_follows_a_half_closed_client(target: &Target) {
    let key = fresh_tag();
    let mut client = target.client();
    let mut bytes = encode_words("PING");
    bytes.extend(encode(&["SET", &key, "1"]));
    bytes.extend(encode(&["DEL", &key]));
    client.send(&bytes);
    // Redis itself drops what it has not answered when it reads the end, so
    // the end is sent only once the last reply is on its way.
    let replies = client.replies(3);
    client.close_write();
    assert_eq!(replies, [Value::simple("PONG"), Value::simple("OK"), Value::Integer(1)]);
    client.expect_closed();
}

/// A value of 512 MB, the largest there is, in and out. Needs about 3 GB of
/// memory over all processes; for a test of its own.
///
/// # Panics
/// When it comes back changed.
pub fn half_gigabyte_value(target: &Target) {
    const SIZE: usize = 512 << 20;
    let key = fresh_tag();
    let mut client = target.client();
    client.set_reply_within(Duration::from_secs(120));
    let block = Random::new(13).bytes(1 << 20);
    client.send(format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${SIZE}\r\n", key.len()).as_bytes());
    for _ in 0..SIZE / block.len() {
        client.send(&block);
    }
    client.send(b"\r\n");
    assert_eq!(client.reply(), Value::simple("OK"));
    assert_eq!(client.command(&["STRLEN", &key]), Value::Integer(SIZE as i64));
    match client.command(&["GET", &key]) {
        Value::Bulk(bytes) => {
            assert_eq!(bytes.len(), SIZE);
            assert!(bytes.chunks(block.len()).all(|chunk| chunk == block), "changed on the way");
        }
        other => panic!("not a bulk: {other:?}"),
    }
    assert_eq!(client.command(&["DEL", &key]), Value::Integer(1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisServer;

    #[test]
    fn the_real_server_passes_them_all() {
        let server = RedisServer::start();
        whole(&Target::new("redis", server.address(), &[]));
    }

    #[test]
    fn the_real_server_takes_half_a_gigabyte() {
        if crate::memory_available_bytes() < 6 << 30 {
            crate::skipped("a value of 512 MB: less than 6 GiB of memory available");
            return;
        }
        let server = RedisServer::start();
        half_gigabyte_value(&Target::new("redis", server.address(), &[]));
    }
}
