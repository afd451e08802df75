//! Scripts and libraries of functions that clients loaded through Keyway. They are kept to load
//! them into servers that lack them: ones that joined, were restarted, or were emptied without
//! Keyway.
//!
//! There is one [`ScriptCache`] for each pool, shared by all workers. A worker uses it when a
//! connection needs a script for the first time, or when libraries have changed since the
//! connection got them, and not with every call.

use keyway_resp::reply;
use parking_lot::Mutex;
use sha1::{Digest as _, Sha1};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of scripts of SCRIPT LOAD that are kept. One more is refused. Each may have to be sent to
/// every server.
const LOADED_MAX: usize = 10_000;

/// Number of bytes of scripts that are kept. More are refused. With smaller values, an application
/// with many scripts would be refused. With larger ones, a client that never stops loading would
/// take the machine's memory.
const SCRIPTS_LEN_MAX: usize = 64 << 20;

/// Number of scripts only seen in EVAL that are kept: the latest. Redis itself keeps as many of
/// these.
const SEEN_MAX: usize = 500;

/// Length of the longest script that is kept from EVAL, in bytes. So all of them together stay
/// small.
const SEEN_LEN_MAX: usize = 16 << 10;

/// Number of libraries that are kept. One more is refused.
const LIBRARIES_MAX: usize = 1_000;

/// Number of bytes of libraries that are kept. More are refused. A connection gets all of them in
/// one piece, so the limit is lower than that of scripts.
pub(crate) const LIBRARIES_LEN_MAX: usize = 16 << 20;

/// The SHA-1 of a script, which is its name in EVALSHA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 20]);

impl Digest {
    /// Returns the digest of a script's text.
    pub fn of(body: &[u8]) -> Self {
        Self(Sha1::digest(body).into())
    }

    /// Parses 40 hexadecimal digits in any case.
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

    /// Appends the question whether a server has this script.
    pub fn ask_whether_known(&self, out: &mut Vec<u8>) {
        reply::array(out, 3);
        for word in [&b"SCRIPT"[..], b"EXISTS", self.hex().as_bytes()] {
            reply::bulk(out, word);
        }
    }

    /// Returns the form for EVALSHA.
    pub(crate) fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// There is no room for another script or library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheFull {
    /// There are too many scripts.
    Scripts,
    /// There are too many libraries.
    Libraries,
}

impl CacheFull {
    /// Returns the error for a client.
    pub fn text(self) -> &'static str {
        match self {
            Self::Scripts => {
                "ERR Keyway keeps as many scripts of this pool as it may (10000, of 64 MiB); \
                 SCRIPT FLUSH makes room"
            }
            Self::Libraries => {
                "ERR Keyway keeps as many libraries of this pool as it may (1000, of 16 MiB); \
                 FUNCTION DELETE or FUNCTION FLUSH makes room"
            }
        }
    }
}

/// The scripts and libraries that a pool's clients have loaded.
#[derive(Debug, Default)]
pub struct ScriptCache {
    inner: Mutex<Inner>,
    /// Counts removed scripts. It is read without the lock.
    losses: AtomicU64,
    /// Counts removals of all scripts. It is read without the lock.
    flushes: AtomicU64,
    /// Counts new and changed libraries. It is read without the lock.
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    scripts: BTreeMap<Digest, Script>,
    /// Scripts only seen in EVAL, with the oldest first.
    seen: VecDeque<Digest>,
    /// Number of loaded scripts.
    loaded: usize,
    /// Number of their bytes.
    loaded_len: usize,
    libraries: BTreeMap<Vec<u8>, Kept>,
    libraries_len: usize,
}

#[derive(Debug)]
struct Script {
    body: Arc<[u8]>,
    is_loaded: bool,
}

/// A library.
#[derive(Debug)]
struct Kept {
    code: Arc<[u8]>,
    /// The number of the change that added it.
    change: u64,
}

impl ScriptCache {
    /// Checks that this script may be loaded. One that is loaded already may be loaded again.
    ///
    /// # Errors
    /// Returns [`CacheFull`] if it may not.
    pub fn try_script(&self, body: &[u8]) -> Result<(), CacheFull> {
        let inner = self.inner.lock();
        let has_room =
            inner.loaded < LOADED_MAX && inner.loaded_len + body.len() <= SCRIPTS_LEN_MAX;
        let is_loaded = || inner.scripts.get(&Digest::of(body)).is_some_and(|it| it.is_loaded);
        if has_room || is_loaded() { Ok(()) } else { Err(CacheFull::Scripts) }
    }

    /// Checks that these libraries, by name and code, may be loaded in addition to the others or
    /// (`is_flush`) in their place. A known library takes the room of the one that it replaces.
    ///
    /// # Errors
    /// Returns [`CacheFull`] if they may not.
    pub fn try_libraries(
        &self,
        libraries: &[(Vec<u8>, Vec<u8>)],
        is_flush: bool,
    ) -> Result<(), CacheFull> {
        let inner = self.inner.lock();
        let (mut count, mut len) = match is_flush {
            true => (0, 0),
            false => (inner.libraries.len(), inner.libraries_len),
        };
        for (name, code) in libraries {
            match inner.libraries.get(name).filter(|_| !is_flush) {
                Some(old) => len -= old.code.len().min(len),
                None => count += 1,
            }
            len += code.len();
        }
        let is_known = || {
            let knows = |(name, code): &(Vec<u8>, Vec<u8>)| inner.knows(name, code);
            !is_flush && libraries.iter().all(knows)
        };
        let has_room = count <= LIBRARIES_MAX && len <= LIBRARIES_LEN_MAX;
        if has_room || is_known() { Ok(()) } else { Err(CacheFull::Libraries) }
    }

    /// Keeps a script that servers accepted with SCRIPT LOAD, until
    /// [`ScriptCache::forget_scripts`].
    pub fn load(&self, body: &[u8]) -> Digest {
        let digest = Digest::of(body);
        let mut inner = self.inner.lock();
        match inner.scripts.get_mut(&digest) {
            Some(script) if script.is_loaded => return digest,
            Some(script) => {
                script.is_loaded = true;
                inner.seen.retain(|seen| *seen != digest);
            }
            None => inner.insert(digest, body, true),
        }
        inner.loaded += 1;
        inner.loaded_len += body.len();
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
            {
                inner.scripts.remove(&oldest);
                self.losses.fetch_add(1, Ordering::Relaxed);
            }
            inner.insert(digest, body, false);
            inner.seen.push_back(digest);
        }
        Some(digest)
    }

    /// Returns a number that grows whenever a script is removed: one that was seen before may then
    /// be missing.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Returns the text of a script.
    pub fn script(&self, digest: &Digest) -> Option<Arc<[u8]>> {
        self.inner.lock().scripts.get(digest).map(|script| Arc::clone(&script.body))
    }

    /// Removes every script.
    pub fn forget_scripts(&self) {
        let mut inner = self.inner.lock();
        inner.scripts.clear();
        inner.seen.clear();
        (inner.loaded, inner.loaded_len) = (0, 0);
        self.losses.fetch_add(1, Ordering::Relaxed);
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that servers may have lost what they were given since the last call or
    /// [`ScriptCache::forget_scripts`].
    pub fn note_flushed(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a number that grows whenever a server may have lost what a connection was given.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// Keeps a library that servers accepted under `name`, and replaces the one with that name.
    pub fn load_library(&self, name: &[u8], code: &[u8]) {
        let mut inner = self.inner.lock();
        if inner.knows(name, code) {
            return;
        }
        let change = self.changes.fetch_add(1, Ordering::Relaxed) + 1;
        inner.libraries_len += code.len();
        if let Some(old) = inner.libraries.insert(name.to_vec(), Kept { code: code.into(), change })
        {
            inner.libraries_len -= old.code.len();
        }
    }

    /// Returns the number of changes of libraries. A connection with the libraries as of this
    /// number has them all.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns the text of every library that was added after the change with that number, and the
    /// number of the last change.
    pub fn libraries_since(&self, change: u64) -> (Vec<Arc<[u8]>>, u64) {
        let inner = self.inner.lock();
        let newer = inner.libraries.values().filter(|kept| kept.change > change);
        (newer.map(|kept| Arc::clone(&kept.code)).collect(), self.changes())
    }

    /// Notes that servers may have lost all libraries so far.
    pub fn renew_libraries(&self) {
        let mut inner = self.inner.lock();
        if inner.libraries.is_empty() {
            return;
        }
        let change = self.changes.fetch_add(1, Ordering::Relaxed) + 1;
        inner.libraries.values_mut().for_each(|kept| kept.change = change);
    }

    /// Removes the library `name`, or, without a name, all.
    pub fn forget_libraries(&self, name: Option<&[u8]>) {
        let mut inner = self.inner.lock();
        let Some(name) = name else {
            inner.libraries.clear();
            inner.libraries_len = 0;
            return;
        };
        if let Some(old) = inner.libraries.remove(name) {
            inner.libraries_len -= old.code.len();
        }
    }
}

impl Inner {
    fn insert(&mut self, digest: Digest, body: &[u8], is_loaded: bool) {
        self.scripts.insert(digest, Script { body: body.into(), is_loaded });
    }

    fn knows(&self, name: &[u8], code: &[u8]) -> bool {
        self.libraries.get(name).is_some_and(|kept| *kept.code == *code)
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
        let flushes = cache.flushes();
        cache.forget_scripts();
        assert_eq!(cache.script(&loaded), None);
        assert!(cache.flushes() > flushes);
        assert_eq!(cache.inner.lock().loaded_len, 0);
    }

    #[test]
    fn libraries_go_by_their_name() {
        let cache = ScriptCache::default();
        assert_eq!(cache.changes(), 0);
        cache.load_library(b"a", b"old code");
        cache.load_library(b"a", b"new");
        cache.load_library(b"b", b"other");
        assert_eq!(cache.libraries_since(0).0.len(), 2);
        assert_eq!(cache.inner.lock().libraries_len, 8);
        cache.forget_libraries(Some(b"a"));
        assert_eq!(&*cache.libraries_since(0).0[0], b"other");
        cache.forget_libraries(None);
        assert_eq!(cache.libraries_since(0).0.len(), 0);
        assert_eq!(cache.inner.lock().libraries_len, 0);
    }

    #[test]
    fn who_has_the_libraries_gets_only_what_came_since() {
        let cache = ScriptCache::default();
        cache.load_library(b"a", b"1");
        let (all, change) = cache.libraries_since(0);
        assert_eq!((all.len(), change), (1, cache.changes()));
        cache.load_library(b"a", b"1");
        assert_eq!(cache.changes(), change, "it is the same");
        cache.load_library(b"b", b"2");
        let (newer, change) = cache.libraries_since(change);
        assert_eq!((newer.len(), &*newer[0]), (1, &b"2"[..]));
        assert_eq!(cache.libraries_since(change).0.len(), 0);
        // A library that was removed and loaded again is new.
        cache.forget_libraries(Some(b"a"));
        assert_eq!(cache.changes(), change);
        cache.load_library(b"a", b"1");
        let (newer, change) = cache.libraries_since(change);
        assert_eq!(newer.len(), 1);
        cache.renew_libraries();
        assert_eq!(cache.libraries_since(change).0.len(), 2);
    }

    fn numbered(nth: usize, code: &str) -> (Vec<u8>, Vec<u8>) {
        (nth.to_string().into_bytes(), code.as_bytes().to_vec())
    }

    #[test]
    fn a_full_cache_takes_what_it_has_and_no_more() {
        let cache = ScriptCache::default();
        assert_eq!(cache.try_script(&vec![b' '; SCRIPTS_LEN_MAX + 1]), Err(CacheFull::Scripts));
        let body = |nth: usize| format!("return {nth}").into_bytes();
        for nth in 0..LOADED_MAX {
            assert_eq!(cache.try_script(&body(nth)), Ok(()));
            cache.load(&body(nth));
        }
        cache.see(b"return 'seen'").unwrap();
        assert_eq!(cache.try_script(b"return 'seen'"), Err(CacheFull::Scripts), "never loaded");
        assert_eq!(cache.try_script(&body(LOADED_MAX)), Err(CacheFull::Scripts));
        assert_eq!(cache.try_script(&body(7)), Ok(()), "it is known");
        // Libraries have a separate limit.
        for nth in 0..LIBRARIES_MAX {
            assert_eq!(cache.try_libraries(&[numbered(nth, "code")], false), Ok(()));
            cache.load_library(nth.to_string().as_bytes(), b"code");
        }
        let another = [numbered(LIBRARIES_MAX, "code")];
        assert_eq!(cache.try_libraries(&another, false), Err(CacheFull::Libraries));
        assert_eq!(cache.try_libraries(&another, true), Ok(()), "in place of all");
        assert_eq!(cache.try_libraries(&[numbered(7, "changed")], false), Ok(()));
        let huge = [(b"7".to_vec(), vec![b' '; LIBRARIES_LEN_MAX])];
        assert_eq!(cache.try_libraries(&huge, false), Err(CacheFull::Libraries));
        cache.forget_scripts();
        assert_eq!(cache.try_script(&body(LOADED_MAX)), Ok(()));
        cache.forget_libraries(Some(b"7"));
        assert_eq!(cache.try_libraries(&another, false), Ok(()));
    }
}
