use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::access::Access;
use crate::limits::AdminLimits;
use crate::places::{Displaced, Place, Places};
use crate::routes::{Answering, Client, respond, slow};
use crate::secured::secure;
use crate::state::AdminState;
use keyway_tls::ServerTls;

/// The options of the admin listener.
#[derive(Clone, Default)]
pub struct AdminOptions {
    /// The limits for its clients.
    pub limits: AdminLimits,
    /// The access rules.
    pub access: Access,
    /// The TLS settings; `None`: connections have no TLS.
    pub tls: Option<ServerTls>,
}

/// Longest head of a request, in bytes. Usual ones are under 200. 8 KiB is the least that the HTTP
/// library accepts.
const HEAD_LEN_MAX: usize = 8 << 10;
/// Most header lines of a request. Browsers send about 20.
const HEADERS_MAX: usize = 64;
/// Most requests that run at once and take long, such as reloads; more wait for those.
const SLOW_MAX: usize = 8;
/// Pause after a failed accept. Accepting fails only for lack of resources. Without a pause the
/// thread would spin until that is over.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The reason why the admin listener did not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The system refuses to listen on the address.
    #[error("admin listener: cannot listen on {address}: {reason}; {hint}", hint = bind_hint(reason))]
    Bind {
        /// The address as the caller gave it.
        address: String,
        /// The system's reason.
        #[source]
        reason: io::Error,
    },
    /// The system refuses the thread or its event queue.
    #[error(
        "admin listener: cannot start its thread: {0}; raise the limits on threads and open files"
    )]
    Thread(#[source] io::Error),
}

fn bind_hint(reason: &io::Error) -> &'static str {
    match reason.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there (`ss -ltnp` shows which): stop it or choose another port"
        }
        io::ErrorKind::AddrNotAvailable => {
            "no interface of this machine has that address: choose 127.0.0.1 or one that it has"
        }
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose one above",
        _ => "write it as host:port, such as 127.0.0.1:9180",
    }
}

/// The admin listener.
pub struct Admin;

impl Admin {
    /// Listens on `address` (host:port, port 0 for any) and answers from `state`, on a thread of
    /// its own, until the handle is stopped or dropped.
    ///
    /// # Errors
    /// Returns an error if the address cannot be listened on or the thread cannot start.
    pub fn start(address: &str, state: Arc<dyn AdminState>) -> Result<AdminHandle, AdminError> {
        Self::start_with(AdminOptions::default(), address, state)
    }

    /// Starts like [`Admin::start`], with `options`.
    ///
    /// # Errors
    /// Returns an error as [`Admin::start`] does.
    pub fn start_with(
        options: AdminOptions,
        address: &str,
        state: Arc<dyn AdminState>,
    ) -> Result<AdminHandle, AdminError> {
        let mut handle = Self::prepare(options, address, None, state)?;
        handle.begin();
        Ok(handle)
    }

    /// Prepares a listener like [`Admin::start_with`], but answers no request before
    /// [`AdminHandle::begin`]. Uses `socket`, if given, on which another process has listened.
    ///
    /// # Errors
    /// Returns an error as [`Admin::start`] does.
    pub fn prepare(
        options: AdminOptions,
        address: &str,
        socket: Option<OwnedFd>,
        state: Arc<dyn AdminState>,
    ) -> Result<AdminHandle, AdminError> {
        let bind_error = |reason| AdminError::Bind { address: address.into(), reason };
        let socket = match socket {
            Some(socket) => std::net::TcpListener::from(socket),
            None => std::net::TcpListener::bind(address).map_err(bind_error)?,
        };
        socket.set_nonblocking(true).map_err(bind_error)?;
        let local_addr = socket.local_addr().map_err(bind_error)?;
        let twin = socket.try_clone().map_err(bind_error)?;
        let runtime = runtime::Builder::new_current_thread()
            .max_blocking_threads(SLOW_MAX)
            .enable_io()
            .enable_time()
            .build()
            .map_err(AdminError::Thread)?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(socket).map_err(AdminError::Thread)?
        };
        let (stop, stopped) = oneshot::channel();
        let (begin, begun) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("keyway-admin".into())
            .spawn(move || serve(runtime, options, listener, state, (begun, stopped)))
            .map_err(AdminError::Thread)?;
        Ok(AdminHandle {
            local_addr,
            socket: Some(twin),
            begin: Some(begin),
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// A running admin listener. Dropping it stops it as [`AdminHandle::stop`] does.
pub struct AdminHandle {
    local_addr: SocketAddr,
    /// A duplicate of the listening socket, to be handed to another process.
    socket: Option<std::net::TcpListener>,
    begin: Option<oneshot::Sender<()>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AdminHandle {
    /// Returns its address, with the port that was found for port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns another descriptor of the listening socket.
    ///
    /// # Errors
    /// Returns an error if no file descriptor is left.
    pub fn socket(&self) -> io::Result<Option<OwnedFd>> {
        self.socket.as_ref().map(|socket| Ok(socket.try_clone()?.into())).transpose()
    }

    /// Answers from now on, after [`Admin::prepare`].
    pub fn begin(&mut self) {
        if let Some(begin) = self.begin.take() {
            // The message is lost if the thread has ended.
            let _ = begin.send(());
        }
    }

    /// Stops listening, lets requests being answered finish within [`AdminLimits::stop_time`], and
    /// returns when the thread has ended.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for AdminHandle {
    fn drop(&mut self) {
        // Otherwise clients would still connect to a socket from which nothing accepts.
        self.socket = None;
        // Dropping the sender is the signal.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for AdminHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminHandle").field("local_addr", &self.local_addr).finish_non_exhaustive()
    }
}

/// Runs the thread.
fn serve(
    runtime: Runtime,
    options: AdminOptions,
    listener: TcpListener,
    state: Arc<dyn AdminState>,
    (begun, stopped): (oneshot::Receiver<()>, oneshot::Receiver<()>),
) {
    let limits = options.limits;
    runtime.block_on(async {
        let open = GracefulShutdown::new();
        let serving = async {
            match begun.await {
                Ok(()) => accept_all(options, &listener, &state, &open).await,
                // The handle, which holds both senders, is gone: the listener is stopped.
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            // Both a value and the end of the sender mean stop.
            _ = stopped => {}
            never = serving => match never {},
        }
        drop(listener);
        // Connections that are not done by then are cut off with the runtime.
        let _ = timeout(limits.stop_time, open.shutdown()).await;
    });
    // A thread that still checks a document, or waits for a worker, holds up nobody: there is no
    // client any more to whom it could answer.
    runtime.shutdown_background();
}

async fn accept_all(
    options: AdminOptions,
    listener: &TcpListener,
    state: &Arc<dyn AdminState>,
    open: &GracefulShutdown,
) -> Infallible {
    let AdminOptions { limits, access, tls } = options;
    let answering = Answering { state: Arc::clone(state), access: Arc::new(access), slow: slow() };
    let places = Places::new(limits);
    let mut http = http1::Builder::new();
    // There is one request per connection: an idle client holds no place, and a connection's time
    // is a request's.
    http.keep_alive(false)
        .half_close(true)
        .max_buf_size(HEAD_LEN_MAX)
        .max_headers(HEADERS_MAX)
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time);
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let (place, displaced) = places.take().await;
                let time = limits.connection_time;
                let connection = Connection { stream, address, place, displaced, time };
                match &tls {
                    Some(tls) => spawn_secured(&http, connection, tls, &answering, open),
                    None => spawn_connection(&http, connection, &answering, open),
                }
                // Served connections get their turn between two accepts, however many clients
                // connect.
                tokio::task::yield_now().await;
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// An accepted connection.
struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    place: Arc<Place>,
    displaced: Displaced,
    time: Duration,
}

fn spawn_connection(
    http: &http1::Builder,
    connection: Connection,
    answering: &Answering,
    open: &GracefulShutdown,
) {
    let Connection { stream, address, place, displaced, time } = connection;
    let client = Arc::new(Client { address, certificate: Arc::default() });
    let (answering, own) = (answering.clone(), (Arc::clone(&place), client));
    let service = service_fn(move |request| respond(answering.clone(), own.clone(), request));
    let connection = open.watch(http.serve_connection(TokioIo::new(stream), service));
    tokio::spawn(async move {
        // A client that violates HTTP, leaves or exceeds its time harms only itself, and there is
        // no one left to tell.
        tokio::select! {
            _ = timeout(time, connection) => {}
            _ = displaced => {}
        }
        drop(place);
    });
}

/// Serves a connection with TLS.
fn spawn_secured(
    http: &http1::Builder,
    connection: Connection,
    tls: &ServerTls,
    answering: &Answering,
    open: &GracefulShutdown,
) {
    let Connection { stream, address, place, displaced, time } = connection;
    let client = Arc::new(Client { address, certificate: Arc::default() });
    let certificate = Arc::clone(&client.certificate);
    let Some((plain, carrying)) = secure(stream, tls, certificate) else { return };
    let (answering, own) = (answering.clone(), (Arc::clone(&place), client));
    let service = service_fn(move |request| respond(answering.clone(), own.clone(), request));
    let connection = open.watch(http.serve_connection(TokioIo::new(plain), service));
    tokio::spawn(async move {
        tokio::select! {
            _ = timeout(time, async { tokio::join!(connection, carrying) }) => {}
            _ = displaced => {}
        }
        drop(place);
    });
}
