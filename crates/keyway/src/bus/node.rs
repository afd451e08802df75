//! `keyway bus node`: runs a node as long as its process lives.

use super::metrics::{Asking, Failures, State, figures, note};
use super::repeats::Repeats;
use super::signals::{Signalled, watch_signals};
use super::{incarnation, say};
use anyhow::{Context, Result};
use keyway_bus::{Event, NodeId, Reason, Stamp, Url, certificate_name};
use keyway_channel::{Driver, DriverSettings, LINE_LEN_MAX, Lines, clock, here};
use keyway_config::{BusConfig, BusTls, ConfigError};
use keyway_control::{Admin, AdminHandle};
use keyway_metrics::{BusFigures, BusMetrics};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

/// The command that `keyway bus publish` sends: topic, epoch or nothing, body.
pub const PUBLISH: &[u8] = b"publish";

/// Largest epoch and version that are accepted from nodes below. A lie of a node so leaves enough
/// of them to publish.
const BELIEVED_MAX: u64 = 1 << 48;

/// Longest wait of a node when nothing is due. Other threads wake it earlier.
const TURN: Duration = Duration::from_secs(60);

/// Time for writing the last lines to a reader that is slow.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Checks the file of a node. Prints that it is right, or every mistake in it.
pub fn check(file: &Path, is_quiet: bool) -> Result<ExitCode> {
    let config = match BusConfig::load(file) {
        Ok(_) if is_quiet => return Ok(ExitCode::SUCCESS),
        loaded => told(loaded),
    };
    let Some(config) = config else { return Ok(ExitCode::from(2)) };
    let settings = &config.settings;
    say!("id = \"{}\"", settings.id)?;
    for url in &settings.urls {
        say!("listens at {url}")?;
    }
    for upstream in &settings.upstreams {
        let urls: Vec<String> = upstream.urls.iter().map(ToString::to_string).collect();
        say!("upstream {} at {}", upstream.id, urls.join(", "))?;
    }
    if config.tls.is_some() {
        say!("certificate of {}", certificate_name(settings.id))?;
    }
    eprintln!("{}: a node of the bus, no errors", file.display());
    Ok(ExitCode::SUCCESS)
}

/// Loads the file. Returns `None` after reporting what is wrong with it.
fn load(file: &Path) -> Option<BusConfig> {
    told(BusConfig::load(file))
}

/// Reports the warnings or errors of a file that was read.
fn told(loaded: Result<BusConfig, Vec<ConfigError>>) -> Option<BusConfig> {
    match loaded {
        Ok(config) => {
            config.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
            Some(config)
        }
        Err(errors) => {
            errors.iter().for_each(|error| eprintln!("{error}"));
            eprintln!("keyway: {}; not valid", keyway_config::counted(errors.len(), "error"));
            None
        }
    }
}

/// Joins the bus, and stays until a signal.
pub fn run(file: &Path) -> Result<ExitCode> {
    match load(file) {
        Some(config) => Running::start(config)?.run(),
        None => Ok(ExitCode::from(2)),
    }
}

struct Running {
    driver: Driver,
    lines: Lines,
    takes_publications: bool,
    failures: Failures,
    repeats: Repeats,
    /// The node that the latest event reported as unreachable, and whether that was printed.
    in_vain: Option<(NodeId, bool)>,
    metrics: Arc<BusMetrics>,
    state: Arc<State>,
    told: Arc<Signalled>,
    id: NodeId,
    tls: Option<BusTls>,
    asks: Receiver<Sender<BusFigures>>,
    /// The admin listener ends with the node.
    _admin: Option<AdminHandle>,
}

fn listen(config: &BusConfig) -> Result<Driver> {
    let mut settings = config.settings.clone();
    (settings.place, settings.incarnation) = (here(), incarnation());
    let tls = config.tls.as_ref().map(|tls| tls.loaded.clone());
    let driver =
        Driver::new(settings, DriverSettings { share_with: config.share_with.clone(), tls });
    driver.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => anyhow::anyhow!(
            "cannot listen at {error}: another process does; does this node run already?"
        ),
        _ => anyhow::anyhow!("cannot listen at {error}"),
    })
}

/// Returns standard output without a buffer, so that lines which the disk has not taken are known
/// one by one.
fn output() -> Result<std::fs::File> {
    let fd = std::io::stdout().as_fd().try_clone_to_owned();
    Ok(fd.context("cannot use standard output")?.into())
}

impl Running {
    fn start(config: BusConfig) -> Result<Self> {
        let mut driver = listen(&config)?;
        let start_micros = crate::serve::wall_clock().unix_micros;
        let metrics = Arc::new(BusMetrics::new(env!("CARGO_PKG_VERSION"), start_micros));
        // It is served from the first moment on, when nothing has been tried yet.
        let state = Arc::new(State::of(driver.node()));
        let (asking, asks) = Asking::new(Arc::clone(&metrics), driver.waker(), Arc::clone(&state));
        let admin = match config.admin {
            Some(address) => {
                let started = Admin::start(&address.to_string(), Arc::new(asking));
                Some(started.map_err(|error| anyhow::anyhow!("{error}"))?)
            }
            None => None,
        };
        let urls: Vec<String> = driver.urls().iter().map(ToString::to_string).collect();
        let mut lines = Lines::start(output()?).context("a thread for lines")?;
        lines.say(format!("ready {} {}", driver.node().id(), urls.join(" ")));
        if let Some(admin) = &admin {
            lines.say(format!("metrics http://{}/metrics", admin.local_addr()));
        }
        Ok(Self {
            told: watch_signals(&driver)?,
            id: config.settings.id,
            tls: config.tls,
            driver,
            lines,
            takes_publications: config.takes_publications,
            failures: Failures::default(),
            repeats: Repeats::default(),
            in_vain: None,
            metrics,
            state,
            asks,
            _admin: admin,
        })
    }

    fn run(mut self) -> Result<ExitCode> {
        loop {
            self.driver.turn(TURN)?;
            while let Some(event) = self.driver.poll_event() {
                if event == Event::Gone {
                    if !self.lines.finish(LAST_WORDS) {
                        eprintln!(
                            "keyway: not all that happened could be written to standard output"
                        );
                    }
                    return Ok(ExitCode::SUCCESS);
                }
                self.on_event(event);
            }
            if let Some(error) = self.driver.poll_not_accepted() {
                let why = error.to_string();
                if self.repeats.is_news("accept", &why, clock()) {
                    self.lines.say(format!("cannot accept: {why}"));
                }
            }
            if let Some(unshared) = self.driver.poll_unshared() {
                let (thing, why) = (unshared.url.to_string(), unshared.why.to_string());
                if self.repeats.is_news(&thing, &why, clock()) {
                    self.lines.say(format!("unshared {thing}: {why}; its socket is used instead"));
                }
            }
            while let Some(took) = self.driver.node().poll_round_trip() {
                self.metrics.note_round_trip(took);
            }
            let is_cut_off = self.driver.node().is_cut_off();
            self.state.is_cut_off.store(is_cut_off, Ordering::Relaxed);
            while let Ok(answer) = self.asks.try_recv() {
                // The asking thread may have stopped waiting.
                let _ = answer.send(figures(self.driver.node(), &self.failures));
            }
            // ORDER: the flags themselves are the only data
            if self.told.is_to_reread.swap(false, Ordering::Relaxed) {
                self.reread_certificates();
            }
            if self.told.is_to_upgrade.swap(false, Ordering::Relaxed) {
                let said = "SIGUSR2 is ignored: a node of the bus has no upgrade; restart it";
                self.lines.say(said.to_owned());
            }
            if self.told.is_over.swap(false, Ordering::Relaxed) {
                self.state.is_leaving.store(true, Ordering::Relaxed);
                self.driver.node().leave(clock());
            }
        }
    }

    /// Reads the certificate files again. New connections use what is in them.
    fn reread_certificates(&mut self) {
        let outcome = match &self.tls {
            Some(tls) => tls.reread(self.id),
            None => return self.lines.say("certificates: none to read again".to_owned()),
        };
        let (said, faults) = match outcome {
            Ok(warnings) => ("certificates read again", warnings),
            Err(faults) => ("certificates not read again: those of before are used", faults),
        };
        faults.iter().for_each(|fault| self.lines.say(format!("certificates: {fault}")));
        self.lines.say(said.to_owned());
    }

    /// Prints one line for every event, for people and for tests.
    fn on_event(&mut self, event: Event) {
        let in_vain = self.in_vain.take();
        match event {
            Event::PeerUp { identity, by_us, .. } => {
                if by_us {
                    self.repeats.forget();
                }
                let how = if by_us { "dialled" } else { "accepted" };
                self.lines.say(format!("peer {} {how} {}", identity.id, identity.labels));
            }
            Event::PeerDown { id, reason } => {
                note(&mut self.failures.lost, reason);
                self.lines.say(format!("lost {id}: {reason}"));
            }
            Event::Unreached { id, at, reason } => self.on_unreached(id, &at, reason),
            Event::Refused { id, from, reason } => {
                note(&mut self.failures.refused, reason);
                // The result for each address was printed before, and the same reason applies to
                // all of them.
                if in_vain != Some((id, false)) {
                    let from = from.map_or(String::new(), |from| format!(" from {from}"));
                    self.lines.say(format!("refused {id}{from}: {reason}"));
                }
            }
            Event::Failed { reason, .. } => note(&mut self.failures.messages, reason),
            Event::Joined(id) => self.lines.say(format!("joined {id}")),
            Event::Left(id) => self.lines.say(format!("left {id}")),
            Event::Upstream(Some(id)) => self.lines.say(format!("upstream {id}")),
            Event::Upstream(None) => self.lines.say("upstream none".to_owned()),
            Event::Message { from, body, .. } => {
                // The rest of a long message does not fit into a line.
                let body = String::from_utf8_lossy(&body[..body.len().min(LINE_LEN_MAX)]);
                self.lines.say(format!("message {from} {}", body.escape_debug()));
            }
            Event::Command { from, seq, args } => self.on_command(from, seq, args),
            Event::Push { topic, epoch, version, body } => {
                self.lines.say(format!("push {topic} {epoch} {version} {} bytes", body.len()));
                self.driver.node().applied(&topic, Stamp { epoch, version }, true, clock());
            }
            Event::PushConflict { topic, epoch, version } => {
                self.lines.say(format!("conflict {topic} {epoch} {version}"))
            }
            Event::Unkept { topic, epoch, version, reason } => {
                self.lines.say(format!("unkept {topic} {epoch} {version}: {reason}"))
            }
            Event::Unsaid { count } => {
                self.lines.say(format!("refused {count} more: only some are told one by one"));
            }
            Event::Withdrawn { topic, epoch, version } => {
                self.lines.say(format!("withdrawn {topic} {epoch} {version}"));
            }
            _ => {}
        }
    }

    fn on_unreached(&mut self, id: NodeId, at: &Url, reason: Reason) {
        let (thing, why) = (at.to_string(), reason.to_string());
        let is_news = self.repeats.is_news(&thing, &why, clock());
        if is_news {
            self.lines.say(format!("unreached {at}: {why}"));
        }
        self.in_vain = Some((id, is_news));
    }

    fn on_command(&mut self, from: NodeId, seq: u64, args: Vec<Vec<u8>>) {
        let outcome = match <[Vec<u8>; 4]>::try_from(args) {
            Ok([name, topic, epoch, body]) if name == PUBLISH => self.publish(&topic, &epoch, body),
            _ => Err("this node has no such command".to_owned()),
        };
        let (status, said) = match outcome {
            Ok(Stamp { epoch, version }) => (0, vec![epoch.to_string(), version.to_string()]),
            Err(why) => (1, vec![why]),
        };
        // If the answer cannot be sent, the guest gets a timeout.
        let _ = self.driver.node().reply(from, seq, status, &said, clock());
    }

    /// Publishes the version after the latest one, of this node or of those below. A node that has
    /// restarted knows no version, and nodes below keep a version that is later than what they are
    /// sent.
    fn publish(&mut self, topic: &[u8], epoch: &[u8], body: Vec<u8>) -> Result<Stamp, String> {
        if !self.takes_publications {
            return Err("its file does not say publish = true".to_owned());
        }
        let text = |bytes| str::from_utf8(bytes).map_err(|_| "that is no text".to_owned());
        let topic = text(topic)?;
        let node = self.driver.node();
        let below = node
            .latest_below(topic)
            .filter(|stamp| stamp.epoch <= BELIEVED_MAX && stamp.version <= BELIEVED_MAX);
        let latest = node.latest(topic).max(below).unwrap_or_default();
        let epoch = match text(epoch)? {
            "" => latest.epoch.max(1),
            written => written.parse().map_err(|_| "the epoch is no number".to_owned())?,
        };
        let next =
            || latest.version.checked_add(1).ok_or("there is no version behind the latest one");
        let version = if epoch == latest.epoch { next()? } else { 1 };
        let stamp = Stamp { epoch, version };
        if stamp <= latest {
            let Stamp { epoch, version } = latest;
            return Err(format!("a version at least as new is there already: {epoch} {version}"));
        }
        let len = body.len();
        let published = self.driver.node().publish(topic, stamp, body);
        published.map_err(|fault| fault.to_string())?;
        self.lines.say(format!("published {topic} {epoch} {version} {len} bytes"));
        Ok(stamp)
    }
}
