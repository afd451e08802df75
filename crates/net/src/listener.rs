use crate::tune::{keep_alive, tune};
use crate::{Address, Door};
use parking_lot::Mutex;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The options of a listener.
#[derive(Clone, Debug)]
pub struct ListenerOptions {
    /// Its address.
    pub address: Address,
    /// Most connections that wait in the system to be accepted.
    pub backlog: u32,
    /// Permission bits of a unix socket's file.
    pub unix_mode: Option<u32>,
    /// User and group that own the file.
    pub unix_owner: (Option<u32>, Option<u32>),
    /// Silence after which accepted TCP connections send keep-alive probes; none with `None`. A
    /// connection counts as broken after three unanswered probes, sent at a third of that interval.
    pub tcp_keepalive: Option<Duration>,
    /// Settings of shared memory; none with `None`.
    pub door: Option<Door>,
    /// True if `[::]` leaves IPv4 clients to another socket on that port.
    pub only_v6: bool,
}

/// A listening socket. With TCP several workers listen on the same port, and the system spreads
/// clients over them. A unix socket is shared by all workers.
#[derive(Debug)]
pub struct Listener {
    socket: Arc<Socket>,
    options: ListenerOptions,
    /// True if it has its address, but does not listen before [`Listener::open`].
    is_shut: bool,
    siblings: Siblings,
}

/// The sockets of all workers that listen on one address.
#[derive(Clone, Debug, Default)]
struct Siblings(Arc<Mutex<Vec<Weak<Socket>>>>);

impl Siblings {
    fn add(&self, socket: &Arc<Socket>) {
        let mut all = self.0.lock();
        all.retain(|sibling| sibling.strong_count() > 0);
        all.push(Arc::downgrade(socket));
    }

    fn others(&self, own: &Arc<Socket>) -> Vec<Arc<Socket>> {
        let all = self.0.lock();
        let others = all.iter().filter_map(Weak::upgrade);
        others.filter(|socket| !Arc::ptr_eq(socket, own)).collect()
    }
}

/// How a socket at `[::]` treats IPv4 clients differently from its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv4Amiss {
    /// It refuses them, but should accept them.
    Refused,
    /// It accepts them, but should leave them to another socket.
    Accepted,
}

/// The reason why the system refused to listen on an address.
#[derive(Debug)]
pub struct BindError {
    address: String,
    error: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen on {}: {}", self.address, self.error)?;
        match self.error.kind() {
            io::ErrorKind::AddrInUse => f.write_str(
                "; another process has it: stop that one, or choose another address for `bind`",
            ),
            io::ErrorKind::PermissionDenied => f.write_str(
                "; ports below 1024, other users' directories and giving a socket away need \
                     privileges",
            ),
            io::ErrorKind::AddrNotAvailable => {
                f.write_str("; the address is not one of this machine's")
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for BindError {}

impl Listener {
    /// Starts listening.
    ///
    /// # Errors
    /// Returns an error if the system refuses; its text says what to do about it.
    pub fn bind(options: &ListenerOptions) -> Result<Self, BindError> {
        let socket = match &options.address {
            Address::Tcp { host, port } => {
                resolve(host, *port).and_then(|addr| bind_tcp(addr, options, Sharing::AfterListen))
            }
            Address::Unix(path) | Address::Shm(path) => bind_unix(path, options),
        };
        let socket =
            socket.map_err(|error| BindError { address: options.address.to_string(), error })?;
        Ok(Self::of(socket, options, Siblings::default()))
    }

    fn of(socket: Socket, options: &ListenerOptions, siblings: Siblings) -> Self {
        let socket = Arc::new(socket);
        siblings.add(&socket);
        Self { socket, options: options.clone(), is_shut: false, siblings }
    }

    /// Makes this socket a sibling of another one on the same address.
    pub fn join(&mut self, other: &Listener) {
        self.siblings = other.siblings.clone();
        self.siblings.add(&self.socket);
    }

    /// Returns the sockets of other workers that listen on the same address.
    pub(crate) fn others(&self) -> Vec<Arc<Socket>> {
        self.siblings.others(&self.socket)
    }

    /// Takes over a socket on which another process listens, or did. Only what this process alone
    /// sees is changed; [`ListenerHold::settle`] does the rest.
    ///
    /// # Errors
    /// Returns an error if it is not a socket that listens on such an address.
    pub fn taken(socket: OwnedFd, options: &ListenerOptions) -> Result<Self, BindError> {
        let socket = Socket::from(socket);
        let outcome = is_such_a_listener(&socket, &options.address).and_then(|is_one| {
            if !is_one {
                let what = "what was handed over for it is no socket that listens there";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            socket.set_nonblocking(true)
        });
        match outcome {
            Ok(()) => Ok(Self::of(socket, options, Siblings::default())),
            Err(error) => Err(BindError { address: options.address.to_string(), error }),
        }
    }

    /// Returns how the socket treats IPv4 clients, if that differs from the options. A socket that
    /// was [taken](Listener::taken) keeps the behaviour that it was bound with: the system changes
    /// it for no socket that has its address. Returns `None` if the system does not tell.
    pub fn ipv4_amiss(&self) -> Option<Ipv4Amiss> {
        let addr = self.local_addr()?;
        if !addr.is_ipv6() || !addr.ip().is_unspecified() {
            return None;
        }
        match (self.socket.only_v6().ok()?, self.options.only_v6) {
            (true, false) => Some(Ipv4Amiss::Refused),
            (false, true) => Some(Ipv4Amiss::Accepted),
            _ => None,
        }
    }

    /// Returns a handle by which the socket may be handed over later. It does not keep the socket
    /// open.
    pub fn hold(&self) -> ListenerHold {
        ListenerHold { socket: Arc::downgrade(&self.socket), options: self.options.clone() }
    }

    /// Returns a template by which another worker of this process listens on the same address. It
    /// holds no listening TCP socket of its own: the system would send that socket clients that are
    /// never accepted.
    ///
    /// # Errors
    /// Returns an error if no file descriptor is left.
    pub fn template(&self) -> io::Result<ListenerTemplate> {
        let unix = match self.local_addr() {
            Some(_) => None,
            None => Some(self.socket.try_clone()?),
        };
        let addr = self.local_addr();
        // Another process may have opened the socket, with another setting.
        let only_v6 = addr.is_some_and(|addr| addr.is_ipv6()) && self.socket.only_v6()?;
        let options = ListenerOptions { only_v6, ..self.options.clone() };
        let siblings = self.siblings.clone();
        Ok(ListenerTemplate { addr, unix, options, siblings })
    }

    /// Returns the TCP address of the socket, with the port that the system chose if it was asked
    /// to choose.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    /// Begins to listen, if it does not yet. This must be the last step before accepting, because
    /// the system sends it clients from now on.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub(crate) fn open(&mut self) -> io::Result<()> {
        if self.is_shut {
            listen(&self.socket, &self.options)?;
            self.is_shut = false;
        }
        Ok(())
    }

    pub(crate) fn door(&self) -> Option<&Door> {
        self.options.door.as_ref()
    }

    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.options.address, Address::Tcp { .. })
    }
}

/// A template for the sockets of further workers on an address; see [`Listener::template`].
#[derive(Debug)]
pub struct ListenerTemplate {
    addr: Option<SocketAddr>,
    unix: Option<Socket>,
    options: ListenerOptions,
    siblings: Siblings,
}

impl ListenerTemplate {
    /// Returns a further socket on the address. A TCP socket listens only when a driver has taken
    /// it, so no client is sent to a worker that fails to start.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn bind(&self) -> Result<Listener, BindError> {
        let is_shut = self.unix.is_none();
        let socket = match (&self.unix, self.addr) {
            (Some(socket), _) => socket.try_clone(),
            (None, Some(addr)) => bind_tcp(addr, &self.options, Sharing::Before),
            (None, None) => Err(io::ErrorKind::AddrNotAvailable.into()),
        };
        let socket = socket
            .map_err(|error| BindError { address: self.options.address.to_string(), error })?;
        Ok(Listener { is_shut, ..Listener::of(socket, &self.options, self.siblings.clone()) })
    }
}

/// A handle of a listening socket that another owner keeps open.
#[derive(Debug)]
pub struct ListenerHold {
    socket: Weak<Socket>,
    options: ListenerOptions,
}

impl ListenerHold {
    /// Returns another descriptor of the socket, while it is open. Clients can connect until all
    /// descriptors are closed.
    ///
    /// # Errors
    /// Returns an error if no file descriptor is left.
    pub fn socket(&self) -> io::Result<Option<OwnedFd>> {
        let Some(socket) = self.socket.upgrade() else { return Ok(None) };
        Ok(Some(socket.try_clone()?.into()))
    }

    /// Applies the options to a socket that was [taken](Listener::taken): their backlog and
    /// keep-alive, and the mode and owner of a unix socket's file.
    ///
    /// # Errors
    /// Returns an error if the system refuses; the socket listens all the same.
    pub fn settle(&self) -> Result<(), BindError> {
        let Some(socket) = self.socket.upgrade() else { return Ok(()) };
        settle(&socket, &self.options)
            .map_err(|error| BindError { address: self.options.address.to_string(), error })
    }
}

fn settle(socket: &Socket, options: &ListenerOptions) -> io::Result<()> {
    listen(socket, options)?;
    match &options.address {
        Address::Unix(path) | Address::Shm(path) => permit(path, options),
        Address::Tcp { .. } => match options.tcp_keepalive {
            Some(silence) => Ok(keep_alive(socket, silence)?),
            None => socket.set_keepalive(false),
        },
    }
}

fn is_such_a_listener(socket: &Socket, address: &Address) -> io::Result<bool> {
    let is_unix = socket.domain()? == Domain::UNIX;
    let wants_unix = !matches!(address, Address::Tcp { .. });
    Ok(socket.is_listener()? && socket.r#type()? == Type::STREAM && is_unix == wants_unix)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    (host, port)
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host name does not resolve"))
}

/// When a socket begins to share its port.
///
/// With SO_REUSEPORT a second Keyway of the same user could silently take half of the first one's
/// clients. A socket that listens without it finds the port taken, and lets this process's other
/// sockets in from then on. So no client connects to a socket that is closed soon after.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// At once: another socket of this process listens. This one does not listen yet.
    Before,
    /// When it listens. Binding alone may succeed on a port that is shared, but listening fails.
    AfterListen,
}

fn bind_tcp(addr: SocketAddr, options: &ListenerOptions, sharing: Sharing) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    set_only_v6(&socket, addr, options.only_v6)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(sharing == Sharing::Before)?;
    tune(&socket, addr)?;
    if let Some(silence) = options.tcp_keepalive {
        keep_alive(&socket, silence)?;
    }
    socket.bind(&addr.into())?;
    if sharing == Sharing::AfterListen {
        listen(&socket, options)?;
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Makes `[::]` accept IPv4 clients, unless another socket does. The system's default does not
/// matter.
fn set_only_v6(socket: &Socket, addr: SocketAddr, only_v6: bool) -> io::Result<()> {
    match addr.is_ipv6() {
        true => socket.set_only_v6(only_v6 || !addr.ip().is_unspecified()),
        false => Ok(()),
    }
}

/// Returns a socket for HTTP that listens on a TCP address. `[::]` accepts IPv4 clients as well,
/// unless `only_v6`.
///
/// # Errors
/// Returns an error if the system refuses.
pub fn listen_tcp(addr: SocketAddr, only_v6: bool) -> io::Result<OwnedFd> {
    const BACKLOG: i32 = 128;
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    set_only_v6(&socket, addr, only_v6)?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn listen(socket: &Socket, options: &ListenerOptions) -> io::Result<()> {
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))
}

fn bind_unix(path: &Path, options: &ListenerOptions) -> io::Result<Socket> {
    remove_stale_socket(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // No client can connect before it listens.
    let listening = permit(path, options).and_then(|()| listen(&socket, options));
    if let Err(error) = listening {
        // The file of a socket that does not listen would be of no use.
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Sets the mode and owner of a unix socket's file. What is right already is not set again: a
/// process that was allowed to give the file away may not change its mode any more.
fn permit(path: &Path, options: &ListenerOptions) -> io::Result<()> {
    let (owner, group) = options.unix_owner;
    if options.unix_mode.is_none() && owner.is_none() && group.is_none() {
        return Ok(());
    }
    let there = std::fs::symlink_metadata(path)?;
    if let Some(mode) = options.unix_mode.filter(|mode| there.mode() & 0o7777 != *mode) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    let owner = owner.filter(|owner| there.uid() != *owner);
    let group = group.filter(|group| there.gid() != *group);
    if owner.is_some() || group.is_some() {
        std::os::unix::fs::chown(path, owner, group)?;
    }
    Ok(())
}

/// Removes the file of a socket on which no process listens. A live socket, or a file that is not a
/// socket, stays and makes `bind` fail.
fn remove_stale_socket(path: &Path) -> io::Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if metadata.file_type().is_socket() && nobody_listens(path)? {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Returns whether no process listens at the path. Never waits: a process that was stopped, and
/// whose backlog is full, counts as listening.
fn nobody_listens(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let outcome = socket.connect(&SockAddr::unix(path)?);
    Ok(matches!(outcome, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_whose_process_stands_still_is_kept_and_one_that_was_left_is_removed() {
        let folder = keyway_testkit::TempDir::new();
        let path = folder.path().join("socket");
        let open = || Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        let addr = SockAddr::unix(&path).unwrap();
        let listener = open();
        listener.bind(&addr).unwrap();
        listener.listen(1).unwrap();
        let waiting = std::iter::repeat_with(|| {
            let socket = open();
            socket.set_nonblocking(true).unwrap();
            socket.connect(&addr).is_ok().then_some(socket)
        });
        let waiting: Vec<Socket> = waiting.take(100).map_while(|socket| socket).collect();
        assert!(waiting.len() < 100, "it takes any number");
        // If this waited for a place in the backlog, the test would hang.
        remove_stale_socket(&path).unwrap();
        assert!(path.exists());
        drop((listener, waiting));
        remove_stale_socket(&path).unwrap();
        assert!(!path.exists());
    }

    fn options_of(host: &str, port: u16, only_v6: bool) -> ListenerOptions {
        ListenerOptions {
            address: Address::Tcp { host: host.to_owned(), port },
            backlog: 16,
            unix_mode: None,
            unix_owner: (None, None),
            tcp_keepalive: None,
            door: None,
            only_v6,
        }
    }

    #[test]
    fn every_address_takes_clients_of_ipv4_unless_another_socket_does() {
        let Ok(first) = Listener::bind(&options_of("::", 0, false)) else {
            eprintln!("this machine has no IPv6");
            return;
        };
        let port = first.local_addr().unwrap().port();
        let connect = |host: &str| std::net::TcpStream::connect((host, port));
        assert!(connect("127.0.0.1").is_ok() && connect("::1").is_ok());
        // Another worker listens like the first one, also on a socket that was handed over.
        assert!(!first.template().unwrap().options.only_v6);
        drop(first);
        let own = Listener::bind(&options_of("::", 0, true)).unwrap();
        let port = own.local_addr().unwrap().port();
        let connect = |host: &str| std::net::TcpStream::connect((host, port));
        assert!(connect("127.0.0.1").is_err() && connect("::1").is_ok());
        assert!(own.template().unwrap().options.only_v6);
        let _ipv4 = Listener::bind(&options_of("0.0.0.0", port, false)).expect("it is free");
        assert!(connect("127.0.0.1").is_ok());
    }

    #[test]
    fn a_socket_that_was_taken_over_tells_whether_it_accepts_ipv4_as_it_should() {
        let Ok(probe) = Listener::bind(&options_of("::", 0, false)) else {
            eprintln!("this machine has no IPv6");
            return;
        };
        drop(probe);
        for was_only in [false, true] {
            let first = Listener::bind(&options_of("::", 0, was_only)).unwrap();
            assert_eq!(first.ipv4_amiss(), None, "it was bound so");
            for is_only in [false, true] {
                let socket = first.hold().socket().unwrap().expect("it listens");
                let next = Listener::taken(socket, &options_of("::", 0, is_only)).unwrap();
                let expected = match (was_only, is_only) {
                    (true, false) => Some(Ipv4Amiss::Refused),
                    (false, true) => Some(Ipv4Amiss::Accepted),
                    _ => None,
                };
                assert_eq!(next.ipv4_amiss(), expected, "{was_only} {is_only}");
            }
        }
        for host in ["::1", "127.0.0.1"] {
            let first = Listener::bind(&options_of(host, 0, false)).unwrap();
            let socket = first.hold().socket().unwrap().expect("it listens");
            let next = Listener::taken(socket, &options_of(host, 0, false)).unwrap();
            assert_eq!(next.ipv4_amiss(), None, "{host} is one address");
        }
    }

    #[test]
    fn an_address_of_ipv4_is_told_as_one() {
        let canonical = |text: &str| crate::address::canonical(text.parse().unwrap()).to_string();
        assert_eq!(canonical("[::ffff:192.0.2.1]:7"), "192.0.2.1:7");
        assert_eq!(canonical("[fe80::1%3]:7"), "[fe80::1%3]:7");
        assert_eq!(canonical("127.0.0.1:7"), "127.0.0.1:7");
    }

    #[test]
    fn a_file_that_is_as_it_is_to_be_is_left_alone() {
        let folder = keyway_testkit::TempDir::new();
        let path = folder.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let state = || std::fs::metadata(&path).unwrap();
        let permitted = |mode, owner| {
            let options = ListenerOptions {
                address: Address::Unix(path.clone()),
                backlog: 1,
                unix_mode: mode,
                unix_owner: owner,
                tcp_keepalive: None,
                door: None,
                only_v6: false,
            };
            permit(&path, &options).unwrap();
            (state().mode() & 0o7777, (state().ctime(), state().ctime_nsec()))
        };
        let ids = (Some(state().uid()), Some(state().gid()));
        let (mode, changed) = permitted(Some(0o660), ids);
        assert_eq!(mode, 0o660);
        assert_eq!(permitted(Some(0o660), ids), (0o660, changed), "nothing was set");
        assert_eq!(permitted(None, (None, None)), (0o660, changed));
        assert_eq!(permitted(Some(0o600), ids).0, 0o600);
    }
}
