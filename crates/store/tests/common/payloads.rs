//! Payloads of DUMP, asked of a store and of a real server.

use super::redis::{Redis, unix_millis};
use super::{Reply, clock_at, execute};
use keyway_store::{Store, StoreConfig};

pub type Words = Vec<Vec<u8>>;

pub fn store() -> Store {
    Store::new(StoreConfig { shards: Some(4), ..StoreConfig::default() })
}

pub fn ours(store: &Store, words: &[Vec<u8>]) -> Reply {
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let mut out = Vec::new();
    execute(store, 0, clock_at(unix_millis()), &words, &mut out);
    Reply::read(&mut &out[..])
}

pub fn theirs(redis: &mut Redis, words: &[Vec<u8>]) -> Reply {
    redis.send(&[words.to_vec()]);
    let mut reply = Vec::new();
    redis.read_reply(&mut reply);
    Reply::read(&mut &reply[..])
}

pub fn payload_of(reply: &Reply) -> Vec<u8> {
    let Reply::Bulk(Some(payload)) = reply else { panic!("no payload: {reply:?}") };
    payload.clone()
}

pub fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}
