//! `keyway bus`: a node of the bus, and questions to its tree.

use crate::bus_bench::{Bench, bench, take_part};
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use keyway_bus::{Event, NodeId, Reason, SendOptions, Settings, Tokens, Upstream, Url};
use keyway_channel::{Driver, DriverSettings, clock, here};
use keyway_config::{BusConfig, read_token};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Prints a line to who listens: a reader that has gone is no reason to stop.
macro_rules! say {
    ($($part:tt)*) => {{
        let _ = writeln!(std::io::stdout(), $($part)*);
    }};
}

/// How long a node waits before it looks whether it is to end; its heartbeat is no rarer.
const TURN: Duration = Duration::from_millis(500);

/// What can be done on the bus.
#[derive(Debug, Subcommand)]
pub enum Bus {
    /// Join the bus as a node until SIGTERM or SIGINT; then leave in order. Prints what happens.
    Node {
        /// Its file: see docs/bus.md.
        file: PathBuf,
    },
    /// Send a message to a node and wait for word of its arrival.
    Send {
        #[command(flatten)]
        through: Through,
        /// The node it is for, as z1.proxy.7.3.
        node: NodeId,
        /// What it says.
        text: String,
    },
    /// Ask a node whether it is there, and how long that takes.
    Ping {
        #[command(flatten)]
        through: Through,
        /// The node; without one, that which is connected to.
        node: Option<NodeId>,
        /// How often.
        #[arg(long, default_value_t = 4)]
        count: u32,
    },
    /// Print a node and all below it, each with its upstream and its labels.
    Tree {
        #[command(flatten)]
        through: Through,
        /// The node; without one, that which is connected to.
        node: Option<NodeId>,
    },
    /// Measure what the channels carry: messages filled, sent, received and checked.
    ///
    /// A receiver and each sender are processes; with two cores or more the receiver has one, and
    /// the senders share another. Every message is filled, copied in and out and looked at byte by
    /// byte; messages lost, doubled, out of order or changed are counted, and end the command with
    /// status 1. Round trips are measured behind that.
    Bench(Bench),
    /// A process of the benchmark.
    #[command(hide = true)]
    BenchEnd {
        /// What it is to do.
        order: String,
    },
    /// Print what a node has counted.
    Stats {
        #[command(flatten)]
        through: Through,
        /// The node; without one, that which is connected to.
        node: Option<NodeId>,
    },
}

/// How to come to the bus.
#[derive(Debug, Args)]
pub struct Through {
    /// Where a node listens; several are tried in their order.
    #[arg(long, required = true, value_name = "URL")]
    at: Vec<Url>,
    /// A file with the token of the bus.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// How long to wait for an answer, in seconds.
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    within: u64,
}

/// Does what was typed.
pub fn run(bus: Bus) -> Result<ExitCode> {
    match bus {
        Bus::Node { file } => node(&file),
        Bus::Bench(arguments) => bench(arguments),
        Bus::BenchEnd { order } => take_part(&order),
        Bus::Send { through, node, text } => Guest::join(&through)?.send(node, &text),
        Bus::Ping { through, node, count } => Guest::join(&through)?.ping(node, count),
        Bus::Tree { through, node } => Guest::join(&through)?.ask(node, "bus.tree"),
        Bus::Stats { through, node } => Guest::join(&through)?.ask(node, "bus.stats"),
    }
}

/// Grows with every start: see [`Settings::incarnation`].
fn incarnation() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let millis = now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000;
    millis << 20
}

fn node(file: &std::path::Path) -> Result<ExitCode> {
    let config = match BusConfig::load(file) {
        Ok(config) => config,
        Err(errors) => {
            errors.iter().for_each(|error| eprintln!("{error}"));
            return Ok(ExitCode::from(2));
        }
    };
    let mut settings = config.settings;
    (settings.place, settings.incarnation) = (here(), incarnation());
    let mut driver = Driver::new(settings, DriverSettings { share_with: config.share_with })?;
    let urls: Vec<String> = driver.urls().iter().map(ToString::to_string).collect();
    say!("ready {} {}", driver.node().id(), urls.join(" "));
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&is_over))
            .context("cannot watch for signals")?;
    }
    loop {
        driver.turn(TURN)?;
        while let Some(event) = driver.poll_event() {
            if event == Event::Gone {
                return Ok(ExitCode::SUCCESS);
            }
            on_event(&mut driver, event);
        }
        // ORDER: nothing but the flag itself is told.
        if is_over.swap(false, Ordering::Relaxed) {
            driver.node().leave(clock());
        }
    }
}

/// One line for everything that happens, for people and for tests.
fn on_event(driver: &mut Driver, event: Event) {
    match event {
        Event::PeerUp { identity, by_us, .. } => {
            let how = if by_us { "dialled" } else { "accepted" };
            say!("peer {} {how} {}", identity.id, identity.labels);
        }
        Event::PeerDown { id, reason } => say!("lost {id}: {reason}"),
        Event::Refused { id, reason } => say!("refused {id}: {reason}"),
        Event::Joined(id) => say!("joined {id}"),
        Event::Left(id) => say!("left {id}"),
        Event::Upstream(Some(id)) => say!("upstream {id}"),
        Event::Upstream(None) => say!("upstream none"),
        Event::Message { from, body, .. } => {
            say!("message {from} {}", String::from_utf8_lossy(&body).escape_debug());
        }
        Event::Command { from, seq, .. } => {
            // Nobody here has commands; an answer that cannot be sent is a timeout there.
            let _ = driver.node().reply(
                from,
                seq,
                1,
                &["this node has no commands of its own"],
                clock(),
            );
        }
        Event::Push { topic, epoch, version, body } => {
            say!("push {topic} {epoch} {version} {} bytes", body.len());
            driver.node().applied(&topic, keyway_bus::Stamp { epoch, version }, true, clock());
        }
        Event::PushConflict { topic, epoch, version } => {
            say!("conflict {topic} {epoch} {version}")
        }
        _ => {}
    }
}

/// Somebody who asks and goes.
struct Guest {
    driver: Driver,
    upstream: NodeId,
    within: Duration,
}

impl Guest {
    fn join(through: &Through) -> Result<Self> {
        let mut settings = Settings::of(NodeId::NONE);
        settings.upstreams = vec![Upstream { id: NodeId::NONE, urls: through.at.clone() }];
        (settings.place, settings.incarnation) = (here(), incarnation());
        if let Some(file) = &through.token_file {
            let named = || format!("token file {}", file.display());
            let token = read_token(&file.to_string_lossy())
                .map_err(anyhow::Error::msg)
                .with_context(named)?;
            let mut tokens = Tokens::default();
            tokens.add(&token).with_context(named)?;
            settings.tokens = tokens;
        }
        let driver = Driver::new(settings, DriverSettings::default())?;
        let within = Duration::from_secs(through.within.clamp(1, 3600));
        let mut guest = Self { driver, upstream: NodeId::NONE, within };
        guest.upstream = guest.wait(|event| match event {
            Event::Upstream(Some(id)) => Some(Ok(id)),
            // What will not be otherwise in a moment; that nobody listens yet may be.
            Event::Refused { reason, .. }
                if reason != Reason::DialFailed && reason != Reason::Closed =>
            {
                Some(Err(reason))
            }
            _ => None,
        })??;
        Ok(guest)
    }

    /// Waits until an event is what is looked for.
    fn wait<T>(&mut self, mut find: impl FnMut(Event) -> Option<T>) -> Result<T> {
        let end = clock() + self.within;
        loop {
            while let Some(event) = self.driver.poll_event() {
                if let Some(found) = find(event) {
                    return Ok(found);
                }
            }
            let now = clock();
            if now >= end {
                bail!("no answer within {} seconds", self.within.as_secs());
            }
            self.driver.turn(end.since(now))?;
        }
    }

    /// Leaves, so that nobody waits for it.
    fn leave(mut self) -> Result<ExitCode> {
        self.driver.node().leave(clock());
        self.wait(|event| (event == Event::Gone).then_some(()))?;
        Ok(ExitCode::SUCCESS)
    }

    fn send(mut self, node: NodeId, text: &str) -> Result<ExitCode> {
        let options = SendOptions { ack_within: Some(self.within), no_upstream: false };
        let begin = clock();
        let sent = self.driver.node().send(node, text.as_bytes(), options, begin)?;
        let outcome = self.wait(|event| match event {
            Event::Acked { seq } if seq == sent => Some(Ok(())),
            Event::Failed { seq, by, reason, maybe, .. } if seq == sent => {
                Some(Err((by, reason, maybe)))
            }
            _ => None,
        })?;
        match outcome {
            Ok(()) => say!("arrived at {node} after {:?}", clock().since(begin)),
            Err((_, reason, true)) => {
                bail!("no word of its arrival, so it may have arrived: {reason}")
            }
            Err((by, reason, false)) => bail!("not delivered: {by} says: {reason}"),
        }
        self.leave()
    }

    fn command(&mut self, node: NodeId, name: &str) -> Result<Vec<Vec<u8>>> {
        let sent = self.driver.node().command(node, &[name], self.within, clock())?;
        let outcome = self.wait(|event| match event {
            Event::Result { seq, items, .. } if seq == sent => Some(Ok(items)),
            Event::Failed { seq, by, reason, .. } if seq == sent => Some(Err((by, reason))),
            _ => None,
        })?;
        outcome.map_err(|(by, reason)| anyhow::anyhow!("{by} says: {reason}"))
    }

    fn ping(mut self, node: Option<NodeId>, count: u32) -> Result<ExitCode> {
        let node = node.unwrap_or(self.upstream);
        for _ in 0..count {
            let begin = clock();
            self.command(node, "bus.ping")?;
            say!("pong from {node} after {:?}", clock().since(begin));
        }
        self.leave()
    }

    fn ask(mut self, node: Option<NodeId>, name: &str) -> Result<ExitCode> {
        let node = node.unwrap_or(self.upstream);
        for line in self.command(node, name)? {
            say!("{}", String::from_utf8_lossy(&line));
        }
        self.leave()
    }
}
