//! A connection to a server that waits for each reply, with a bound on everything.

use keyway_base::Time;
use keyway_channel::clock;
use keyway_tls::{Channel, ClientTls};
use keyway_topology::Endpoint;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Longest wait for a connection.
const CONNECT_WITHIN: Duration = Duration::from_millis(400);

/// Bytes of a reply that are read. INFO has some thousand.
const REPLY_LEN_MAX: usize = 256 << 10;

/// Shortest wait that a socket can be set to.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// The TLS of a connection, and what explains its faults.
struct Secured {
    channel: Channel,
    tls: ClientTls,
    host: String,
}

/// A connection.
pub struct Wire {
    socket: TcpStream,
    secured: Option<Secured>,
    /// Bytes that have come and are no reply yet.
    input: Vec<u8>,
}

impl Wire {
    /// Connects, and says the password.
    ///
    /// # Errors
    /// Returns the reason why the server is not reached.
    pub fn connect(
        server: &Endpoint,
        password: Option<&str>,
        tls: Option<&ClientTls>,
        within: Duration,
    ) -> Result<Wire, String> {
        let Endpoint::Tcp { host, port } = server else {
            return Err("it has no host and port".to_owned());
        };
        let socket = dial(host, *port)?;
        let secured = tls.map(|tls| {
            let channel = tls.connect(host).map_err(|fault| tls.explain(fault, host))?;
            Ok::<_, String>(Secured { channel, tls: tls.clone(), host: host.clone() })
        });
        let mut wire = Wire { socket, secured: secured.transpose()?, input: Vec::new() };
        if let Some(password) = password {
            let reply = wire.ask(&["AUTH", password], within)?;
            // A server without a password refuses AUTH, and answers all else.
            let is_fine = reply.starts_with(b"+OK") || reply.starts_with(b"-ERR");
            if !is_fine {
                return Err("it refuses the password".to_owned());
            }
        }
        Ok(wire)
    }

    /// Sends a command, and returns the bytes of its reply: a simple one, an error, an integer or a
    /// text.
    ///
    /// # Errors
    /// Returns the reason why there is none. The connection is of no use then.
    pub fn ask(&mut self, words: &[&str], within: Duration) -> Result<Vec<u8>, String> {
        let until = clock() + within;
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.send(request.as_bytes(), until)?;
        loop {
            if let Some(len) = reply_len(&self.input)? {
                return Ok(self.input.drain(..len).collect());
            }
            if self.input.len() > REPLY_LEN_MAX {
                return Err("its reply is too long".to_owned());
            }
            self.receive(until)?;
        }
    }

    fn send(&mut self, bytes: &[u8], until: Time) -> Result<(), String> {
        let Some(secured) = &mut self.secured else {
            return write_all(&mut self.socket, bytes, until);
        };
        let mut unsent = bytes;
        loop {
            while !unsent.is_empty() && !secured.channel.is_handshaking() {
                let taken = secured.channel.encrypt(unsent);
                unsent = unsent.get(taken..).unwrap_or_default();
            }
            flush(&mut secured.channel, &mut self.socket, until)?;
            if unsent.is_empty() {
                return Ok(());
            }
            read_secured(secured, &mut self.socket, &mut self.input, until)?;
        }
    }

    fn receive(&mut self, until: Time) -> Result<(), String> {
        match &mut self.secured {
            Some(secured) => {
                read_secured(secured, &mut self.socket, &mut self.input, until)?;
                flush(&mut secured.channel, &mut self.socket, until)
            }
            None => read_some(&mut self.socket, &mut self.input, until),
        }
    }
}

/// Returns the addresses of a host.
pub fn addresses(host: &str, port: u16) -> Vec<SocketAddr> {
    (host, port).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
}

fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    let mut why = "its name has no address".to_owned();
    for address in addresses(host, port) {
        match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
            Ok(socket) => {
                // A command of several segments would wait for an acknowledgement otherwise.
                let _ = socket.set_nodelay(true);
                return Ok(socket);
            }
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

fn left(until: Time) -> Result<Option<Duration>, String> {
    match until.since(clock()) {
        Duration::ZERO => Err("it does not answer in time".to_owned()),
        left => Ok(Some(left.max(WAIT_MIN))),
    }
}

fn write_all(socket: &mut TcpStream, bytes: &[u8], until: Time) -> Result<(), String> {
    socket.set_write_timeout(left(until)?).map_err(|error| error.to_string())?;
    socket.write_all(bytes).map_err(|error| error.to_string())
}

fn read_some(socket: &mut TcpStream, input: &mut Vec<u8>, until: Time) -> Result<(), String> {
    let mut chunk = [0; 16 << 10];
    socket.set_read_timeout(left(until)?).map_err(|error| error.to_string())?;
    match socket.read(&mut chunk) {
        Ok(0) => Err("it has closed the connection".to_owned()),
        Ok(len) => {
            input.extend_from_slice(chunk.get(..len).unwrap_or_default());
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Err("it does not answer in time".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn flush(channel: &mut Channel, socket: &mut TcpStream, until: Time) -> Result<(), String> {
    let mut records = Vec::new();
    channel.take_output(&mut records);
    if records.is_empty() { Ok(()) } else { write_all(socket, &records, until) }
}

fn read_secured(
    secured: &mut Secured,
    socket: &mut TcpStream,
    plain: &mut Vec<u8>,
    until: Time,
) -> Result<(), String> {
    let mut records = Vec::new();
    read_some(socket, &mut records, until)?;
    let Secured { channel, tls, host } = secured;
    channel.handle_input(&records, plain).map_err(|fault| {
        // The server learns why.
        let _ = flush(channel, socket, until);
        tls.explain(fault, host)
    })
}

/// Returns the length of the first reply, if it is whole.
///
/// # Errors
/// Returns an error if the bytes are no reply that a command here has.
fn reply_len(input: &[u8]) -> Result<Option<usize>, String> {
    let strange = || Err("it answers in another protocol".to_owned());
    let Some(first) = input.first() else { return Ok(None) };
    if !matches!(first, b'+' | b'-' | b':' | b'$') {
        return strange();
    }
    let Some(end) = input.windows(2).position(|two| two == b"\r\n") else {
        return if input.len() > REPLY_LEN_MAX { strange() } else { Ok(None) };
    };
    let line = end + 2;
    if *first != b'$' {
        return Ok(Some(line));
    }
    let len = input.get(1..end).and_then(|len| std::str::from_utf8(len).ok()?.parse::<i64>().ok());
    match len {
        Some(-1) => Ok(Some(line)),
        Some(len) if (0..=REPLY_LEN_MAX as i64).contains(&len) => {
            let whole = line + len as usize + 2;
            Ok((input.len() >= whole).then_some(whole))
        }
        _ => strange(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_whole_when_its_end_is_there() {
        for reply in ["+OK\r\n", "-ERR no\r\n", ":1\r\n", "$2\r\nab\r\n", "$-1\r\n", "$0\r\n\r\n"] {
            let bytes = format!("{reply}+NEXT\r\n");
            for len in 0..reply.len() {
                assert_eq!(reply_len(&bytes.as_bytes()[..len]), Ok(None), "{reply:?} {len}");
            }
            assert_eq!(reply_len(bytes.as_bytes()), Ok(Some(reply.len())));
        }
        for strange in ["HTTP/1.1 400", "*1\r\n", "$x\r\n", "$-2\r\n", "$99999999\r\n"] {
            assert!(reply_len(strange.as_bytes()).is_err(), "{strange:?}");
        }
    }
}
