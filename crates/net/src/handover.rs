//! Hands listening sockets from one process to the next, by a socket between the two.
//!
//! ```text
//!  the one that serves                     the next
//!                          ◄── Hello          its configuration is right
//!  Sockets, …, AllSent     ──►
//!                          ◄── Ready          it lacks nothing to serve; or Refused
//!  Held, …                 ──►                if its Hello says that it understands them
//!  Unreplicated, …         ──►                likewise
//!  Begin                   ──►                it accepts clients
//!                          ◄── Serving
//!  accepts no more
//! ```
//! Where the serving process has embedded stores, and Hello says that the next one takes them:
//!
//! ```text
//!  Origin, Store, …        ──►                in front of AllSent, with sockets for their data
//!                          ◄── Ready          it has the data, and follows
//!  Final, …                ──►                requests are held; in front of Begin
//!                          ◄── Serving        it has all, and accepts: there is no way back
//! ```
//! Each message is one packet: fields separated by zero bytes, with descriptors beside them.
//! Sockets are handed over only after a Hello, so a program that is not Keyway gets none.
//!
//! Messages added later are announced by a further field of Hello. Versions that do not know the
//! field ignore it.

mod parcels;
mod stores;

pub use parcels::Parcels;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
    recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::Duration;

/// Most descriptors in one message; Linux takes 253.
pub const HANDED_AT_ONCE: usize = 128;

/// Longest message, in bytes. The reasons of a refusal are cut at half of it.
const MESSAGE_LEN_MAX: usize = 32 << 10;

/// The beginning of every message. Another number means another protocol.
const MAGIC: &str = "keyway-handover-1";

/// The first field of a message about held servers, and the field of Hello that announces it.
const HELD: &str = "held";

/// The same for a message about shards that have lost their replicas.
const UNREPLICATED: &str = "unreplicated";

/// The field of Hello that announces that stores are taken over.
const STORES: &str = "stores";

/// Most servers in one message: with the longest names and addresses they still fit.
pub const HELD_AT_ONCE: usize = 8;

/// The use of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// For clients, by the listener at this position.
    Listener(u16),
    /// For the admin address.
    Admin,
}

/// Sockets that listen on one address.
#[derive(Debug)]
pub struct Handed {
    /// Their use.
    pub place: Place,
    /// The address as the configuration has it.
    pub bind: String,
    /// The TCP address, if they are TCP sockets.
    pub addr: Option<SocketAddr>,
    /// The sockets. With TCP each worker has one, and clients may wait in all of them.
    pub sockets: Vec<OwnedFd>,
}

/// A store that is handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedStore {
    /// The name of its pool.
    pub pool: String,
    /// The directory of its log; empty without one.
    pub log: String,
    /// The address of the primary that the configuration names; empty without one.
    pub primary: String,
}

/// A store as it is when its requests are held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinalStore {
    /// The name of its pool.
    pub pool: String,
    /// The offset at which its effects end.
    pub offset: u64,
    /// The greatest count by which a value got a number for `cas`.
    pub numbers: u64,
    /// A number that no client's id has reached.
    pub clients: u64,
    /// Flushes that are still to come: the database, and when, in milliseconds since the Unix epoch.
    pub flushes: Vec<(u32, u64)>,
    /// The primary that it follows, if it is a replica.
    pub primary: Option<Followed>,
    /// The id of the history that its replicas know, whose offset is `offset`. None without
    /// replicas.
    pub history: Option<String>,
    /// The number of replicas that have been heard within `min_replicas_max_lag`.
    pub replicas: u64,
}

/// The primary of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The primary's host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The id of the history that the data is of, the offset in it, and the database of the next
    /// command. None if the data is no state of it.
    pub position: Option<(String, u64, Option<u64>)>,
}

/// A message between the two processes.
#[derive(Debug)]
pub enum Message {
    /// The next process is up, and its configuration is valid.
    Hello {
        /// True if the next process understands [`Message::Held`].
        takes_held: bool,
        /// True if the next process understands [`Message::Unreplicated`].
        takes_unreplicated: bool,
        /// True if the next process takes over the data and the clients of embedded stores.
        takes_stores: bool,
    },
    /// The origin of stores.
    Origin {
        /// The number that decides which keys of a store lie together.
        seed: u64,
        /// The socket by which clients come: see [`Parcels`](crate::Parcels).
        clients: OwnedFd,
    },
    /// A store.
    Store {
        /// The facts about it.
        store: HandedStore,
        /// The socket by which its data comes.
        socket: OwnedFd,
    },
    /// The end of a store in the serving process.
    Final(FinalStore),
    /// Some of the sockets of an address.
    Sockets(Handed),
    /// All sockets have been sent.
    AllSent,
    /// The next process can serve, and takes over these listeners.
    Ready {
        /// Their positions.
        kept: Vec<u16>,
    },
    /// The next process cannot serve.
    Refused {
        /// The reasons, a line for each.
        reasons: Vec<String>,
    },
    /// Servers that an operator has ejected.
    Held {
        /// The pool and the address of each.
        servers: Vec<(String, String)>,
    },
    /// Shards that have lost their replicas.
    Unreplicated {
        /// The pool of each and the address of its primary.
        primaries: Vec<(String, String)>,
    },
    /// The next process is to begin.
    Begin,
    /// The next process serves.
    Serving,
}

impl Message {
    fn encode(&self) -> Vec<u8> {
        let mut fields = vec![MAGIC.to_owned()];
        match self {
            Message::Hello { takes_held, takes_unreplicated, takes_stores } => {
                fields.push("hello".to_owned());
                fields.extend(takes_stores.then(|| STORES.to_owned()));
                fields.extend(takes_held.then(|| HELD.to_owned()));
                fields.extend(takes_unreplicated.then(|| UNREPLICATED.to_owned()));
            }
            Message::Sockets(handed) => {
                fields.push("sockets".to_owned());
                fields.push(match handed.place {
                    Place::Listener(index) => index.to_string(),
                    Place::Admin => "admin".to_owned(),
                });
                fields.push(handed.bind.clone());
                fields.push(handed.addr.map_or_else(String::new, |addr| addr.to_string()));
            }
            Message::Origin { seed, .. } => {
                fields.extend(["origin".to_owned(), seed.to_string()]);
            }
            Message::Store { store, .. } => fields.extend(stores::fields_of_store(store)),
            Message::Final(store) => fields.extend(stores::fields_of_final(store)),
            Message::AllSent => fields.push("all-sent".to_owned()),
            Message::Ready { kept } => {
                fields.push("ready".to_owned());
                fields.extend(kept.iter().map(u16::to_string));
            }
            Message::Refused { reasons } => {
                fields.push("refused".to_owned());
                let mut left = MESSAGE_LEN_MAX / 2;
                for reason in reasons {
                    left = left.saturating_sub(reason.len() + 1);
                    if left == 0 {
                        break;
                    }
                    fields.push(reason.replace('\0', " "));
                }
            }
            Message::Held { servers } => push_servers(&mut fields, HELD, servers),
            Message::Unreplicated { primaries } => {
                push_servers(&mut fields, UNREPLICATED, primaries);
            }
            Message::Begin => fields.push("begin".to_owned()),
            Message::Serving => fields.push("serving".to_owned()),
        }
        fields.join("\0").into_bytes()
    }

    fn decode(bytes: &[u8], sockets: Vec<OwnedFd>) -> Option<Message> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut fields = text.split('\0');
        if fields.next()? != MAGIC {
            return None;
        }
        Some(match fields.next()? {
            "hello" => {
                let known: Vec<&str> = fields.collect();
                Message::Hello {
                    takes_held: known.contains(&HELD),
                    takes_unreplicated: known.contains(&UNREPLICATED),
                    takes_stores: known.contains(&STORES),
                }
            }
            "origin" => Message::Origin {
                seed: fields.next()?.parse().ok()?,
                clients: sockets.into_iter().next()?,
            },
            stores::STORE => Message::Store {
                store: stores::store_of(fields)?,
                socket: sockets.into_iter().next()?,
            },
            stores::FINAL => Message::Final(stores::final_of(fields)?),
            "sockets" => {
                let place = match fields.next()? {
                    "admin" => Place::Admin,
                    index => Place::Listener(index.parse().ok()?),
                };
                let bind = fields.next()?.to_owned();
                let addr = match fields.next()? {
                    "" => None,
                    addr => Some(addr.parse().ok()?),
                };
                Message::Sockets(Handed { place, bind, addr, sockets })
            }
            "all-sent" => Message::AllSent,
            "ready" => {
                let kept = fields.map(|index| index.parse().ok()).collect::<Option<_>>()?;
                Message::Ready { kept }
            }
            "refused" => Message::Refused { reasons: fields.map(str::to_owned).collect() },
            HELD => Message::Held { servers: servers_of(fields) },
            UNREPLICATED => Message::Unreplicated { primaries: servers_of(fields) },
            "begin" => Message::Begin,
            "serving" => Message::Serving,
            _ => return None,
        })
    }

    fn sockets(&self) -> &[OwnedFd] {
        match self {
            Message::Sockets(handed) => &handed.sockets,
            Message::Origin { clients: socket, .. } | Message::Store { socket, .. } => {
                std::slice::from_ref(socket)
            }
            _ => &[],
        }
    }
}

/// Appends a message about servers: the pool and the address of each.
fn push_servers(fields: &mut Vec<String>, name: &str, servers: &[(String, String)]) {
    fields.push(name.to_owned());
    for (pool, address) in servers {
        fields.extend([pool.replace('\0', " "), address.replace('\0', " ")]);
    }
}

fn servers_of<'m>(fields: impl Iterator<Item = &'m str>) -> Vec<(String, String)> {
    let fields: Vec<&str> = fields.collect();
    fields.chunks_exact(2).map(|it| (it[0].to_owned(), it[1].to_owned())).collect()
}

/// One end of the socket between two processes.
#[derive(Debug)]
pub struct Handover {
    socket: OwnedFd,
}

impl Handover {
    /// Creates a pair. The other end is for the next process.
    ///
    /// # Errors
    /// Returns an error if no file descriptor is left.
    pub fn pair() -> io::Result<(Handover, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (socket, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Handover { socket }, other))
    }

    /// Wraps the end that this process was given.
    ///
    /// # Errors
    /// Returns an error if it is not such a socket, or if another user made its other end.
    pub fn given(socket: OwnedFd) -> io::Result<Handover> {
        let wrong = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let is_one = sockopt::socket_domain(&socket) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(&socket) == Ok(SocketType::SEQPACKET);
        if !is_one {
            return wrong("it is no socket of a process that hands its own over");
        }
        // The pair was made by the serving process.
        if sockopt::socket_peercred(&socket)?.uid != rustix::process::geteuid() {
            return wrong("the process that hands its sockets over is another user's");
        }
        Ok(Handover { socket })
    }

    /// Duplicates this end, to [`Handover::cut`] it from another thread.
    ///
    /// # Errors
    /// Returns an error if no file descriptor is left.
    pub fn try_clone(&self) -> io::Result<Handover> {
        Ok(Handover { socket: self.socket.try_clone()? })
    }

    /// Cuts the connection. Both sides notice at once.
    pub fn cut(&self) {
        // This fails only if it is cut already.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Sends a message, within a bound of time.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the time is over, and `BrokenPipe` if the other process is gone.
    pub fn say(&self, message: &Message, within: Duration) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.socket, Timeout::Send, Some(bounded(within)))?;
        let sockets: Vec<BorrowedFd<'_>> = message.sockets().iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDED_AT_ONCE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many sockets at once"));
        }
        let bytes = message.encode();
        loop {
            let sent =
                sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL);
            match sent {
                Err(Errno::INTR) => {}
                outcome => return outcome.map(drop).map_err(io::Error::from),
            }
        }
    }

    /// Receives the next message, within a bound of time.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the time is over, `UnexpectedEof` if the other process is gone, and
    /// `InvalidData` if the message cannot be understood.
    pub fn hear(&self, within: Duration) -> io::Result<Message> {
        sockopt::set_socket_timeout(&self.socket, Timeout::Recv, Some(bounded(within)))?;
        let mut bytes = vec![0; MESSAGE_LEN_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDED_AT_ONCE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            let mut whole = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.socket, &mut whole, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                outcome => break outcome?,
            }
        };
        let mut sockets = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                sockets.extend(descriptors);
            }
        }
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            let what = "a message was cut: a limit of file descriptors?";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Message::decode(&bytes[..got.bytes], sockets).ok_or_else(|| {
            let what = "the other process is a Keyway of another kind, or none";
            io::Error::new(io::ErrorKind::InvalidData, what)
        })
    }
}

/// Returns a bound that is not zero, because zero would mean no bound to the system.
fn bounded(within: Duration) -> Duration {
    within.max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, Listener, ListenerOptions};
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    const SOON: Duration = Duration::from_secs(5);

    fn both() -> (Handover, Handover) {
        let (here, there) = Handover::pair().unwrap();
        (here, Handover::given(there).expect("it is our own"))
    }

    #[test]
    fn what_is_said_is_heard() {
        let (here, there) = both();
        let messages = [
            Message::Hello { takes_held: false, takes_unreplicated: false, takes_stores: false },
            Message::Hello { takes_held: true, takes_unreplicated: false, takes_stores: false },
            Message::Hello { takes_held: true, takes_unreplicated: true, takes_stores: true },
            Message::Unreplicated { primaries: vec![("p".to_owned(), "[::1]:7001".to_owned())] },
            Message::Held { servers: vec![("p".to_owned(), "127.0.0.1:7001".to_owned()); 2] },
            Message::Held { servers: Vec::new() },
            Message::Final(FinalStore::default()),
            Message::Final(FinalStore {
                pool: "p".to_owned(),
                offset: u64::MAX,
                numbers: 7,
                clients: 99,
                flushes: vec![(0, 5), (3, 9)],
                primary: Some(Followed {
                    host: "::1".to_owned(),
                    port: 7001,
                    position: Some(("ab".to_owned(), 12, Some(3))),
                }),
                history: Some("cd".to_owned()),
                replicas: 2,
            }),
            Message::Final(FinalStore {
                primary: Some(Followed { host: "h".to_owned(), port: 1, position: None }),
                ..FinalStore::default()
            }),
            Message::AllSent,
            Message::Ready { kept: vec![0, 3] },
            Message::Refused { reasons: vec!["a".to_owned(), "b\nc".to_owned()] },
            Message::Begin,
            Message::Serving,
        ];
        for message in messages {
            here.say(&message, SOON).unwrap();
            assert_eq!(format!("{:?}", there.hear(SOON).unwrap()), format!("{message:?}"));
        }
        let silence = there.hear(Duration::from_millis(5)).unwrap_err();
        assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
        here.cut();
        assert_eq!(there.hear(SOON).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn reasons_without_end_are_cut_and_foreign_words_are_refused() {
        let (here, there) = both();
        let reasons = vec!["x".repeat(1000); 1000];
        here.say(&Message::Refused { reasons }, SOON).unwrap();
        assert!(matches!(there.hear(SOON), Ok(Message::Refused { reasons }) if reasons.len() > 10));
        for bytes in [&b"keyway-handover-2\0hello"[..], b"hello", b"\xff", b"keyway-handover-1"] {
            rustix::net::send(&here.socket, bytes, SendFlags::empty()).unwrap();
            assert_eq!(there.hear(SOON).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn a_client_that_waits_in_a_socket_is_served_by_who_takes_it() {
        let (here, there) = both();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        let mut client = TcpStream::connect(addr).unwrap();
        let bind = format!("tcp://{addr}");
        let sockets = vec![socket.into()];
        let handed = Handed { place: Place::Listener(7), bind, addr: Some(addr), sockets };
        here.say(&Message::Sockets(handed), SOON).unwrap();
        let Ok(Message::Sockets(mut handed)) = there.hear(SOON) else { panic!("sockets") };
        assert_eq!((handed.place, handed.addr), (Place::Listener(7), Some(addr)));
        let options = |address| ListenerOptions {
            address,
            backlog: 16,
            unix_mode: None,
            unix_owner: (None, None),
            tcp_keepalive: None,
            door: None,
            only_v6: false,
        };
        let tcp = options(Address::Tcp { host: "127.0.0.1".to_owned(), port: addr.port() });
        let unix = options(Address::Unix("/nowhere".into()));
        let socket = handed.sockets.remove(0);
        let twin = socket.try_clone().unwrap();
        assert!(Listener::taken(twin, &unix).is_err(), "it is none of that kind");
        let listener = Listener::taken(socket, &tcp).unwrap();
        listener.hold().settle().unwrap();
        let accepted = rustix::net::accept(&listener).expect("a client waits");
        drop(accepted);
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "it was served by this one");
        let hold = listener.hold();
        assert!(hold.socket().unwrap().is_some());
        drop(listener);
        assert!(hold.socket().unwrap().is_none(), "a hold keeps nothing open");
    }

    #[test]
    fn what_is_no_such_socket_is_not_believed() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Handover::given(file.into()).is_err());
        let stream = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(Handover::given(stream.into()).is_err());
    }
}
