use crate::ends::{Kill, Run};
use crate::flags::{self, ScriptFlags};
use crate::libraries::{Library, Policy};
use keyway_base::Time;
use parking_lot::Mutex;
use sha1::{Digest as _, Sha1};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of scripts kept. With less an application with many scripts would be
/// turned away, with more a client that never stops loading takes the machine's
/// memory.
const SCRIPTS_LEN_MAX: usize = 64 << 20;

/// Scripts kept.
const SCRIPTS_MAX: usize = 10_000;

/// What a kept script takes besides its text.
const SCRIPT_OVERHEAD: usize = 192;

/// How far scripts may go.
#[derive(Clone, Copy, Debug)]
pub struct ScriptLimits {
    /// How long one may run.
    pub time_max: Duration,
    /// How long others wait for what one holds; from then on they are refused.
    pub busy_after: Duration,
    /// Bytes of Lua's memory in each worker, garbage included.
    pub memory_max: usize,
    /// Bytes of a reply.
    pub reply_len_max: usize,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self { time_max: Duration::from_secs(5), busy_after: Duration::from_secs(1), memory_max: 64 << 20, reply_len_max: 512 << 20 }
    }
}

/// The name of a script in EVALSHA: 40 hexadecimal digits in lower case.
pub type Name = [u8; 40];

/// The name of a script of this text.
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
    /// The error a client gets.
    pub const TEXT: &'static str = "ERR Keyway keeps as many scripts of this pool as it may \
                                    (10000, of 64 MiB); SCRIPT FLUSH makes room";
}

/// A script that is kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) body: Arc<[u8]>,
    pub(crate) flags: ScriptFlags,
    /// Where its text begins, behind the line of its flags.
    pub(crate) start: usize,
    is_loaded: bool,
}

#[derive(Debug, Default)]
struct Scripts {
    by_name: BTreeMap<Name, Kept>,
    /// Those only seen in EVAL, the oldest first.
    seen: VecDeque<Name>,
    len: usize,
}

/// What a pool's clients have loaded, and the script that runs: shared by all
/// workers.
#[derive(Debug)]
pub struct Registry {
    limits: ScriptLimits,
    /// Tells how long a script runs.
    clock: fn() -> Time,
    scripts: Mutex<Scripts>,
    /// How often all scripts were forgotten: workers are to forget what they
    /// have compiled before.
    epoch: AtomicU64,
    /// What runs: one script, or function, and beside it what loads libraries.
    running: Mutex<Vec<Arc<Run>>>,
    pub(crate) libraries: crate::libraries::Libraries,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new(ScriptLimits::default(), || Time(0))
    }
}

impl Registry {
    /// A registry with nothing in it. `clock` is monotonic; where it stands
    /// still, no script runs for too long.
    pub fn new(limits: ScriptLimits, clock: fn() -> Time) -> Self {
        Self {
            limits,
            clock,
            scripts: Mutex::default(),
            epoch: AtomicU64::new(0),
            running: Mutex::default(),
            libraries: crate::libraries::Libraries::default(),
        }
    }

    pub(crate) fn clock(&self) -> fn() -> Time {
        self.clock
    }

    /// How far scripts may go.
    pub fn limits(&self) -> &ScriptLimits {
        &self.limits
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Keeps a script: of SCRIPT LOAD until [`Registry::flush`], of EVAL as long
    /// as there is room.
    ///
    /// # Errors
    /// [`CacheFull`] when there is none for one that is loaded.
    pub(crate) fn keep(
        &self,
        (name, body): (Name, &Arc<[u8]>),
        (flags, start): (ScriptFlags, usize),
        is_loaded: bool,
    ) -> Result<(), CacheFull> {
        let mut scripts = self.scripts.lock();
        if let Some(kept) = scripts.by_name.get_mut(&name) {
            if is_loaded && !kept.is_loaded {
                kept.is_loaded = true;
                scripts.seen.retain(|seen| *seen != name);
            }
            return Ok(());
        }
        let len = body.len() + SCRIPT_OVERHEAD;
        while scripts.by_name.len() >= SCRIPTS_MAX || scripts.len + len > SCRIPTS_LEN_MAX {
            let Some(oldest) = scripts.seen.pop_front() else { return Err(CacheFull) };
            if let Some(old) = scripts.by_name.remove(&oldest) {
                scripts.len -= old.body.len() + SCRIPT_OVERHEAD;
            }
            // What workers have compiled of it may stay, as of any text: what
            // they keep is bounded, and a name is only ever of one text.
        }
        scripts.len += len;
        scripts.by_name.insert(name, Kept { body: Arc::clone(body), flags, start, is_loaded });
        if !is_loaded {
            scripts.seen.push_back(name);
        }
        Ok(())
    }

    pub(crate) fn script(&self, name: &Name) -> Option<Kept> {
        self.scripts.lock().by_name.get(name).cloned()
    }

    /// Whether there is a script of this name, in digits of any case.
    pub fn has(&self, name: &[u8]) -> bool {
        let name: Result<Name, _> = name.to_ascii_lowercase().try_into();
        name.is_ok_and(|name| self.scripts.lock().by_name.contains_key(&name))
    }

    /// Forgets every script.
    pub fn flush(&self) {
        *self.scripts.lock() = Scripts::default();
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// How many scripts are kept, and the bytes they take.
    pub fn kept(&self) -> (usize, usize) {
        let scripts = self.scripts.lock();
        (scripts.by_name.len(), scripts.len)
    }

    /// When what begins now is to be over.
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

    /// Ends the script, or what runs and loads functions, that runs now.
    pub fn kill(&self, is_function: bool) -> Kill {
        let running = self.running.lock();
        let killed = running.iter().map(|run| run.kill(is_function)).max();
        killed.unwrap_or(Kill::NotBusy)
    }

    /// Ends what runs on behalf of these clients, unless it has written; the ids
    /// ascend.
    pub fn kill_of_clients(&self, ids: &[u64]) {
        for run in &*self.running.lock() {
            if run.client().is_some_and(|client| ids.binary_search(&client).is_ok()) {
                run.kill(run.is_function());
            }
        }
    }

    /// Keeps libraries that [`crate::Engine::load_library`] has tried, all or
    /// none.
    ///
    /// # Errors
    /// The text of the error for the client.
    pub fn keep_libraries(&self, added: Vec<Library>, policy: Policy) -> Result<(), String> {
        self.libraries.keep(added, policy)
    }

    /// The libraries, by name.
    pub fn libraries(&self) -> Vec<Arc<Library>> {
        self.libraries.all()
    }

    /// Forgets a library; whether there was one.
    pub fn delete_library(&self, name: &[u8]) -> bool {
        self.libraries.delete(name)
    }

    /// Forgets every library.
    pub fn flush_libraries(&self) {
        self.libraries.flush();
    }

    /// How many libraries and functions there are, and the bytes of their texts.
    pub fn library_counts(&self) -> (usize, usize, usize) {
        self.libraries.counts()
    }

    /// The function that runs now, or what loads functions.
    pub fn running_function(&self) -> Option<Arc<Run>> {
        self.running.lock().iter().find(|run| run.is_function()).cloned()
    }
}

/// The flags of a script's first line.
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
    fn what_was_loaded_stays_and_what_was_seen_makes_room() {
        let registry = Registry::default();
        let loaded = keep(&registry, b"loaded", true).unwrap();
        let seen = keep(&registry, b"seen", false).unwrap();
        let half = vec![b' '; SCRIPTS_LEN_MAX / 2];
        keep(&registry, &half, true).unwrap();
        let epoch = registry.epoch();
        assert_eq!(keep(&registry, &[&half[..], b"1"].concat(), true), Err(CacheFull));
        assert!(registry.has(&loaded) && !registry.has(&seen));
        assert_eq!(registry.epoch(), epoch, "what is compiled of the others stays");
        assert!(registry.has(&loaded.to_ascii_uppercase()) && !registry.has(b"x"));
        registry.flush();
        assert_eq!(registry.kept(), (0, 0));
        assert!(registry.epoch() > epoch, "workers are told");
    }
}
