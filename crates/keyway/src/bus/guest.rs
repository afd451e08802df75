//! A guest that joins the bus, asks and leaves.

use super::{Through, incarnation, say};
use anyhow::{Context, Result, bail};
use keyway_bus::{Event, NodeId, Reason, SendOptions, Settings, Tokens, Upstream, Url};
use keyway_channel::{Driver, DriverSettings, clock, here};
use keyway_config::read_token;
use keyway_tls::{Identity, PeerSettings, PeerTls};
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Returns advice for a reason why an address could not be reached.
fn hint(at: &Url, reason: Reason) -> &'static str {
    match reason {
        Reason::NoAnswer if matches!(at, Url::Shm { .. }) => {
            " (if it is a socket of unix://, write that)"
        }
        Reason::Denied => " (the node there says so: is --token-file the token of that bus?)",
        Reason::Unproven => " (is --token-file the token of that bus?)",
        Reason::NotTls => " (leave out --ca-file, if that bus has no TLS)",
        Reason::HungUp | Reason::NotBus => {
            " (or it wants TLS: --ca-file, --cert-file and --key-file)"
        }
        Reason::CertificateName | Reason::CertificateRefused => {
            " (a guest's certificate is made out to guest.bus.keyway)"
        }
        _ => "",
    }
}

/// Returns the addresses that could not be reached, each with the reason.
fn told(unreached: &[(Url, Reason)]) -> String {
    let lines = unreached.iter().map(|(at, reason)| format!("{at}: {reason}{}", hint(at, *reason)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Reads the body of a message or publication. `what` names it in errors.
pub fn read_body(file: &Path, what: &str, len_max: usize) -> Result<Vec<u8>> {
    let named = || format!("cannot read {}", file.display());
    let mut body = Vec::new();
    let limit = len_max as u64 + 1;
    if file == Path::new("-") {
        std::io::stdin().take(limit).read_to_end(&mut body).with_context(named)?;
    } else {
        let opened = std::fs::File::open(file).with_context(named)?;
        opened.take(limit).read_to_end(&mut body).with_context(named)?;
    }
    if body.len() > len_max {
        bail!("{} is longer than a {what} may be, {len_max} bytes", file.display());
    }
    Ok(body)
}

fn tls(through: &Through) -> Result<Option<PeerTls>> {
    let (Some(ca_file), Some(cert_file), Some(key_file)) =
        (&through.ca_file, &through.cert_file, &through.key_file)
    else {
        return Ok(None);
    };
    let identity = Identity { cert_file: cert_file.clone(), key_file: key_file.clone() };
    let settings = PeerSettings { ca_file: ca_file.clone(), identity };
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))
    };
    match PeerTls::load(&settings, &read) {
        Ok(loaded) => {
            for fault in loaded.warnings {
                eprintln!("warning: {}; {}", fault.what, fault.hint);
            }
            Ok(Some(loaded.tls))
        }
        Err(faults) => {
            let lines = faults.iter().map(|fault| format!("{}; {}", fault.what, fault.hint));
            bail!("{}", lines.collect::<Vec<_>>().join("\n"))
        }
    }
}

/// A node without an id that exists for one command.
pub struct Guest {
    driver: Driver,
    upstream: NodeId,
    within: Duration,
}

impl Guest {
    /// Joins by the first address that leads to the bus.
    pub fn join(through: &Through) -> Result<Self> {
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
        let tls = tls(through)?;
        let driver = Driver::new(settings, DriverSettings { tls, ..DriverSettings::default() })?;
        let within = Duration::from_secs(through.within);
        let mut guest = Self { driver, upstream: NodeId::NONE, within };
        let mut unreached = Vec::new();
        let joined = guest.wait(|event| match event {
            Event::Upstream(Some(id)) => Some(Some(id)),
            Event::Unreached { at, reason, .. } => {
                unreached.push((*at, reason));
                None
            }
            // All addresses were tried.
            Event::Refused { .. } => Some(None),
            _ => None,
        });
        if let Some(unshared) = guest.driver.poll_unshared() {
            eprintln!("warning: {}: {}; its socket is used instead", unshared.url, unshared.why);
        }
        match joined {
            Ok(Some(id)) => guest.upstream = id,
            Ok(None) => bail!("{}", told(&unreached)),
            Err(late) if unreached.is_empty() => return Err(late),
            Err(late) => bail!("{}\n{late}", told(&unreached)),
        }
        Ok(guest)
    }

    /// Waits until `find` accepts an event.
    fn wait<T>(&mut self, find: impl FnMut(Event) -> Option<T>) -> Result<T> {
        let within = self.within;
        match self.wait_for(Some(within), find)? {
            Some(found) => Ok(found),
            None => bail!("no answer within {} seconds", within.as_secs()),
        }
    }

    /// Waits until `find` accepts an event, for the time `within` or without end. Returns `None` if
    /// the time is over.
    fn wait_for<T>(
        &mut self,
        within: Option<Duration>,
        mut find: impl FnMut(Event) -> Option<T>,
    ) -> Result<Option<T>> {
        let end = within.map(|within| clock() + within);
        loop {
            while let Some(event) = self.driver.poll_event() {
                if let Some(found) = find(event) {
                    return Ok(Some(found));
                }
            }
            let now = clock();
            if end.is_some_and(|end| now >= end) {
                return Ok(None);
            }
            self.driver.turn(end.map_or(Duration::from_secs(60), |end| end.since(now)))?;
        }
    }

    /// Leaves the bus, so that no node waits for this guest.
    fn leave(mut self) -> Result<ExitCode> {
        self.driver.node().leave(clock());
        self.wait(|event| (event == Event::Gone).then_some(()))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Runs `keyway bus send`.
    pub fn send(mut self, node: NodeId, body: &[u8]) -> Result<ExitCode> {
        let options = SendOptions { ack_within: Some(self.within), no_upstream: false };
        let begin = clock();
        let sent = self.driver.node().send(node, body, options, begin)?;
        let outcome = self.wait(|event| match event {
            Event::Acked { seq } if seq == sent => Some(Ok(())),
            Event::Failed { seq, by, reason, maybe, .. } if seq == sent => {
                Some(Err((by, reason, maybe)))
            }
            _ => None,
        })?;
        match outcome {
            Ok(()) => drop(say!("arrived at {node} after {:?}", clock().since(begin))?),
            Err((_, reason, true)) => {
                bail!("no word of its arrival, so it may have arrived: {reason}")
            }
            Err((by, reason, false)) => bail!("not delivered: {by} says: {reason}"),
        }
        self.leave()
    }

    /// Sends a command, and returns the status and the lines of its answer.
    fn command<T: AsRef<[u8]>>(&mut self, node: NodeId, args: &[T]) -> Result<(u16, Vec<Vec<u8>>)> {
        let sent = self.driver.node().command(node, args, self.within, clock())?;
        let outcome = self.wait(|event| match event {
            Event::Result { seq, status, items, .. } if seq == sent => Some(Ok((status, items))),
            Event::Failed { seq, by, reason, maybe, .. } if seq == sent => {
                Some(Err((by, reason, maybe)))
            }
            _ => None,
        })?;
        outcome.map_err(|(by, reason, maybe)| match maybe {
            true => {
                anyhow::anyhow!("no word of it from {node}, so it may have been done: {reason}")
            }
            false => anyhow::anyhow!("not done: {by} says: {reason}"),
        })
    }

    /// Runs `keyway bus ping`.
    pub fn ping(mut self, node: Option<NodeId>, count: u32) -> Result<ExitCode> {
        let node = node.unwrap_or(self.upstream);
        for _ in 0..count {
            let begin = clock();
            self.command(node, &["bus.ping"])?;
            say!("pong from {node} after {:?}", clock().since(begin))?;
        }
        self.leave()
    }

    /// Sends a command without arguments, and prints the lines of the answer.
    pub fn ask(mut self, node: Option<NodeId>, name: &str) -> Result<ExitCode> {
        let node = node.unwrap_or(self.upstream);
        for line in self.command(node, &[name])?.1 {
            say!("{}", String::from_utf8_lossy(&line))?;
        }
        self.leave()
    }

    /// Runs `keyway bus publish`.
    pub fn publish(
        mut self,
        node: Option<NodeId>,
        topic: &str,
        epoch: Option<u64>,
        body: &[u8],
    ) -> Result<ExitCode> {
        let node = node.unwrap_or(self.upstream);
        let epoch = epoch.map(|epoch| epoch.to_string()).unwrap_or_default();
        let args = [super::node::PUBLISH, topic.as_bytes(), epoch.as_bytes(), body];
        let (status, items) = self.command(node, &args)?;
        let said = items.iter().map(|item| String::from_utf8_lossy(item)).collect::<Vec<_>>();
        if status != 0 {
            bail!("{node} says: {}", said.join(" "));
        }
        say!("{topic} {}", said.join(" "))?;
        self.leave()
    }

    /// Runs `keyway bus watch`.
    pub fn watch(
        mut self,
        topic: Option<&str>,
        with_body: bool,
        count: Option<u32>,
    ) -> Result<ExitCode> {
        let mut left = count;
        while left != Some(0) {
            let next = self.wait_for(None, |event| match event {
                Event::PeerDown { id, reason } => {
                    eprintln!("lost {id}: {reason}; it is looked for");
                    None
                }
                Event::Upstream(Some(id)) => {
                    eprintln!("joined {id} again");
                    None
                }
                Event::Push { topic: name, epoch, version, body }
                    if topic.is_none_or(|topic| topic == name) =>
                {
                    Some((name, epoch, version, body))
                }
                _ => None,
            })?;
            let Some((name, epoch, version, body)) = next else { break };
            let mut lines = format!("{name} {epoch} {version} {}\n", body.len()).into_bytes();
            if with_body {
                lines.extend_from_slice(&body);
                lines.push(b'\n');
            }
            if !crate::cli::print(&lines)? {
                break;
            }
            left = left.map(|left| left - 1);
        }
        self.leave()
    }
}
