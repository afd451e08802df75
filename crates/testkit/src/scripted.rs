//! A backend that misbehaves on command: what a real server cannot be made
//! to do.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::client::encode;
use crate::ports::free_address;
use crate::value::{Value, parse};

/// What the backend does with one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends these bytes.
    Reply(Vec<u8>),
    /// Sends these bytes after a while; requests behind it wait.
    ReplyAfter(Duration, Vec<u8>),
    /// Answers nothing, ever, and goes on reading.
    Silence,
    /// Sends these bytes, possibly none, and closes.
    Close(Vec<u8>),
    /// Sends these bytes, possibly none, and resets the connection.
    Reset(Vec<u8>),
}

/// How long a blocking read waits before the thread looks whether it should
/// end.
const LOOK_EVERY: Duration = Duration::from_millis(20);

type Script = dyn FnMut(&[Vec<u8>]) -> Action + Send;

/// A TCP listener whose every reply is chosen by the test.
pub struct ScriptedBackend {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    script: Mutex<Box<Script>>,
    ending: AtomicBool,
    connections: AtomicUsize,
    requests: AtomicUsize,
}

impl std::fmt::Debug for ScriptedBackend {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ScriptedBackend").field("address", &self.address).finish()
    }
}

impl ScriptedBackend {
    /// Listens on a free port and asks `script` what to do with each request
    /// (its arguments), over all connections, one request at a time.
    pub fn start(script: impl FnMut(&[Vec<u8>]) -> Action + Send + 'static) -> ScriptedBackend {
        ScriptedBackend::start_at(free_address(), script)
    }

    /// The same on a given address.
    ///
    /// # Panics
    /// When the address is taken.
    pub fn start_at(
        address: SocketAddr,
        script: impl FnMut(&[Vec<u8>]) -> Action + Send + 'static,
    ) -> ScriptedBackend {
        let listener = TcpListener::bind(address).expect("a free address");
        listener.set_nonblocking(true).expect("a fresh listener");
        let state = Arc::new(State {
            script: Mutex::new(Box::new(script)),
            ending: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || accept_all(&listener, &shared));
        ScriptedBackend { address, state }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Whole requests read so far, over all connections, the handshake's not
    /// counted.
    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// Puts another script in place, for live connections too.
    pub fn set_script(&self, script: impl FnMut(&[Vec<u8>]) -> Action + Send + 'static) {
        *self.state.script.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(script);
    }
}

impl Drop for ScriptedBackend {
    fn drop(&mut self) {
        self.state.ending.store(true, Ordering::SeqCst);
        crate::wait_until("the listener closes", Duration::from_secs(5), || {
            Arc::strong_count(&self.state) == 1
        });
    }
}

/// The usual answer to what a proxy sends first (PING, AUTH, SELECT, HELLO,
/// CLIENT, ...), so that a script need only care for the requests under test.
pub fn handshake_reply(arguments: &[Vec<u8>]) -> Option<Vec<u8>> {
    let verb = arguments.first()?.to_ascii_uppercase();
    match verb.as_slice() {
        b"PING" => Some(b"+PONG\r\n".to_vec()),
        b"AUTH" | b"SELECT" | b"CLIENT" => Some(b"+OK\r\n".to_vec()),
        b"HELLO" => Some(b"-NOPROTO unsupported protocol version\r\n".to_vec()),
        _ => None,
    }
}

fn accept_all(listener: &TcpListener, state: &Arc<State>) {
    while !state.ending.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((stream, _)) => {
                state.connections.fetch_add(1, Ordering::SeqCst);
                let shared = Arc::clone(state);
                std::thread::spawn(move || serve(stream, &shared));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn serve(mut stream: TcpStream, state: &State) {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(LOOK_EVERY));
    let mut received = Vec::new();
    let mut chunk = [0_u8; 64 << 10];
    while !state.ending.load(Ordering::SeqCst) {
        match stream.read(&mut chunk) {
            Ok(0) => return,
            Ok(length) => received.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return,
        }
        let mut taken = 0;
        while let Ok(Some((value, length))) = parse(&received[taken..]) {
            taken += length;
            if !act(&mut stream, state, &request(&value)) {
                return;
            }
        }
        received.drain(..taken);
    }
}

fn request(value: &Value) -> Vec<Vec<u8>> {
    match value {
        Value::Array(items) => items.iter().map(|item| item.bytes().to_vec()).collect(),
        other => vec![other.bytes().to_vec()],
    }
}

/// Whether the connection goes on.
fn act(stream: &mut TcpStream, state: &State, arguments: &[Vec<u8>]) -> bool {
    if handshake_reply(arguments).is_none() {
        state.requests.fetch_add(1, Ordering::SeqCst);
    }
    let action = state.script.lock().unwrap_or_else(PoisonError::into_inner)(arguments);
    match action {
        Action::Reply(bytes) => stream.write_all(&bytes).is_ok(),
        Action::ReplyAfter(pause, bytes) => {
            std::thread::sleep(pause);
            stream.write_all(&bytes).is_ok()
        }
        Action::Silence => true,
        Action::Close(bytes) => {
            let _ = stream.write_all(&bytes);
            false
        }
        Action::Reset(bytes) => {
            let _ = stream.write_all(&bytes);
            let _ = rustix::net::sockopt::set_socket_linger(&*stream, Some(Duration::ZERO));
            false
        }
    }
}

impl Action {
    /// Echoes the request's second argument as a bulk string: a reply that
    /// proves which request it answers.
    pub fn echo_key(arguments: &[Vec<u8>]) -> Action {
        match handshake_reply(arguments) {
            Some(bytes) => Action::Reply(bytes),
            None => {
                let key = arguments.get(1).cloned().unwrap_or_default();
                let mut bytes = encode(&[key]);
                // A one-element array without its header is a bulk string.
                bytes.drain(..4);
                Action::Reply(bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, ReplyFault};

    #[test]
    fn a_script_answers_stays_silent_and_closes_mid_reply() {
        let backend = ScriptedBackend::start(Action::echo_key);
        let mut client = Client::connect(backend.address());
        assert_eq!(client.words("GET some-key"), Value::bulk("some-key"));
        backend.set_script(|_| Action::Silence);
        client.set_reply_within(Duration::from_millis(50));
        client.send(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
        assert_eq!(client.try_reply(), Err(ReplyFault::Late));
        backend.set_script(|_| Action::Close(b"$10\r\nhal".to_vec()));
        client.set_reply_within(Duration::from_secs(5));
        client.send(b"*2\r\n$3\r\nGET\r\n$1\r\nb\r\n");
        assert_eq!(client.try_reply(), Err(ReplyFault::Closed));
        assert_eq!((backend.connections(), backend.requests()), (1, 3));
    }

    #[test]
    fn a_dropped_backend_refuses() {
        let backend = ScriptedBackend::start(Action::echo_key);
        let address = backend.address();
        drop(backend);
        assert!(Client::try_connect(address).is_err());
    }
}
