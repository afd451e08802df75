//! A real memcached, and a client that sends it the bytes it is told to.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::ports::free_address;
use crate::process::Process;
use crate::skip::skipped_for_want_of;
use crate::temp::TempDir;
use crate::tool::{run_tool, tool_is_installed};

const READY_WITHIN: Duration = Duration::from_secs(20);

/// How long a reply may take: far above any timeout under test.
const REPLY_WITHIN: Duration = Duration::from_secs(20);

/// Bytes of a packet before its body.
const PACKET_LEN: usize = 24;

/// What tells the packet that ends [`MemcachedClient::ask`] from all others.
const LAST: u32 = 0x5e5e_5e5e;

/// Whether there is a memcached to start; says that `what` is left out if not.
///
/// # Panics
/// Under `make test`, which installs it.
pub fn has_memcached(what: &str) -> bool {
    let is_installed = tool_is_installed("memcached");
    if !is_installed {
        skipped_for_want_of("memcached", what);
    }
    is_installed
}

/// A memcached of its own on a free loopback port.
#[derive(Debug)]
pub struct MemcachedServer {
    process: Process,
    address: SocketAddr,
    arguments: Vec<String>,
    directory: TempDir,
}

impl MemcachedServer {
    /// Starts one with memcached's defaults and one thread.
    pub fn start() -> MemcachedServer {
        MemcachedServer::start_with(&[])
    }

    /// Starts one with more arguments, such as `["-I", "2m"]`.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn start_with(arguments: &[&str]) -> MemcachedServer {
        let (directory, address) = (TempDir::new(), free_address());
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        let process = spawn(&directory, address, &arguments);
        MemcachedServer { process, address, arguments, directory }
    }

    /// Starts one whose clients speak packets and have to say this password, with
    /// SASL. `None` without the program that makes its file of passwords.
    ///
    /// # Panics
    /// When it does not listen, or that program fails.
    pub fn start_with_sasl(user: &str, password: &str) -> Option<MemcachedServer> {
        const MAKER: &str = "/usr/sbin/saslpasswd2";
        if !tool_is_installed(MAKER) {
            skipped_for_want_of("saslpasswd2", "passwords of servers that speak SASL");
            return None;
        }
        let (directory, address) = (TempDir::new(), free_address());
        let passwords = directory.path().join("passwords").to_string_lossy().into_owned();
        let settings = format!(
            "mech_list: plain\npwcheck_method: auxprop\nauxprop_plugin: sasldb\n\
             sasldb_path: {passwords}\n"
        );
        directory.write("memcached.conf", settings);
        let arguments = ["-p", "-c", "-f", &passwords, user];
        let made = run_tool(MAKER, &arguments, password.as_bytes(), READY_WITHIN);
        let _ = made.expect_success("a file of passwords");
        let arguments = vec!["-S".to_owned(), "-u".to_owned(), "root".to_owned()];
        let process = spawn(&directory, address, &arguments);
        Some(MemcachedServer { process, address, arguments, directory })
    }

    /// Several at once.
    pub fn start_many(count: usize) -> Vec<MemcachedServer> {
        (0..count).map(|_| MemcachedServer::start()).collect()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A connection to it, past everything in between.
    pub fn client(&self) -> MemcachedClient {
        MemcachedClient::connect(self.address)
    }

    /// The process, to pause, resume or watch it.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// kill -9. [`MemcachedServer::restart`] brings it back, empty.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same port with the same arguments.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = spawn(&self.directory, self.address, &self.arguments);
    }
}

fn spawn(directory: &TempDir, address: SocketAddr, arguments: &[String]) -> Process {
    let mut command = Command::new("memcached");
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    command.args(["-l", &ip, "-p", &port, "-U", "0", "-t", "1", "-u", "nobody"]).args(arguments);
    // Where it looks for settings of SASL.
    command.env("SASL_CONF_PATH", directory.path());
    let speaks_text = !arguments.iter().any(|argument| argument == "-S" || argument == "-Z");
    let mut process = Process::spawn("memcached", &mut command, directory.path());
    process.wait_ready(READY_WITHIN, || match speaks_text {
        true => takes_memcached(address),
        false => TcpStream::connect(address).is_ok(),
    });
    process
}

/// Whether a client of memcached is let in there: with or without a password
/// to say.
pub(crate) fn takes_memcached(address: SocketAddr) -> bool {
    let Ok(mut client) = MemcachedClient::try_connect(address) else { return false };
    client.reply_within = Duration::from_secs(1);
    client.try_send(b"version\r\n").is_ok() && client.try_line().is_some()
}

/// A connection on which bytes are sent and heard as they are. Methods without
/// `try_` panic when there is no reply in time.
#[derive(Debug)]
pub struct MemcachedClient {
    stream: TcpStream,
    received: Vec<u8>,
    reply_within: Duration,
}

impl MemcachedClient {
    /// Connects, without Nagle's delay.
    ///
    /// # Panics
    /// When nobody accepts.
    pub fn connect(address: SocketAddr) -> MemcachedClient {
        MemcachedClient::try_connect(address)
            .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"))
    }

    /// The same, for a server that may not be there.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn try_connect(address: SocketAddr) -> std::io::Result<MemcachedClient> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(REPLY_WITHIN))?;
        Ok(MemcachedClient { stream, received: Vec::new(), reply_within: REPLY_WITHIN })
    }

    /// Sets how long a reply may take from now on.
    pub fn set_reply_within(&mut self, bound: Duration) {
        self.reply_within = bound;
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

    /// Sends each byte on its own.
    pub fn send_in_single_bytes(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.send(std::slice::from_ref(byte)));
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> String {
        let line = self.try_line();
        let line = line.unwrap_or_else(|| panic!("no line in time, but {}", self.rest()));
        String::from_utf8_lossy(&line).into_owned()
    }

    /// The same, where there may be none.
    pub fn try_line(&mut self) -> Option<Vec<u8>> {
        let end = Instant::now() + self.reply_within;
        let mut looked = 0;
        loop {
            let found = self.received[looked..].windows(2).position(|pair| pair == b"\r\n");
            if let Some(position) = found {
                let line = self.received[..looked + position].to_vec();
                self.received.drain(..looked + position + 2);
                return Some(line);
            }
            looked = self.received.len().saturating_sub(1);
            if !self.receive(end) {
                return None;
            }
        }
    }

    /// The next `len` bytes.
    pub fn exactly(&mut self, len: usize) -> Vec<u8> {
        let end = Instant::now() + self.reply_within;
        while self.received.len() < len {
            assert!(self.receive(end), "no {len} bytes in time, but {}", self.rest());
        }
        self.received.drain(..len).collect()
    }

    /// The next packet.
    pub fn packet(&mut self) -> Vec<u8> {
        let mut packet = self.exactly(PACKET_LEN);
        let body = u32::from_be_bytes([packet[8], packet[9], packet[10], packet[11]]);
        packet.extend(self.exactly(body as usize));
        packet
    }

    /// Sends whole requests, text and meta or else packets, and returns all
    /// that is said to them.
    pub fn ask(&mut self, stream: &[u8]) -> Vec<u8> {
        let last = last_of(stream);
        self.send(&[stream, &last].concat());
        self.until_last(stream)
    }

    /// The same, with each byte sent on its own.
    pub fn ask_in_single_bytes(&mut self, stream: &[u8]) -> Vec<u8> {
        let last = last_of(stream);
        self.send_in_single_bytes(&[stream, &last].concat());
        self.until_last(stream)
    }

    /// [`MemcachedClient::ask`] of text, as text.
    pub fn say(&mut self, stream: &str) -> String {
        String::from_utf8_lossy(&self.ask(stream.as_bytes())).into_owned()
    }

    fn until_last(&mut self, stream: &[u8]) -> Vec<u8> {
        let is_binary = stream.first() == Some(&0x80);
        let until = Instant::now() + self.reply_within;
        loop {
            let end = self.received.len().saturating_sub(if is_binary { PACKET_LEN } else { 4 });
            let tail = &self.received[end..];
            let is_end = match is_binary {
                true => tail.len() == PACKET_LEN && tail[12..16] == LAST.to_be_bytes(),
                false => tail == b"MN\r\n",
            };
            if is_end {
                self.received.truncate(end);
                return std::mem::take(&mut self.received);
            }
            assert!(
                self.receive(until),
                "no end of the replies to {}: {}",
                stream[..stream.len().min(200)].escape_ascii(),
                self.rest()
            );
        }
    }

    /// Waits for the server to close, and returns what it said before.
    ///
    /// # Panics
    /// When it stays open.
    pub fn until_closed(&mut self) -> Vec<u8> {
        let end = Instant::now() + self.reply_within;
        while self.receive(end) {}
        assert!(Instant::now() < end, "the connection stays open: {}", self.rest());
        std::mem::take(&mut self.received)
    }

    /// Closes the sending side of the connection.
    pub fn close_write(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Ends the connection with a reset instead of a FIN.
    pub fn reset(self) {
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
    }

    /// Whether nothing has been said that was not taken.
    pub fn is_silent(&self) -> bool {
        self.received.is_empty()
    }

    fn rest(&self) -> String {
        format!("\"{}\"", self.received[..self.received.len().min(400)].escape_ascii())
    }

    /// Whether more has come before `end`; not when the server has closed.
    fn receive(&mut self, end: Instant) -> bool {
        let mut chunk = [0_u8; 64 << 10];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let _ = self.stream.set_read_timeout(Some(left));
            match self.stream.read(&mut chunk) {
                Ok(0) => return false,
                Ok(len) => {
                    self.received.extend_from_slice(&chunk[..len]);
                    return true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
}

/// A request that is always answered, in the protocol of `stream`.
fn last_of(stream: &[u8]) -> Vec<u8> {
    if stream.first() != Some(&0x80) {
        return b"mn\r\n".to_vec();
    }
    let mut noop = memcached_packet(0x0a, 0, &[], &[], &[]);
    noop[12..16].copy_from_slice(&LAST.to_be_bytes());
    noop
}

/// A request of the binary protocol.
pub fn memcached_packet(opcode: u8, cas: u64, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, opcode];
    bytes.extend_from_slice(&(key.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
    let body = extras.len() + key.len() + value.len();
    bytes.extend_from_slice(&(body as u32).to_be_bytes());
    bytes.extend_from_slice(&0xdead_beef_u32.to_be_bytes());
    bytes.extend_from_slice(&cas.to_be_bytes());
    [&bytes, extras, key, value].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_answers_in_every_protocol_and_comes_back_empty() {
        if !has_memcached("the harness with a real memcached") {
            return;
        }
        let mut server = MemcachedServer::start();
        let mut client = server.client();
        assert_eq!(
            client.say("set k 1 0 2\r\nhi\r\nget k\r\n"),
            "STORED\r\nVALUE k 1 2\r\nhi\r\nEND\r\n"
        );
        assert_eq!(client.ask_in_single_bytes(b"mg k v\r\n"), b"VA 2\r\nhi\r\n");
        let mut binary = server.client();
        binary.send(&memcached_packet(0x00, 0, &[], b"k", &[]));
        assert!(binary.packet().ends_with(b"hi"));
        server.kill();
        assert_eq!(client.until_closed(), b"");
        server.restart();
        assert_eq!(server.client().say("get k\r\n"), "END\r\n");
    }
}
