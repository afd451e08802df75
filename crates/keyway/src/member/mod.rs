//! A process that serves as a member of the fleet: it joins the control plane on a thread of its
//! own, keeps the latest document on its disk, and serves by it.
//!
//! The thread drives the node of the bus and the machine [`keyway_fleet::Member`]. The main thread
//! applies documents as it applies reloads. Workers know of neither.

mod asked;
mod groups;
mod link;
mod measure;
mod state_file;

pub use groups::{Groups, role_seen};

use crate::control_node::Staying;
use crate::reload::{Cause, Diff, Refusal, Wake};
use anyhow::{Context, Result};
use keyway_bus::Tokens;
use keyway_config::{
    Config, ConfigError, ControlConfig, ListenAddr, ListenerConfig, Protocol, read_token,
};
use keyway_control::AdminState;
use keyway_fleet::{About, Begun, Decisions, Document, Saved, Serving};
use keyway_metrics::Registry;
use link::{Link, Start};
use measure::Counted;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::rand::{GetRandomFlags, getrandom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, sync_channel};
use std::thread::JoinHandle;

/// The control plane that a process joins, and what it had on its disk at the start.
pub struct Joining {
    control: ControlConfig,
    saved: Option<Saved>,
    begun: Begun,
    /// The document that the configuration has.
    document: Option<Document>,
    /// The lines of the log about the start.
    said: Vec<String>,
    /// The warnings among them: files that are not used.
    warned: Vec<String>,
    secret: Secret,
    groups: Groups,
}

/// The token of the bus: that of a file, or one of this process alone.
#[derive(Clone)]
pub struct Secret {
    file: Option<PathBuf>,
    /// Drawn if there is no file and no certificate: the member and the control node of this
    /// process know each other by it.
    own: Option<String>,
}

/// Bytes of a token that a process draws for itself.
const OWN_TOKEN_LEN: usize = 32;

impl Secret {
    /// Returns the secret of a configuration.
    fn of(control: &ControlConfig) -> Secret {
        let is_alone = control.token_file.is_none() && control.inside.is_some();
        let drawn = || {
            let mut bytes = [0; OWN_TOKEN_LEN];
            // If the system has none to give, the nodes below refuse an empty token.
            let len = getrandom(&mut bytes[..], GetRandomFlags::empty()).unwrap_or_default();
            bytes.iter().take(len).map(|byte| format!("{byte:02x}")).collect()
        };
        Secret { file: control.token_file.clone(), own: is_alone.then(drawn) }
    }

    /// Returns the tokens for a node of the bus.
    ///
    /// # Errors
    /// Returns what is wrong with the file.
    pub fn tokens(&self) -> Result<Tokens> {
        let mut tokens = Tokens::default();
        if let Some(file) = &self.file {
            let named = || format!("token_file {} in [control]", file.display());
            let token = read_token(&file.to_string_lossy())
                .map_err(anyhow::Error::msg)
                .with_context(named)?;
            tokens.add(&token).with_context(named)?;
        }
        if let Some(own) = &self.own {
            tokens.add(own.as_bytes()).context("the token of this process")?;
        }
        Ok(tokens)
    }
}

impl Joining {
    /// Checks everything that an operator can get wrong, and starts nothing.
    ///
    /// # Errors
    /// Returns what is wrong with the token or the certificates.
    pub fn check(&self) -> Result<()> {
        link::check(&self.control, self.secret.tokens()?)
    }

    /// Prepares the control node that runs in this process, if the configuration has one.
    ///
    /// # Errors
    /// Returns what is wrong with the token.
    pub fn staying(&self) -> Result<Option<Staying>> {
        Staying::new(&self.control, &self.secret)
    }

    /// Returns the groups of servers, with the decisions of the disk.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Returns the document that the configuration has.
    pub fn document(&self) -> Option<Document> {
        self.document.clone()
    }
}

/// Reads the configuration file. If the process joins a control plane, the document that is on the
/// disk is in it: the newest one, or the one before it if that one cannot be used.
///
/// # Errors
/// Returns everything wrong with the file. A document that is wrong is no error.
pub fn load(path: &Path) -> Result<(Config, Option<Joining>), Vec<ConfigError>> {
    let alone = Config::load(path)?;
    let Some(control) = alone.control.clone() else { return Ok((alone, None)) };
    let mut warned = Vec::new();
    let shown = control.state_file.display().to_string();
    let saved = match state_file::read(&control.state_file) {
        Ok(saved) => saved,
        Err(why) => {
            warned.push(format!("{shown}: {why}; this process starts without a document"));
            None
        }
    };
    let saved = saved.filter(|saved| {
        let is_ours = saved.cluster == control.cluster;
        if !is_ours {
            let (theirs, ours) = (&saved.cluster, &control.cluster);
            warned
                .push(format!("{shown} is of cluster {theirs:?}, and this is {ours:?}: not used"));
        }
        is_ours
    });
    let (secret, begun) = (Secret::of(&control), Begun::default());
    let decisions = state_file::read_decisions(&control.state_file).unwrap_or_else(|why| {
        warned.push(format!("{why}; this process starts without decided primaries"));
        None
    });
    let ours = decisions.filter(|decisions| decisions.cluster() == control.cluster);
    let groups = Groups::new(ours.unwrap_or_else(|| Decisions::new(&control.cluster)));
    let (document, said) = (None, Vec::new());
    let mut joining = Joining { control, saved, begun, document, said, warned, secret, groups };
    let config = joining.choose(path).unwrap_or(alone);
    Ok((config, Some(joining)))
}

/// Reads the configuration file with a document.
///
/// # Errors
/// Returns everything wrong with both.
pub fn load_with(path: &Path, document: &Document) -> Result<Config, Vec<ConfigError>> {
    match document.text.is_empty() {
        true => Config::load(path),
        false => {
            let name = format!("document {} of control", document.version);
            Config::load_with(path, &name, &document.text)
        }
    }
}

impl Joining {
    /// Finds the document to start with. Returns the configuration with it.
    fn choose(&mut self, path: &Path) -> Option<Config> {
        let saved = self.saved.clone()?;
        for document in [Some(saved.newest), saved.good].into_iter().flatten() {
            match load_with(path, &document) {
                Ok(config) => {
                    self.said.push(format!(
                        "this process starts with document {} of {}",
                        document.version,
                        self.control.state_file.display()
                    ));
                    self.begun.running = Some(document.version);
                    self.document = Some(document);
                    return Some(config);
                }
                Err(errors) => {
                    let lines = errors.iter().map(ToString::to_string).collect::<Vec<_>>();
                    let why = lines.join("\n");
                    self.warned.push(format!("document {} is not used: {why}", document.version));
                    self.begun.refused.get_or_insert(why);
                }
            }
        }
        None
    }
}

/// The facts about this process for the control plane; the main thread keeps it up to date.
#[derive(Clone, Default)]
pub struct SharedAbout {
    about: Arc<Mutex<Shared>>,
    groups: Groups,
}

/// Tells the files with certificates in use, and when the first of each expires.
type Expiries = Arc<dyn Fn() -> Vec<(String, i64)> + Send + Sync>;

#[derive(Clone, Default)]
struct Shared {
    about: About,
    counted: Option<Counted>,
    expiries: Option<Expiries>,
}

impl SharedAbout {
    /// Takes what a configuration says, and the counts of its pools.
    pub fn set(&self, config: &Config, registry: &Arc<Registry>) {
        let pools = config.control.as_ref().map(|control| control.pools.clone());
        let registry = Arc::clone(registry);
        let counted = Counted { registry, pools: pools.unwrap_or_default() };
        let about = About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            listeners: config.listeners.iter().map(|one| one.bind.to_string()).collect(),
            pools: config.pools.iter().map(|pool| pool.name.clone()).collect(),
            serves: config.listeners.iter().filter_map(|one| serving(config, one)).collect(),
        };
        let expiries: Expiries =
            Arc::new(crate::certificates::expiries(config, |_| true, |_| true));
        *self.about.lock() = Shared { about, counted: Some(counted), expiries: Some(expiries) };
    }

    /// Notes that this process serves no new clients, and watches no group any more.
    pub fn set_draining(&self) {
        let mut shared = self.about.lock();
        shared.about.serves.clear();
        shared.about.pools.clear();
    }

    /// Returns the groups of servers.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    fn get(&self) -> About {
        self.about.lock().about.clone()
    }

    fn counted(&self) -> Option<Counted> {
        self.about.lock().counted.clone()
    }

    fn expiries(&self) -> Vec<(String, i64)> {
        let expiries = self.about.lock().expiries.clone();
        expiries.map(|expiries| expiries()).unwrap_or_default()
    }
}

/// Returns the address at which clients find a listener's pool, if it is known.
fn serving(config: &Config, listener: &ListenerConfig) -> Option<Serving> {
    let host = config.control.as_ref().and_then(|control| control.host.as_deref());
    let bound = match &listener.bind {
        ListenAddr::Tcp(address) if address.port() == 0 => None,
        ListenAddr::Tcp(address) if !address.ip().is_unspecified() => Some(address.to_string()),
        ListenAddr::Tcp(address) => host.map(|host| match host.contains(':') {
            true => format!("[{host}]:{}", address.port()),
            false => format!("{host}:{}", address.port()),
        }),
        // Clients of a unix socket are on its host, and know its path.
        _ => None,
    };
    // An operator has said how clients reach it.
    let named = listener.register.as_ref().map(|entry| entry.address.clone());
    let protocol = match listener.protocol {
        Protocol::Redis => "redis",
        Protocol::Memcached { .. } => "memcached",
    };
    Some(Serving {
        pool: config.pools.get(listener.pool_index)?.name.clone(),
        protocol: protocol.to_owned(),
        address: named.or(bound)?,
    })
}

/// An order to serve by a document. It is answered once, unless the process ends.
pub struct Ordered {
    document: Document,
    answer: Sender<Result<Diff, Refusal>>,
    wake: Arc<OwnedFd>,
}

impl Ordered {
    /// Returns the document.
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// Tells the outcome.
    pub fn answer(&self, outcome: Result<Diff, Refusal>) {
        // The thread may have ended.
        let _ = self.answer.send(outcome);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

/// Returns whether a refusal has its reason in the moment, and not in the document.
fn is_passing(refusal: &Refusal) -> bool {
    matches!(refusal.cause, Cause::Draining | Cause::Upgrading | Cause::Late)
}

/// The thread that has joined the control plane. Dropping it leaves the bus and ends the thread.
pub struct Membership {
    about: SharedAbout,
    is_over: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Membership {
    /// Starts the thread, if the configuration has a control plane.
    ///
    /// # Errors
    /// Returns what is wrong with the token or the certificates, or that there is no thread.
    pub fn start(
        (joining, main): (Option<&Joining>, Sender<Wake>),
        (config, registry): (&Config, &Arc<Registry>),
        state: Arc<dyn AdminState>,
    ) -> Result<Option<Membership>> {
        let Some(joining) = joining else { return Ok(None) };
        joining.warned.iter().for_each(|line| tracing::warn!("control: {line}"));
        joining.said.iter().for_each(|line| tracing::info!("control: {line}"));
        let groups = joining.groups.clone();
        let about = SharedAbout { groups, ..SharedAbout::default() };
        about.set(config, registry);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let start = Start::new(joining, main, about.clone())?;
        let (tell, told) = sync_channel(1);
        // The node of the bus stays on the thread that makes it.
        let run = move || match Link::new(start, state) {
            Ok(link) => {
                // The thread that waits has not given up: it waits for this alone.
                let _ = tell.send(Ok(link.waker()));
                link.run(&over);
            }
            Err(error) => drop(tell.send(Err(error))),
        };
        let thread = std::thread::Builder::new()
            .name("keyway-fleet".to_owned())
            .spawn(run)
            .context("cannot start a thread")?;
        let wake = told.recv().context("the thread has ended")??;
        Ok(Some(Membership { about, is_over, wake, thread: Some(thread) }))
    }

    /// Returns what the control plane is told of this process.
    pub fn about(membership: Option<&Membership>) -> SharedAbout {
        membership.map(|it| it.about.clone()).unwrap_or_default()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // ORDER: the flag itself is the only data
        self.is_over.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_file_that_is_not_used_is_a_warning() {
        let folder = keyway_testkit::TempDir::new();
        let file = folder.write(
            "keyway.toml",
            "[server]\nadmin = \"tcp://127.0.0.1:2\"\n[control]\ncluster = \"c\"\nid = \
             \"z1.proxy.0.1\"\ncoordinator = { dir = \"d\" }\nstate_file = \"state\"\npools = \
             [\"a\"]\n[[listener]]\nbind = \"tcp://127.0.0.1:7\"\npool = \"a\"\n[pool.a]\nkind = \
             \"store\"\n",
        );
        let warned = || load(&file).expect("it is right").1.expect("it joins").warned;
        assert_eq!(warned(), [""; 0]);
        let state = folder.write("state", "something else");
        assert!(warned().iter().any(|line| line.contains("damaged")), "{:?}", warned());
        let version = keyway_fleet::Version { epoch: 1, revision: 1 };
        let newest = Document { version, text: "".into() };
        let saved = Saved { cluster: "other".to_owned(), newest, good: None };
        state_file::write(&state, &saved).expect("it is written");
        assert!(warned().iter().any(|line| line.contains("\"other\"")), "{:?}", warned());
    }
}
