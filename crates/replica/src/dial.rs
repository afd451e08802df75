//! Connecting: looking the host up and waiting for an answer, both of which end
//! at once when the follower stops.

use crate::fault::{Cause, Stage};
use crate::settings::{FollowerSettings, Lookups};
use crate::wake::{Waited, Wake};
use crate::wire::{Wire, system};
use keyway_topology::Endpoint;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Instant;

/// Why there is no connection.
pub(crate) enum Failed {
    /// The follower stops.
    Stop,
    /// Something is wrong.
    Fault(Stage, Cause),
}

/// Connects, again and again.
pub(crate) struct Dialler {
    wake: Arc<Wake>,
    /// A look-up that has not ended. The system's resolver cannot be stopped, so
    /// the next try waits for the same one.
    lookup: Option<Receiver<Result<Vec<SocketAddr>, String>>>,
}

impl Dialler {
    pub(crate) fn new(wake: Arc<Wake>) -> Self {
        Self { wake, lookup: None }
    }

    /// Connects to the primary.
    pub(crate) fn connect(&mut self, settings: &FollowerSettings) -> Result<Wire, Failed> {
        let until = self.wake.now() + settings.connect_timeout;
        let late = Cause::Timeout(settings.connect_timeout);
        let (socket, host) = match &settings.primary {
            Endpoint::Tcp { host, port } => {
                let addresses = self.addresses((&settings.lookups, host, *port), until, &late)?;
                (self.connect_tcp(&addresses, until, &late)?, host.as_str())
            }
            Endpoint::Unix { path } => {
                let connected = self.wake.system().connect_unix(path);
                let failed = |error| Failed::Fault(Stage::Connect, system(error));
                (connected.map_err(failed)?, "localhost")
            }
            Endpoint::Shm { .. } => return Err(Failed::Fault(Stage::Connect, Cause::Endpoint)),
        };
        let tls = settings.tls.as_ref().map(|tls| (tls, host));
        Wire::new(socket, tls).map_err(|cause| Failed::Fault(Stage::Connect, cause))
    }

    fn addresses(
        &mut self,
        (lookups, host, port): (&Lookups, &str, u16),
        until: Instant,
        late: &Cause,
    ) -> Result<Vec<SocketAddr>, Failed> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let failed = |cause| Failed::Fault(Stage::Lookup, cause);
        let lookup = match self.lookup.take() {
            Some(lookup) => lookup,
            None => self.look_up(lookups, host, port).map_err(failed)?,
        };
        loop {
            match lookup.try_recv() {
                Ok(Ok(found)) if !found.is_empty() => return Ok(found),
                Ok(Ok(_)) => return Err(failed(Cause::Lookup("it has no address".to_owned()))),
                Ok(Err(text)) => return Err(failed(Cause::Lookup(text))),
                Err(TryRecvError::Disconnected) => {
                    return Err(failed(Cause::Lookup("the resolver failed".to_owned())));
                }
                Err(TryRecvError::Empty) => {}
            }
            match self.wake.wait(None, until) {
                Waited::Stop => return Err(Failed::Stop),
                Waited::Late => {
                    self.lookup = Some(lookup);
                    return Err(failed(late.clone()));
                }
                Waited::Ready | Waited::Nudged => {}
            }
        }
    }

    /// Asks the system's resolver, on a thread of its own.
    fn look_up(
        &self,
        lookups: &Lookups,
        host: &str,
        port: u16,
    ) -> Result<Receiver<Result<Vec<SocketAddr>, String>>, Cause> {
        let busy = || Cause::Lookup("the resolver still looks for the host before".to_owned());
        let lookup = lookups.begin().ok_or_else(busy)?;
        let (answer, answers) = sync_channel(1);
        let (wake, host) = (Arc::clone(&self.wake), host.to_owned());
        let resolve = move || {
            let found = (host.as_str(), port).to_socket_addrs();
            let found = found.map(Iterator::collect).map_err(|error| error.to_string());
            drop(lookup);
            // Nobody waits any more where the follower has stopped.
            let _ = answer.send(found);
            wake.nudge();
        };
        let thread = std::thread::Builder::new().name("keyway-resolve".to_owned()).spawn(resolve);
        thread.map(|_| answers).map_err(|error| Cause::System(error.to_string()))
    }

    /// Tries one address after the other; each has an equal share of the time.
    fn connect_tcp(
        &self,
        addresses: &[SocketAddr],
        until: Instant,
        late: &Cause,
    ) -> Result<OwnedFd, Failed> {
        let mut last = late.clone();
        for (nth, address) in addresses.iter().enumerate() {
            let now = self.wake.now();
            let left = until.saturating_duration_since(now);
            let share = left / (addresses.len() - nth).try_into().unwrap_or(u32::MAX);
            match self.connect_one(*address, now + share) {
                Ok(Some(socket)) => return Ok(socket),
                Ok(None) => return Err(Failed::Stop),
                Err(Errno::TIMEDOUT) => last = late.clone(),
                Err(error) => last = system(error),
            }
        }
        Err(Failed::Fault(Stage::Connect, last))
    }

    /// `None` where the follower stops.
    fn connect_one(&self, address: SocketAddr, until: Instant) -> Result<Option<OwnedFd>, Errno> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match connect(&socket, &address) {
            Ok(()) => return Ok(Some(socket)),
            Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        loop {
            match self.wake.wait(Some((socket.as_fd(), PollFlags::OUT)), until) {
                Waited::Ready => break,
                Waited::Nudged => {}
                Waited::Late => return Err(Errno::TIMEDOUT),
                Waited::Stop => return Ok(None),
            }
        }
        sockopt::socket_error(&socket)?.map(|()| Some(socket))
    }
}
