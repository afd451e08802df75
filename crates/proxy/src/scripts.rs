//! Scripts and libraries of functions that clients loaded through Keyway,
//! kept to load them into servers that lack them: one that joined, was
//! restarted, or was emptied behind Keyway's back.
//!
//! One [`ScriptCache`] per pool, shared by all workers. A worker looks into it
//! when a connection first meets a script, not with every call.

use parking_lot::Mutex;
use sha1::{Digest as _, Sha1};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Scripts kept that were loaded with SCRIPT LOAD; one more is refused. Each
/// may have to be sent to every server.
const LOADED_MAX: usize = 10_000;

/// Bytes of scripts and libraries kept; more are refused. With smaller values
/// an application with many scripts would be turned away, with larger ones a
/// client that never stops loading takes the machine's memory.
const BYTES_MAX: usize = 64 << 20;

/// Scripts kept that were only seen in EVAL: the latest. As many as Redis
/// itself keeps of these.
const SEEN_MAX: usize = 500;

/// Longest script kept from EVAL, in bytes: all of them together stay small.
const SEEN_LEN_MAX: usize = 16 << 10;

/// Libraries kept; one more is refused.
const LIBRARIES_MAX: usize = 1_000;

/// The SHA-1 of a script: its name in EVALSHA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 20]);

impl Digest {
    /// The digest of a script's text.
    pub fn of(body: &[u8]) -> Self {
        Self(Sha1::digest(body).into())
    }

    /// The digest written as 40 hexadecimal digits in any case.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text: &[u8; 40] = text.try_into().ok()?;
        let mut bytes = [0; 20];
        for (byte, pair) in bytes.iter_mut().zip(text.as_chunks::<2>().0) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = (high << 4 | low) as u8;
        }
        Some(Self(bytes))
    }
}

/// There is no room for another script or library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheFull;

impl CacheFull {
    /// The error a client gets.
    pub const TEXT: &str = "ERR Keyway keeps as many scripts and functions of this pool as it may \
                            (10000 scripts, 1000 libraries, 64 MiB); SCRIPT FLUSH or FUNCTION \
                            FLUSH makes room";
}

/// What a pool's clients have loaded.
#[derive(Debug, Default)]
pub struct ScriptCache {
    inner: Mutex<Inner>,
    /// How often scripts were forgotten, to be read without the lock.
    losses: AtomicU64,
    /// Libraries there are, to be read without the lock.
    libraries: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inner {
    scripts: BTreeMap<Digest, Script>,
    /// Scripts only seen in EVAL, the oldest first.
    seen: VecDeque<Digest>,
    loaded: usize,
    libraries: BTreeMap<Vec<u8>, Arc<[u8]>>,
    bytes: usize,
}

#[derive(Debug)]
struct Script {
    body: Arc<[u8]>,
    is_loaded: bool,
}

impl ScriptCache {
    /// Whether another script or library of `len` bytes may be loaded.
    ///
    /// # Errors
    /// [`CacheFull`] when not.
    pub fn try_room(&self, len: usize) -> Result<(), CacheFull> {
        let inner = self.inner.lock();
        let has_room = inner.bytes + len <= BYTES_MAX
            && inner.loaded < LOADED_MAX
            && inner.libraries.len() < LIBRARIES_MAX;
        if has_room { Ok(()) } else { Err(CacheFull) }
    }

    /// Keeps a script that servers took with SCRIPT LOAD, until
    /// [`ScriptCache::forget_scripts`].
    pub fn load(&self, body: &[u8]) -> Digest {
        let digest = Digest::of(body);
        let mut inner = self.inner.lock();
        match inner.scripts.get_mut(&digest) {
            Some(script) if script.is_loaded => {}
            Some(script) => {
                script.is_loaded = true;
                inner.loaded += 1;
                inner.seen.retain(|seen| *seen != digest);
            }
            None => {
                inner.insert(digest, body, true);
                inner.loaded += 1;
            }
        }
        digest
    }

    /// Keeps a script seen in EVAL while it is among the latest.
    pub fn see(&self, body: &[u8]) -> Option<Digest> {
        if body.len() > SEEN_LEN_MAX {
            return None;
        }
        let digest = Digest::of(body);
        let mut inner = self.inner.lock();
        if !inner.scripts.contains_key(&digest) {
            if inner.seen.len() >= SEEN_MAX
                && let Some(oldest) = inner.seen.pop_front()
                && let Some(script) = inner.scripts.remove(&oldest)
            {
                inner.bytes -= script.body.len();
                self.losses.fetch_add(1, Ordering::Relaxed);
            }
            inner.insert(digest, body, false);
            inner.seen.push_back(digest);
        }
        Some(digest)
    }

    /// Grows whenever a script is forgotten: one shown before may not be here
    /// any more.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// The text of a script.
    pub fn script(&self, digest: &Digest) -> Option<Arc<[u8]>> {
        self.inner.lock().scripts.get(digest).map(|script| Arc::clone(&script.body))
    }

    /// Forgets every script.
    pub fn forget_scripts(&self) {
        let mut inner = self.inner.lock();
        inner.scripts.clear();
        self.losses.fetch_add(1, Ordering::Relaxed);
        inner.seen.clear();
        inner.loaded = 0;
        inner.bytes = inner.libraries.values().map(|code| code.len()).sum();
    }

    /// Keeps a library that servers took under `name`, in place of the one of
    /// that name.
    pub fn load_library(&self, name: &[u8], code: &[u8]) {
        let mut inner = self.inner.lock();
        inner.bytes += code.len();
        if let Some(old) = inner.libraries.insert(name.to_vec(), code.into()) {
            inner.bytes -= old.len();
        }
        self.libraries.store(inner.libraries.len(), Ordering::Relaxed);
    }

    /// Whether there is any library.
    pub fn has_libraries(&self) -> bool {
        self.libraries.load(Ordering::Relaxed) > 0
    }

    /// The text of every library.
    pub fn libraries(&self) -> Vec<Arc<[u8]>> {
        self.inner.lock().libraries.values().cloned().collect()
    }

    /// Forgets the library called `name`, or, without a name, all.
    pub fn forget_libraries(&self, name: Option<&[u8]>) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        inner.libraries.retain(|known, code| {
            let is_kept = name.is_some_and(|name| name != known.as_slice());
            if !is_kept {
                inner.bytes -= code.len();
            }
            is_kept
        });
        self.libraries.store(inner.libraries.len(), Ordering::Relaxed);
    }
}

impl Inner {
    fn insert(&mut self, digest: Digest, body: &[u8], is_loaded: bool) {
        self.bytes += body.len();
        self.scripts.insert(digest, Script { body: body.into(), is_loaded });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_name_redis_gives() {
        let digest = Digest::of(b"return 1");
        let text = b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        assert_eq!(Digest::parse(text), Some(digest));
        assert_eq!(Digest::parse(&text.to_ascii_uppercase()), Some(digest));
        for bad in [&text[1..], b"", b"x0e1f9fabfc9d4800c877a703b823ac0578ff8db"] {
            assert_eq!(Digest::parse(bad), None);
        }
    }

    #[test]
    fn what_was_loaded_stays_and_of_what_was_seen_the_latest() {
        let cache = ScriptCache::default();
        let body = |nth: usize| format!("return {nth}").into_bytes();
        let loaded = cache.load(&body(0));
        let promoted = cache.see(&body(1)).unwrap();
        assert_eq!(cache.load(&body(1)), promoted);
        let digests: Vec<_> = (2..SEEN_MAX + 3).map(|nth| cache.see(&body(nth)).unwrap()).collect();
        assert_eq!(cache.script(&digests[0]), None, "one too many");
        for digest in [loaded, promoted, digests[1], digests[SEEN_MAX]] {
            assert!(cache.script(&digest).is_some());
        }
        assert_eq!(cache.see(&vec![b' '; SEEN_LEN_MAX + 1]), None);
        cache.forget_scripts();
        assert_eq!(cache.script(&loaded), None);
        assert_eq!(cache.inner.lock().bytes, 0);
    }

    #[test]
    fn libraries_go_by_their_name() {
        let cache = ScriptCache::default();
        assert!(!cache.has_libraries());
        cache.load_library(b"a", b"old code");
        cache.load_library(b"a", b"new");
        cache.load_library(b"b", b"other");
        assert_eq!(cache.libraries().len(), 2);
        assert_eq!(cache.inner.lock().bytes, 8);
        cache.forget_libraries(Some(b"a"));
        assert_eq!(&*cache.libraries()[0], b"other");
        cache.forget_libraries(None);
        assert!(!cache.has_libraries());
        assert_eq!(cache.inner.lock().bytes, 0);
    }

    #[test]
    fn a_full_cache_takes_no_more() {
        let cache = ScriptCache::default();
        assert_eq!(cache.try_room(BYTES_MAX + 1), Err(CacheFull));
        for nth in 0..LOADED_MAX {
            assert_eq!(cache.try_room(8), Ok(()));
            cache.load(nth.to_string().as_bytes());
        }
        assert_eq!(cache.try_room(8), Err(CacheFull));
        cache.forget_scripts();
        assert_eq!(cache.try_room(8), Ok(()));
    }
}
