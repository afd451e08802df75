use crate::ends::{Kill, Run};
use crate::flags::{self, ScriptFlags};
use crate::libraries::{Library, Policy};
use crate::totals::{ScriptTotals, Totals};
use keyway_base::Time;
use parking_lot::Mutex;
use sha1::{Digest as _, Sha1};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of bytes of scripts of SCRIPT LOAD that are kept. With less, an application with many
/// scripts would be refused. With more, a client that never stops loading would take the machine's
/// memory.
const SCRIPTS_LEN_MAX: usize = 64 << 20;

/// Number of scripts of SCRIPT LOAD that are kept.
const SCRIPTS_MAX: usize = 10_000;

/// Number and bytes of scripts from EVAL for which there is always room, however many are loaded.
/// So EVALSHA finds what EVAL has just sent.
const SEEN_MAX: usize = 500;
const SEEN_LEN_MAX: usize = 4 << 20;

/// Number of bytes that a kept script takes besides its text.
const SCRIPT_OVERHEAD: usize = 192;

/// The limits of scripts.
#[derive(Clone, Copy, Debug)]
pub struct ScriptLimits {
    /// How long a script may run.
    pub time_max: Duration,
    /// How long other requests wait for what a script holds. After that they are refused.
    pub busy_after: Duration,
    /// Bytes of Lua's memory in each worker, including garbage.
    pub memory_max: usize,
    /// Largest length of a reply in bytes.
    pub reply_len_max: usize,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self {
            time_max: Duration::from_secs(5),
            busy_after: Duration::from_secs(1),
            memory_max: 64 << 20,
            reply_len_max: 512 << 20,
        }
    }
}

/// The name of a script in EVALSHA: 40 hexadecimal digits in lower case.
pub type Name = [u8; 40];

/// Returns the name of a script with this text.
pub fn digest_of(body: &[u8]) -> Name {
    let mut name = [0; 40];
    for (pair, byte) in name.as_chunks_mut::<2>().0.iter_mut().zip(Sha1::digest(body)) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    name
}

/// There is no room for another script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheFull;

impl CacheFull {
    /// The error for a client.
    pub const TEXT: &'static str = "ERR Keyway keeps as many scripts of this pool as it may \
                                    (10000, of 64 MiB); SCRIPT FLUSH makes room";
}

/// A kept script.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) body: Arc<[u8]>,
    pub(crate) flags: ScriptFlags,
    /// Index at which its text begins, after the line of its flags.
    pub(crate) start: usize,
    is_loaded: bool,
}

#[derive(Debug, Default)]
struct Scripts {
    by_name: BTreeMap<Name, Kept>,
    /// Scripts only from EVAL, the oldest first.
    seen: VecDeque<Name>,
    /// Number of bytes of all scripts, and of those that are loaded.
    len: usize,
    loaded_len: usize,
}

impl Scripts {
    /// Returns whether one more script of `len` bytes may be loaded.
    fn may_load(&self, len: usize) -> bool {
        let loaded = self.by_name.len() - self.seen.len();
        loaded < SCRIPTS_MAX && self.loaded_len + len <= SCRIPTS_LEN_MAX
    }

    fn is_full(&self) -> bool {
        self.by_name.len() > SCRIPTS_MAX + SEEN_MAX || self.len > SCRIPTS_LEN_MAX + SEEN_LEN_MAX
    }

    /// Removes scripts that are only from EVAL, the oldest first, until the others fit. Workers may
    /// keep what they have compiled of them: what they keep is bounded, and a name always belongs
    /// to the same text.
    fn make_room(&mut self) {
        while self.is_full() {
            let Some(oldest) = self.seen.pop_front() else { return };
            if let Some(old) = self.by_name.remove(&oldest) {
                self.len -= old.body.len() + SCRIPT_OVERHEAD;
            }
        }
    }
}

/// What a pool's clients have loaded, and the script that runs. All workers share it.
#[derive(Debug)]
pub struct Registry {
    limits: ScriptLimits,
    /// Measures how long a script runs.
    clock: fn() -> Time,
    scripts: Mutex<Scripts>,
    /// Counts how often all scripts were removed. Workers must then discard what they have compiled
    /// before.
    epoch: AtomicU64,
    /// What runs now: one script or function, and in addition loads of libraries.
    running: Mutex<Vec<Arc<Run>>>,
    pub(crate) libraries: crate::libraries::Libraries,
    pub(crate) totals: Totals,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new(ScriptLimits::default(), || Time(0))
    }
}

impl Registry {
    /// Creates an empty registry. `clock` is monotonic. If it stands still, no script runs for too
    /// long.
    pub fn new(limits: ScriptLimits, clock: fn() -> Time) -> Self {
        Self {
            limits,
            clock,
            scripts: Mutex::default(),
            epoch: AtomicU64::new(0),
            running: Mutex::default(),
            libraries: crate::libraries::Libraries::default(),
            totals: Totals::default(),
        }
    }

    pub(crate) fn clock(&self) -> fn() -> Time {
        self.clock
    }

    /// Returns the limits of scripts.
    pub fn limits(&self) -> &ScriptLimits {
        &self.limits
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Keeps a script: one of SCRIPT LOAD until [`Registry::flush`], one of EVAL for as long as
    /// there is room, and at least until some hundred others were seen, unless it is very long.
    ///
    /// # Errors
    /// Returns [`CacheFull`] if there is no room for a script of SCRIPT LOAD.
    pub(crate) fn keep(
        &self,
        (name, body): (Name, &Arc<[u8]>),
        (flags, start): (ScriptFlags, usize),
        is_loaded: bool,
    ) -> Result<(), CacheFull> {
        let scripts = &mut *self.scripts.lock();
        let len = body.len() + SCRIPT_OVERHEAD;
        let may_load = scripts.may_load(len);
        if let Some(kept) = scripts.by_name.get_mut(&name) {
            if is_loaded && !kept.is_loaded {
                if !may_load {
                    return Err(CacheFull);
                }
                kept.is_loaded = true;
                scripts.loaded_len += len;
                scripts.seen.retain(|seen| *seen != name);
            }
            return Ok(());
        }
        if is_loaded && !may_load {
            return Err(CacheFull);
        }
        scripts.len += len;
        scripts.by_name.insert(name, Kept { body: Arc::clone(body), flags, start, is_loaded });
        match is_loaded {
            true => scripts.loaded_len += len,
            false => scripts.seen.push_back(name),
        }
        scripts.make_room();
        Ok(())
    }

    pub(crate) fn script(&self, name: &Name) -> Option<Kept> {
        self.scripts.lock().by_name.get(name).cloned()
    }

    /// Returns whether there is a script of this name, with digits of any case.
    pub fn has(&self, name: &[u8]) -> bool {
        let name: Result<Name, _> = name.to_ascii_lowercase().try_into();
        name.is_ok_and(|name| self.scripts.lock().by_name.contains_key(&name))
    }

    /// Removes every script.
    pub fn flush(&self) {
        *self.scripts.lock() = Scripts::default();
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the text of every script that clients have loaded, and of those from EVAL; true for
    /// the former.
    pub fn bodies(&self) -> Vec<(Arc<[u8]>, bool)> {
        let scripts = self.scripts.lock();
        let all = scripts.by_name.values();
        all.map(|kept| (Arc::clone(&kept.body), kept.is_loaded)).collect()
    }

    /// Returns the number of kept scripts, and the bytes that they take.
    pub fn kept(&self) -> (usize, usize) {
        let scripts = self.scripts.lock();
        (scripts.by_name.len(), scripts.len)
    }

    /// Returns when a run that begins now must be over.
    pub(crate) fn deadline(&self) -> Time {
        (self.clock)() + self.limits.time_max
    }

    /// Notes what runs now.
    pub(crate) fn begin(&self, run: &Arc<Run>) {
        self.running.lock().push(Arc::clone(run));
    }

    pub(crate) fn end(&self, run: &Arc<Run>) {
        self.running.lock().retain(|one| !Arc::ptr_eq(one, run));
    }

    /// Ends the script that runs now, or the function or load of functions.
    pub fn kill(&self, is_function: bool) -> Kill {
        let running = self.running.lock();
        let killed = running.iter().map(|run| run.kill(is_function)).max();
        killed.unwrap_or(Kill::NotBusy)
    }

    /// Ends what runs now, whether it is a script or a function.
    pub fn kill_any(&self) -> Kill {
        let running = self.running.lock();
        running.iter().map(|run| run.kill(run.is_function())).max().unwrap_or(Kill::NotBusy)
    }

    /// Ends what runs for these clients, unless it has written. The ids must be in ascending order.
    pub fn kill_of_clients(&self, ids: &[u64]) {
        for run in &*self.running.lock() {
            if run.client().is_some_and(|client| ids.binary_search(&client).is_ok()) {
                run.kill(run.is_function());
            }
        }
    }

    /// Keeps libraries that [`crate::Engine::load_library`] has tried, all or none.
    ///
    /// # Errors
    /// Returns the text of the error for the client.
    pub fn keep_libraries(&self, added: Vec<Library>, policy: Policy) -> Result<(), String> {
        self.libraries.keep(added, policy)
    }

    /// Returns the libraries, by name.
    pub fn libraries(&self) -> Vec<Arc<Library>> {
        self.libraries.all()
    }

    /// Removes a library. Returns whether it existed.
    pub fn delete_library(&self, name: &[u8]) -> bool {
        self.libraries.delete(name)
    }

    /// Removes every library.
    pub fn flush_libraries(&self) {
        self.libraries.flush();
    }

    /// Returns the number of libraries, of functions, and of bytes of their texts.
    pub fn library_counts(&self) -> (usize, usize, usize) {
        self.libraries.counts()
    }

    /// Returns the totals of the runs so far, and the memory in use.
    pub fn totals(&self) -> ScriptTotals {
        self.totals.read()
    }

    /// Returns the function that runs now, or the load of functions.
    pub fn running_function(&self) -> Option<Arc<Run>> {
        self.running.lock().iter().find(|run| run.is_function()).cloned()
    }
}

/// Returns the flags of a script's first line.
pub(crate) fn flags_of(body: &[u8]) -> Result<(ScriptFlags, usize), String> {
    flags::parse(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(registry: &Registry, body: &[u8], is_loaded: bool) -> Result<Name, CacheFull> {
        let name = digest_of(body);
        let flags = (ScriptFlags::default(), 0);
        registry.keep((name, &body.into()), flags, is_loaded).map(|()| name)
    }

    #[test]
    fn a_script_has_the_name_that_redis_gives() {
        assert_eq!(&digest_of(b"return 1"), b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }

    #[test]
    fn with_as_many_scripts_loaded_as_may_be_what_is_seen_is_kept_all_the_same() {
        let registry = Registry::default();
        let load = |nth: usize| keep(&registry, format!("loaded {nth}").as_bytes(), true);
        assert!((0..SCRIPTS_MAX).all(|nth| load(nth).is_ok()));
        assert_eq!(load(SCRIPTS_MAX), Err(CacheFull));
        let see = |nth: usize| keep(&registry, format!("seen {nth}").as_bytes(), false).unwrap();
        let seen: Vec<_> = (0..=SEEN_MAX).map(see).collect();
        assert!(seen[1..].iter().all(|name| registry.has(name)));
        assert!(!registry.has(&seen[0]), "the oldest made room");
        assert_eq!(keep(&registry, b"seen 7", true), Err(CacheFull), "it stays only seen");
        assert_eq!(registry.kept().0, SCRIPTS_MAX + SEEN_MAX);
        let huge = vec![b' '; SCRIPTS_LEN_MAX];
        keep(&registry, &huge, false).unwrap();
        assert!(load(0).is_ok());
    }

    #[test]
    fn what_was_loaded_stays_and_what_was_seen_makes_room() {
        let registry = Registry::default();
        let loaded = keep(&registry, b"loaded", true).unwrap();
        let seen = keep(&registry, b"seen", false).unwrap();
        let half = vec![b' '; SCRIPTS_LEN_MAX / 2];
        keep(&registry, &half, true).unwrap();
        let epoch = registry.epoch();
        assert_eq!(keep(&registry, &[&half[..], b"1"].concat(), true), Err(CacheFull));
        assert!(registry.has(&loaded) && registry.has(&seen));
        let large = keep(&registry, &[&half[..], b"2"].concat(), false).unwrap();
        assert!(registry.has(&loaded) && registry.has(&large));
        let rest = keep(&registry, &half[..SCRIPTS_LEN_MAX / 4], true).unwrap();
        assert!(registry.has(&rest) && !registry.has(&seen) && !registry.has(&large));
        assert_eq!(registry.epoch(), epoch, "what is compiled of the others stays");
        assert!(registry.has(&loaded.to_ascii_uppercase()) && !registry.has(b"x"));
        registry.flush();
        assert_eq!(registry.kept(), (0, 0));
        assert!(registry.epoch() > epoch, "workers are told");
    }
}
