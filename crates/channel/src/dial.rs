//! Connecting, on a thread of its own, because resolving a name and waiting for an answer take
//! long.

use crate::rings::Rings;
use crate::secure::{self, Secured};
use crate::sockets::{addresses, connect_unix, is_ours, keep_alive, mem_name, reason};
use crate::stream::Stream;
use crate::within::{self, Left, Pair};
use keyway_bus::{DialKey, Host, Reason, Url};
use keyway_ring::{Hello, Refusal, Shared, ask};
use keyway_tls::PeerTls;
use rustix::fd::OwnedFd;

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Longest wait for one address to answer. Nodes wait a little longer; this bound also ends the
/// thread.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The result of a dial. The thread that will have it makes a [`Stream`] of it.
pub(crate) enum Dialled {
    Tcp(TcpStream),
    Unix(UnixStream),
    Shared(Box<Shared>, UnixStream),
    Within(Pair, Left, UnixStream),
    Tls(Box<Secured>),
}

impl Dialled {
    pub fn into_stream(self) -> io::Result<Stream> {
        Ok(match self {
            Dialled::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                Stream::Tcp(stream)
            }
            Dialled::Unix(stream) => {
                stream.set_nonblocking(true)?;
                Stream::Unix(stream)
            }
            Dialled::Tls(secured) => {
                secured.set_nonblocking()?;
                Stream::Tls(secured)
            }
            Dialled::Shared(shared, stream) => {
                stream.set_nonblocking(true)?;
                Stream::Rings(Box::new(Rings::shared(*shared, stream)))
            }
            Dialled::Within(pair, left, stream) => {
                stream.set_nonblocking(true)?;
                Stream::Within(Box::new(Rings::within(pair, Some(left), stream)))
            }
        })
    }
}

/// An address of shared memory whose listener refuses to share memory. The connection uses its
/// socket instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unshared {
    /// The address.
    pub url: Url,
    /// The reason.
    pub why: Refusal,
}

/// A dial and its outcome.
pub(crate) type Outcome = (DialKey, Result<Dialled, Reason>, Option<Unshared>);

/// Connects to `url`, and sends the outcome.
pub(crate) fn start(
    dial: DialKey,
    url: Url,
    tls: Option<PeerTls>,
    outcomes: Sender<Outcome>,
    wake: Arc<OwnedFd>,
) -> io::Result<()> {
    std::thread::Builder::new().name("keyway-bus-dial".to_owned()).spawn(move || {
        let mut refusal = None;
        let outcome = connect(&url, tls.as_ref(), &mut refusal);
        let unshared = refusal.map(|why| Unshared { url, why });
        // The outcome is lost if the driver has ended.
        if outcomes.send((dial, outcome, unshared)).is_ok() {
            let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
        }
    })?;
    Ok(())
}

fn connect(
    url: &Url,
    tls: Option<&PeerTls>,
    refusal: &mut Option<Refusal>,
) -> Result<Dialled, Reason> {
    match url {
        Url::Tcp { host, port } => {
            let tcp = connect_tcp(host, *port)?;
            match tls {
                Some(tls) => {
                    let secured = secure::dial(tcp, tls, ANSWER_WITHIN)?;
                    Ok(Dialled::Tls(Box::new(secured)))
                }
                None => Ok(Dialled::Tcp(tcp)),
            }
        }
        Url::Unix(at) => Ok(Dialled::Unix(connect_unix(at)?)),
        Url::Shm { at, ring_len } => share(connect_unix(at)?, *ring_len, refusal),
        Url::Mem(name) => {
            let stream = connect_unix(&mem_name(name))?;
            match is_ours(&stream) {
                Ok(true) => {
                    let (pair, left) = within::leave(&stream).map_err(|error| reason(&error))?;
                    Ok(Dialled::Within(pair, left, stream))
                }
                _ => Err(Reason::NoPermission),
            }
        }
    }
}

fn connect_tcp(host: &Host, port: u16) -> Result<TcpStream, Reason> {
    let mut last = Reason::NoName;
    let all = addresses(host, port).map_err(|_| Reason::NoName)?;
    // A name with several addresses gets no more time for that.
    let each = (ANSWER_WITHIN / all.len().max(1) as u32).max(ANSWER_WITHIN / 8);
    for address in all {
        match TcpStream::connect_timeout(&address, each) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = reason(&error),
        }
    }
    Err(last)
}

/// Asks for rings. If the listener refuses, which is noted in `refusal`, the connection uses the
/// socket.
fn share(
    stream: UnixStream,
    ring_len: usize,
    refusal: &mut Option<Refusal>,
) -> Result<Dialled, Reason> {
    let asked = stream
        .set_read_timeout(Some(ANSWER_WITHIN))
        .and_then(|()| ask(&stream, &Hello::new(ring_len, ring_len)));
    match asked {
        Ok(Ok(shared)) => Ok(Dialled::Shared(Box::new(shared), stream)),
        Ok(Err(why)) => {
            *refusal = Some(why);
            Ok(Dialled::Unix(stream))
        }
        // The connection was made; only the answer is late.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Reason::NoAnswer),
        Err(error) => Err(reason(&error)),
    }
}
