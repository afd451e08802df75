//! A blocking client that sends exactly the bytes it is told to.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use keyway_ring::{Hello, Pipe, Spin, ask};

use crate::value::{Value, parse};

/// How long a reply may take unless a test says otherwise: far above any
/// timeout under test, so that only a lost reply meets it.
const REPLY_WITHIN: Duration = Duration::from_secs(20);

/// A server that sends nothing for this long may have sent all there is.
const PAUSE: Duration = Duration::from_millis(10);

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyFault {
    /// The server closed the connection, by FIN or by reset.
    Closed,
    /// Nothing whole arrived in time; the bytes so far stay buffered.
    Late,
    /// The bytes are not a reply.
    Garbage(String),
}

impl fmt::Display for ReplyFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplyFault::Closed => write!(formatter, "the server closed the connection"),
            ReplyFault::Late => write!(formatter, "no reply in time"),
            ReplyFault::Garbage(what) => write!(formatter, "not a reply: {what}"),
        }
    }
}

/// What bytes go through.
#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Rings(Box<Pipe>),
}

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Tcp(stream) => stream,
            _ => panic!("only a TCP connection can do that"),
        }
    }

    fn set_read_timeout(&mut self, wait: Duration) {
        let _ = match self {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(wait)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(wait)),
            Stream::Rings(pipe) => {
                pipe.set_timeout(Some(wait));
                Ok(())
            }
        };
    }

    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
            Stream::Rings(pipe) => pipe.read(into),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
            Stream::Rings(pipe) => {
                pipe.set_timeout(Some(REPLY_WITHIN));
                pipe.write_all(bytes)?;
                pipe.flush()
            }
        }
    }
}

/// A connection to a server that speaks RESP2. Methods without `try_` panic
/// when something else than a reply comes: that is a failed test.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    received: Vec<u8>,
    taken: usize,
    /// No look at `received` before it holds this many bytes or the server
    /// pauses: large replies are not parsed again on every read.
    look_at: usize,
    reply_within: Duration,
}

impl Client {
    /// Connects, without Nagle's delay.
    ///
    /// # Panics
    /// When nobody accepts.
    pub fn connect(address: SocketAddr) -> Client {
        Client::try_connect(address)
            .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"))
    }

    /// The same, for a server that may not be there.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn try_connect(address: SocketAddr) -> std::io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(REPLY_WITHIN))?;
        Ok(Client::over(Stream::Tcp(stream)))
    }

    fn over(stream: Stream) -> Client {
        Client { stream, received: Vec::new(), taken: 0, look_at: 1, reply_within: REPLY_WITHIN }
    }

    /// Connects to a unix socket.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn try_connect_unix(path: &Path) -> std::io::Result<Client> {
        Ok(Client::over(Stream::Unix(UnixStream::connect(path)?)))
    }

    /// Connects through shared memory that is handed over at `path`, with rings as the hello asks.
    ///
    /// # Errors
    /// What the kernel says, or a refusal in words.
    pub fn try_connect_shm(path: &Path, hello: &Hello) -> std::io::Result<Client> {
        let socket = UnixStream::connect(path)?;
        let shared = ask(&socket, hello)?
            .map_err(|why| std::io::Error::new(ErrorKind::PermissionDenied, why.to_string()))?;
        let spin = Spin::adaptive(Duration::from_micros(20));
        let pipe = Pipe::new(shared, socket, spin);
        Ok(Client::over(Stream::Rings(Box::new(pipe))))
    }

    /// The same, with small rings.
    ///
    /// # Panics
    /// When no memory is shared.
    pub fn connect_shm(path: &Path) -> Client {
        Client::try_connect_shm(path, &Hello::new(0, 0))
            .unwrap_or_else(|error| panic!("no memory is shared at {}: {error}", path.display()))
    }

    /// Says that nothing more will be sent, where memory is shared; replies can still be read.
    pub fn finish(&mut self) {
        match &mut self.stream {
            Stream::Rings(pipe) => pipe.finish(),
            _ => panic!("only where memory is shared"),
        }
    }

    /// Sets how long a reply may take from now on.
    pub fn set_reply_within(&mut self, bound: Duration) {
        self.reply_within = bound;
    }

    /// How long a reply may take.
    pub fn reply_within(&self) -> Duration {
        self.reply_within
    }

    /// Sends these bytes, all of them.
    ///
    /// # Panics
    /// When the connection does not take them.
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap_or_else(|error| panic!("cannot send: {error}"));
    }

    /// The same, where the server may have closed.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends one command and returns its reply.
    pub fn command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Value {
        self.send(&encode(arguments));
        self.reply()
    }

    /// Sends one command, given as words with spaces between, and returns its
    /// reply.
    pub fn words(&mut self, line: &str) -> Value {
        self.send(&encode_words(line));
        self.reply()
    }

    /// Sends these lines of words in one write and returns their replies.
    pub fn pipeline(&mut self, lines: &[&str]) -> Vec<Value> {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| encode_words(line)).collect();
        self.send(&bytes);
        self.replies(lines.len())
    }

    /// The next reply.
    ///
    /// # Panics
    /// When none comes.
    pub fn reply(&mut self) -> Value {
        self.try_reply().unwrap_or_else(|fault| panic!("{fault}; buffered: {}", self.rest()))
    }

    /// The next `count` replies.
    pub fn replies(&mut self, count: usize) -> Vec<Value> {
        (0..count).map(|_| self.reply()).collect()
    }

    /// The next reply, where there may be none.
    ///
    /// # Errors
    /// Why there is none.
    pub fn try_reply(&mut self) -> Result<Value, ReplyFault> {
        let end = Instant::now() + self.reply_within;
        loop {
            if let Some(value) = self.parse_buffered()? {
                return Ok(value);
            }
            self.receive(end)?;
        }
    }

    /// The bytes of the next reply, as they came.
    pub fn raw_reply(&mut self) -> Vec<u8> {
        let end = Instant::now() + self.reply_within;
        loop {
            let start = self.taken;
            match parse(&self.received[start..]) {
                Ok(Some((_, length))) => {
                    let bytes = self.received[start..start + length].to_vec();
                    self.take(length);
                    return bytes;
                }
                Ok(None) => self.receive(end).unwrap_or_else(|fault| panic!("{fault}")),
                Err(what) => panic!("not a reply: {what}: {}", self.rest()),
            }
        }
    }

    /// Whether the server has closed and nothing unread is left before that.
    pub fn try_closed(&mut self) -> bool {
        self.try_reply() == Err(ReplyFault::Closed) && self.taken == self.received.len()
    }

    /// Waits for the server to close.
    ///
    /// # Panics
    /// When it sends something else first or stays open.
    pub fn expect_closed(&mut self) {
        match self.try_reply() {
            Err(ReplyFault::Closed) => {
                assert!(self.taken == self.received.len(), "closed after: {}", self.rest());
            }
            other => panic!("expected the connection to be closed, got {other:?}"),
        }
    }

    /// Waits for the server to say that nothing more comes, as it does where it closes in order.
    ///
    /// # Panics
    /// When it resets the connection, sends something else first or stays open.
    pub fn expect_end(&mut self) {
        assert!(self.taken == self.received.len(), "there is more: {}", self.rest());
        self.stream.set_read_timeout(self.reply_within);
        let mut more = [0; 256];
        match self.stream.read(&mut more) {
            Ok(0) => {}
            Ok(len) => panic!("more comes: \"{}\"", more[..len].escape_ascii()),
            Err(error) => panic!("expected the end, got: {error}"),
        }
    }

    /// Says that nothing more will be sent; replies can still be read.
    pub fn close_write(&self) {
        let _ = self.stream.tcp().shutdown(Shutdown::Write);
    }

    /// Ends the connection with a reset instead of a FIN.
    pub fn reset(self) {
        let _ = rustix::net::sockopt::set_socket_linger(self.stream.tcp(), Some(Duration::ZERO));
    }

    /// Asks the kernel for a small receive buffer, so that a client that does
    /// not read is felt early.
    pub fn shrink_receive_buffer(&self, bytes: usize) {
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(self.stream.tcp(), bytes);
    }

    /// A second handle on the socket, to send from another thread.
    ///
    /// # Panics
    /// When the descriptors are used up.
    pub fn writer(&self) -> TcpStream {
        let writer = self.stream.tcp().try_clone().expect("a descriptor for the second handle");
        writer.set_write_timeout(None).expect("a live socket");
        writer
    }

    /// Our end's address, as the server sees it.
    ///
    /// # Panics
    /// When the socket is gone.
    pub fn local_address(&self) -> SocketAddr {
        self.stream.tcp().local_addr().expect("a connected socket")
    }

    fn rest(&self) -> String {
        let rest = &self.received[self.taken..];
        format!("\"{}\"", rest[..rest.len().min(200)].escape_ascii())
    }

    fn parse_buffered(&mut self) -> Result<Option<Value>, ReplyFault> {
        let waiting = &self.received[self.taken..];
        if waiting.len() < self.look_at {
            return Ok(None);
        }
        match parse(waiting) {
            Ok(Some((value, length))) => {
                self.take(length);
                Ok(Some(value))
            }
            Ok(None) => {
                self.look_at = least_len(waiting);
                Ok(None)
            }
            Err(what) => Err(ReplyFault::Garbage(what)),
        }
    }

    fn take(&mut self, length: usize) {
        self.taken += length;
        self.look_at = 1;
        if self.taken == self.received.len() {
            self.received.clear();
            self.taken = 0;
        } else if self.taken > (1 << 20) {
            self.received.drain(..self.taken);
            self.taken = 0;
        }
    }

    fn receive(&mut self, end: Instant) -> Result<(), ReplyFault> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ReplyFault::Late);
        }
        let waits_for_more = self.received.len() - self.taken < self.look_at && self.look_at > 1;
        let wait = if waits_for_more { left.min(PAUSE) } else { left };
        self.stream.set_read_timeout(wait);
        let mut chunk = [0_u8; 64 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(ReplyFault::Closed),
            Ok(length) => {
                self.received.extend_from_slice(&chunk[..length]);
                Ok(())
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut if wait < left => {
                    self.look_at = 1;
                    Ok(())
                }
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(ReplyFault::Late),
                ErrorKind::Interrupted => Ok(()),
                _ => Err(ReplyFault::Closed),
            },
        }
    }
}

/// A length below which a cut reply at the start of `waiting` is not whole:
/// exact for a bulk, growing for everything else.
fn least_len(waiting: &[u8]) -> usize {
    let line_end = waiting.windows(2).position(|pair| pair == b"\r\n");
    if let (Some(b'$'), Some(end)) = (waiting.first(), line_end) {
        let length = std::str::from_utf8(&waiting[1..end]).ok().and_then(|text| text.parse().ok());
        return end + 4 + length.unwrap_or(0_usize);
    }
    // An array: parsed again each time it has grown by an eighth.
    waiting.len() + 1 + waiting.len() / 8
}

/// The bytes of a command as every client library sends it: an array of bulk
/// strings.
pub fn encode<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// [`encode`] of words with spaces between.
pub fn encode_words(line: &str) -> Vec<u8> {
    encode(&line.split_whitespace().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisServer;

    #[test]
    fn replies_of_every_size_are_read_whole() {
        let server = RedisServer::start();
        let mut client = server.client();
        for count in [1, 100, 9_999, 100_000] {
            let names: Vec<String> = (0..count).map(|nth| format!("none:{nth}")).collect();
            let words: Vec<&str> =
                std::iter::once("MGET").chain(names.iter().map(String::as_str)).collect();
            assert_eq!(client.command(&words).array().len(), count);
        }
        client.set_reply_within(Duration::from_millis(50));
        assert_eq!(client.try_reply(), Err(ReplyFault::Late));
    }
}
