//! Snapshots as bytes, and all that a store holds, to be compared.

use super::{Reply, clock_at, context_of, execute_in};
use keyway_store::{Context, LoadError, Loading, Progress, Saving, Store};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that a snapshot may hold in tests.
pub const BUFFER: u64 = 64 << 20;

/// Lets snapshots be made of a store.
pub fn enable(store: &Store, millis: u64) {
    store.enable_snapshots(BUFFER, clock_at(millis), || {});
}

/// Begins a snapshot of this moment.
pub fn begin(store: &Arc<Store>, millis: u64) -> Saving {
    let clock = clock_at(millis);
    assert_eq!(store.begin_snapshot(millis, false), Ok(false));
    store.take_snapshot(clock).expect("a snapshot that was begun")
}

/// Takes the next bytes of a snapshot; whether there may be more.
pub fn step(saving: &mut Saving, millis: u64, file: &mut Vec<u8>) -> bool {
    match saving.next(clock_at(millis), &mut Vec::new).expect("room in the buffer") {
        Some(Progress::Batch(batch)) => {
            batch.parts().for_each(|part| file.extend_from_slice(part));
            true
        }
        Some(Progress::Wait) => true,
        None => false,
    }
}

/// The rest of a snapshot.
pub fn finish(mut saving: Saving, millis: u64, file: &mut Vec<u8>) {
    while step(&mut saving, millis, file) {}
    assert_eq!(saving.len(), file.len() as u64);
    saving.commit(clock_at(millis));
}

/// A store's whole snapshot.
pub fn save(store: &Arc<Store>, millis: u64) -> Vec<u8> {
    enable(store, millis);
    let mut file = Vec::new();
    finish(begin(store, millis), millis, &mut file);
    file
}

/// Fills a store from a file, which comes in pieces of so many bytes.
pub fn load(
    store: &Arc<Store>,
    millis: u64,
    file: &[u8],
    piece: usize,
) -> Result<(u64, u64), LoadError> {
    let mut loading = Loading::new(store);
    for piece in file.chunks(piece) {
        loading.feed(piece, clock_at(millis), &mut |_| Ok(()))?;
    }
    loading.finish()
}

/// Everything that clients can tell of a value, in a form that does not depend on how it lies in
/// memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    expiry: i64,
    kind: String,
    value: Vec<Reply>,
}

impl Known {
    /// When it expires, -1 for never.
    pub fn expiry(&self) -> i64 {
        self.expiry
    }
}

/// The contents of a store, by database and key.
pub type Contents = BTreeMap<(u32, Vec<u8>), Known>;

fn ask(store: &Store, context: Context, words: &[&[u8]]) -> Reply {
    let mut out = Vec::new();
    execute_in(store, context, words, &mut out);
    Reply::read(&mut &out[..])
}

fn sorted(reply: Reply, width: usize) -> Vec<Reply> {
    let Reply::Array(Some(elements)) = reply else { panic!("no array: {reply:?}") };
    let mut groups: Vec<Vec<Reply>> = elements.chunks(width).map(<[Reply]>::to_vec).collect();
    groups.sort();
    groups.into_iter().flatten().collect()
}

fn value_of(store: &Store, context: Context, key: &[u8], kind: &str) -> Vec<Reply> {
    let ask = |words: &[&[u8]]| ask(store, context, words);
    match kind {
        "string" => vec![ask(&[b"GET", key])],
        "list" => vec![ask(&[b"LRANGE", key, b"0", b"-1"])],
        "set" => sorted(ask(&[b"SMEMBERS", key]), 1),
        "zset" => vec![ask(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"])],
        "hash" => {
            let pairs = sorted(ask(&[b"HGETALL", key]), 2);
            let mut words: Vec<Vec<u8>> = vec![b"HPEXPIRETIME".to_vec(), key.to_vec()];
            words.push(b"FIELDS".to_vec());
            words.push((pairs.len() / 2).to_string().into_bytes());
            let fields = pairs.iter().step_by(2);
            words.extend(fields.map(|field| match field {
                Reply::Bulk(Some(field)) => field.clone(),
                other => panic!("no field: {other:?}"),
            }));
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let times = ask(&words);
            pairs.into_iter().chain([times]).collect()
        }
        "stream" => {
            let full = ask(&[b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"]);
            let Reply::Array(Some(mut full)) = full else { panic!("no stream: {full:?}") };
            // The encoding in memory may differ.
            let radix = |reply: &Reply| match reply {
                Reply::Bulk(Some(name)) => name.starts_with(b"radix-tree"),
                _ => false,
            };
            while let Some(at) = full.iter().position(radix) {
                full.drain(at..at + 2);
            }
            full
        }
        other => panic!("no such type: {other}"),
    }
}

/// All that is in a store.
pub fn contents(store: &Store, databases: u32, millis: u64) -> Contents {
    let mut all = Contents::new();
    for database in 0..databases {
        let context = Context { database, ..context_of(0, millis) };
        for key in ask(store, context, &[b"KEYS", b"*"]).strings() {
            let Reply::Simple(kind) = ask(store, context, &[b"TYPE", &key]) else {
                panic!("no type")
            };
            let expiry = ask(store, context, &[b"PEXPIRETIME", &key]).integer();
            if kind == "none" {
                continue;
            }
            let value = value_of(store, context, &key, &kind);
            all.insert((database, key), Known { expiry, kind, value });
        }
    }
    all
}
