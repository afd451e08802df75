//! One HTTP request, plain or by TLS, with bounds on its time and length.

use super::{TlsFiles, Whom};
use crate::admin_of::{AdminOf, admin_of};
use keyway_config::read_file;
use keyway_control::CHANGE_HEADER;
use keyway_tls::{Channel, ClientSettings, ClientTls, Identity, MinVersion, Trust};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest time of an exchange. The listener answers within milliseconds.
const EXCHANGE_TIME: Duration = Duration::from_secs(10);

/// Longest time of an exchange whose request may take long, such as a reload. It is longer than the
/// time for which the asked process makes a client wait.
const CHANGE_TIME: Duration = Duration::from_secs(45);

/// Longest reply that is read, in bytes. Replies about a thousand clients, or some thousand
/// servers, are far shorter.
const REPLY_LEN_MAX: usize = 64 << 20;

const DEFAULT_ADMIN: &str = "http://127.0.0.1:9380";

/// The reason why there is no answer, or not one of an admin listener.
pub struct Unreachable(pub String);

/// An answer.
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body as it was received.
    pub text: String,
    /// The body as a JSON value; null if it is not JSON.
    pub body: Value,
    /// Advice about the token, if that is why the request was refused.
    pub about_token: Option<&'static str>,
}

impl Answer {
    /// Returns whether the answer may come from an admin listener of Keyway: each of its answers is
    /// an object, and a refusal gives a reason.
    fn is_of_keyway(&self) -> bool {
        let is_done = (200..300).contains(&self.status);
        let says = |name: &str| self.body[name].is_string();
        self.body.is_object() && (is_done || says("detail") || says("status"))
    }
}

/// The reason why there is no reply.
enum Why {
    /// The connection could not be established.
    Connect(String),
    /// The connection was established, but no reply came.
    Talk(String),
    /// TLS could not be established: the server or this process refused.
    Certificate(String),
}

/// Advice for a port at which another program listens.
const NAME_THE_ADDRESS: &str =
    "name the address of Keyway's `server.admin` with --admin HOST:PORT or --config FILE";

/// Length of the shown part of a reply that is not HTTP, in bytes.
const SHOWN: usize = 60;

/// The server to ask, and the credentials.
pub struct Client {
    host: String,
    port: u16,
    token: Option<String>,
    tls: Option<ClientTls>,
}

impl Client {
    /// Reads the files that are named.
    ///
    /// # Errors
    /// Returns what is wrong with them, or with the address.
    pub fn new(whom: &Whom) -> Result<Client, String> {
        let address = match &whom.config {
            Some(file) => named_in(file)?.to_string(),
            None => {
                let address = whom.admin.clone().or_else(|| variable("KEYWAY_ADMIN"));
                address.unwrap_or_else(|| DEFAULT_ADMIN.to_owned())
            }
        };
        let (is_secured, rest) = match address.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http" | "tcp", rest)) => (false, rest),
            Some(_) => return Err(not_an_address(&address)),
            None => (whom.tls.has_authority(), address.as_str()),
        };
        let (host, port) = rest
            .trim_end_matches('/')
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host, port.parse().ok()?)))
            .filter(|(host, _)| !host.is_empty())
            .ok_or_else(|| not_an_address(&address))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = is_secured.then(|| whom.tls.load()).transpose()?;
        Ok(Client { host, port, token: token(whom.token_file.as_deref())?, tls })
    }

    /// Creates a client for a listener on this machine, for questions that are not secret. It sends
    /// no token, and accepts a certificate of any issuer.
    ///
    /// # Errors
    /// Returns what is wrong with the files of the client's own certificate, if they are given.
    pub fn of_this_machine(admin: &AdminOf, files: &TlsFiles) -> Result<Client, String> {
        let load =
            || load_tls(files, files.ca_file.clone().map_or(Trust::Anybody, Trust::Authorities));
        let tls = admin.is_secured.then(load).transpose()?;
        let (host, port) = (admin.address.ip().to_string(), admin.address.port());
        Ok(Client { host, port, token: None, tls })
    }

    /// Sends one request.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, Unreachable> {
        let time = if method == "GET" { EXCHANGE_TIME } else { CHANGE_TIME };
        self.ask_within(time, (method, path), body)
    }

    /// Sends a request without a body whose answer may wait for something.
    pub fn ask_long(&self, method: &str, path: &str) -> Result<Answer, Unreachable> {
        self.ask_within(CHANGE_TIME, (method, path), None)
    }

    fn ask_within(
        &self,
        time: Duration,
        (method, path): (&str, &str),
        body: Option<&Value>,
    ) -> Result<Answer, Unreachable> {
        let request = self.request(method, path, body);
        let deadline = now() + time;
        let exchanged = self.exchange(request.as_bytes(), deadline);
        let reply = exchanged.map_err(|why| match why {
            Why::Connect(_) | Why::Certificate(_) => self.no_answer(&why),
            Why::Talk(_) => self.for_clients().unwrap_or_else(|| self.no_answer(&why)),
        })?;
        let about_token = match &self.token {
            Some(_) => {
                "the token is wrong: --token-file, or KEYWAY_ADMIN_TOKEN, is to have that of the \
                 listener (admin_token_file or admin_token_env) or of an [[operator]]"
            }
            None => {
                "the admin listener asks for a token: give --token-file FILE, or set \
                 KEYWAY_ADMIN_TOKEN"
            }
        };
        let answer = parse(&reply).map(|answer| Answer {
            about_token: (answer.status == 401).then_some(about_token),
            ..answer
        });
        match answer {
            Some(answer) if answer.is_of_keyway() => Ok(answer),
            Some(Answer { status, .. }) => Err(Unreachable(format!(
                "what answers at {} is no admin listener of Keyway (HTTP status {status}); \
                 {NAME_THE_ADDRESS}",
                self.address()
            ))),
            None => Err(self.for_clients().unwrap_or_else(|| self.no_http(&reply))),
        }
    }

    /// Returns the error for a server that speaks another protocol.
    fn no_http(&self, reply: &[u8]) -> Unreachable {
        let address = self.address();
        Unreachable(match reply {
            [] => format!(
                "what listens at {address} closes the connection without an answer; \
                 {NAME_THE_ADDRESS}"
            ),
            // The reply is a TLS alert, of any version.
            [0x15, 0x03, ..] if self.tls.is_none() => format!(
                "what listens at {address} speaks TLS; write https://{address}, and --ca-file FILE"
            ),
            reply => {
                let line = reply.split(|byte| matches!(byte, b'\r' | b'\n')).next();
                let shown = &line.unwrap_or_default()[..line.map_or(0, <[u8]>::len).min(SHOWN)];
                format!(
                    "what answers at {address} does not speak HTTP: it says \"{}\"; \
                     {NAME_THE_ADDRESS}",
                    keyway_base::printable(shown)
                )
            }
        })
    }

    /// Returns an error if the port is one for clients.
    fn for_clients(&self) -> Option<Unreachable> {
        let address = self.address();
        let spoken = self.tls.is_none().then(|| keyway_top::spoken_at(&address)).flatten()?;
        Some(Unreachable(format!("{address}: {}", keyway_top::no_admin_address(spoken))))
    }

    fn address(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Checks that the server speaks TLS, by a handshake and no more.
    pub fn shake_hands(&self) -> Result<(), Unreachable> {
        let shaken = self.exchange(&[], now() + EXCHANGE_TIME);
        shaken.map(drop).map_err(|why| self.no_answer(&why))
    }

    fn no_answer(&self, why: &Why) -> Unreachable {
        let address = self.address();
        Unreachable(match why {
            Why::Connect(why) => format!(
                "no answer from {address}: {why}; start that Keyway, or name the address of its \
                 `server.admin` with --admin HOST:PORT or --config FILE"
            ),
            Why::Talk(why) => format!("no answer from {address}: {why}; {NAME_THE_ADDRESS}"),
            Why::Certificate(why) => format!(
                "{address} is there, and TLS to it fails: {why}; give the certificate of its \
                 authority with --ca-file, and the host that its certificate is for with --admin \
                 https://HOST:PORT"
            ),
        })
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> String {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.address());
        if method != "GET" {
            head.push_str(&format!("{CHANGE_HEADER}: 1\r\n"));
        }
        if let Some(token) = &self.token {
            head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        if !body.is_empty() {
            head.push_str("Content-Type: application/json\r\n");
        }
        format!("{head}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
    }

    fn exchange(&self, request: &[u8], deadline: Instant) -> Result<Vec<u8>, Why> {
        let addresses = (self.host.as_str(), self.port).to_socket_addrs();
        let addresses = addresses.map_err(|error| Why::Connect(error.to_string()))?;
        let mut why = "the name has no address".to_owned();
        for address in addresses {
            match TcpStream::connect_timeout(&address, left(deadline).map_err(Why::Connect)?) {
                Ok(socket) => {
                    return match &self.tls {
                        None => plain(socket, request, deadline).map_err(Why::Talk),
                        Some(tls) => secured(socket, tls, &self.host, request, deadline),
                    };
                }
                Err(error) => why = error.to_string(),
            }
        }
        Err(Why::Connect(why))
    }
}

/// Returns the admin listener that a file names.
fn named_in(file: &Path) -> Result<AdminOf, String> {
    let there = admin_of(file).map_err(|error| format!("{error:#}"))?;
    let place = file.display();
    there.ok_or_else(|| format!("{place}: there is no admin listener; set server.admin"))
}

fn not_an_address(address: &str) -> String {
    format!("{address:?} is no address: write HOST:PORT, http://HOST:PORT or https://HOST:PORT")
}

#[allow(clippy::disallowed_methods, reason = "where shells keep what every call would repeat")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

#[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
fn now() -> Instant {
    Instant::now()
}

/// Returns the token in a file, else that of the variable KEYWAY_ADMIN_TOKEN.
pub fn token(file: Option<&Path>) -> Result<Option<String>, String> {
    let token = match file {
        None => variable("KEYWAY_ADMIN_TOKEN"),
        Some(path) => {
            let text = read_file(path).map_err(|why| format!("{}: {why}", path.display()))?;
            let text = text.trim_end_matches(['\r', '\n']).to_owned();
            if text.is_empty() {
                return Err(format!("{}: it is empty: write the token to it", path.display()));
            }
            Some(text)
        }
    };
    // A line end in the token would start another header.
    match token {
        Some(token) if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err("the token (not shown) has characters that no header may have".to_owned())
        }
        token => Ok(token),
    }
}

/// Loads the TLS settings of these files, for a caller that trusts the authorities among them.
pub fn load_tls_of_authorities(files: &TlsFiles) -> Result<ClientTls, String> {
    let Some(ca_file) = files.ca_file.clone() else {
        return Err(
            "https needs --ca-file FILE: the certificates of the authority that has issued the \
                    admin listener's"
                .to_owned(),
        );
    };
    load_tls(files, Trust::Authorities(ca_file))
}

fn load_tls(files: &TlsFiles, trust: Trust) -> Result<ClientTls, String> {
    let identity = files.cert_file.clone().zip(files.key_file.clone());
    let settings = ClientSettings {
        trust,
        server_name: None,
        identity: identity.map(|(cert_file, key_file)| Identity { cert_file, key_file }),
        min_version: MinVersion::V1_2,
    };
    let read = |path: &Path| read_file(path);
    let loaded = ClientTls::load(&settings, &read).map_err(|faults| {
        let faults = faults.iter().map(|fault| format!("{}; {}", fault.what, fault.hint));
        faults.collect::<Vec<_>>().join("; ")
    })?;
    Ok(loaded.tls)
}

fn left(deadline: Instant) -> Result<Duration, String> {
    let left = deadline.saturating_duration_since(now());
    if left.is_zero() { Err("it does not answer in time".to_owned()) } else { Ok(left) }
}

/// Reads some bytes; none at the end.
fn read_some(socket: &mut TcpStream, chunk: &mut [u8], deadline: Instant) -> Result<usize, String> {
    socket.set_read_timeout(Some(left(deadline)?)).map_err(|error| error.to_string())?;
    socket.read(chunk).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => "it does not answer in time".to_owned(),
        _ => error.to_string(),
    })
}

fn write_all(socket: &mut TcpStream, bytes: &[u8], deadline: Instant) -> Result<(), String> {
    socket.set_write_timeout(Some(left(deadline)?)).map_err(|error| error.to_string())?;
    socket.write_all(bytes).map_err(|error| error.to_string())
}

fn plain(mut socket: TcpStream, request: &[u8], deadline: Instant) -> Result<Vec<u8>, String> {
    write_all(&mut socket, request, deadline)?;
    let (mut reply, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    while reply.len() <= REPLY_LEN_MAX && !is_whole(&reply) && may_be_http(&reply) {
        match read_some(&mut socket, &mut chunk, deadline)? {
            0 => break,
            len => reply.extend_from_slice(&chunk[..len]),
        }
    }
    Ok(reply)
}

/// Exchanges over TLS. Ends after the handshake if there is no request.
fn secured(
    mut socket: TcpStream,
    tls: &ClientTls,
    host: &str,
    request: &[u8],
    deadline: Instant,
) -> Result<Vec<u8>, Why> {
    let explain = |fault| Why::Certificate(tls.explain(fault, host));
    let mut channel = tls.connect(host).map_err(explain)?;
    let mut unsent = request;
    let (mut reply, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        while !unsent.is_empty() && !channel.is_handshaking() {
            unsent = &unsent[channel.encrypt(unsent)..];
        }
        flush(&mut channel, &mut socket, deadline).map_err(Why::Talk)?;
        if request.is_empty() && !channel.is_handshaking() {
            return Ok(reply);
        }
        let has_ended = channel.has_ended() || reply.len() > REPLY_LEN_MAX || is_whole(&reply);
        let len = match has_ended {
            true => 0,
            false => read_some(&mut socket, &mut chunk, deadline).map_err(Why::Talk)?,
        };
        if len == 0 && channel.is_handshaking() {
            return Err(Why::Talk("it closes the connection within the TLS handshake".to_owned()));
        }
        if len == 0 {
            return Ok(reply);
        }
        if let Err(fault) = channel.handle_input(&chunk[..len], &mut reply) {
            let _ = flush(&mut channel, &mut socket, deadline);
            return Err(explain(fault));
        }
    }
}

fn flush(channel: &mut Channel, socket: &mut TcpStream, deadline: Instant) -> Result<(), String> {
    let mut records = Vec::new();
    channel.take_output(&mut records);
    write_all(socket, &records, deadline)
}

/// Returns whether the bytes may be the beginning of an HTTP reply. Some servers send something
/// else at once, and then nothing.
fn may_be_http(reply: &[u8]) -> bool {
    let begin = reply.len().min(5);
    reply[..begin] == b"HTTP/"[..begin]
}

/// Returns whether a reply that states its length is complete.
fn is_whole(reply: &[u8]) -> bool {
    let Some((head, body)) = split(reply) else { return false };
    let len = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_len = name.eq_ignore_ascii_case("content-length");
        is_len.then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    len.is_some_and(|len| body.len() >= len)
}

fn split(reply: &[u8]) -> Option<(&str, &[u8])> {
    let at = reply.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some((std::str::from_utf8(&reply[..at]).ok()?, &reply[at + 4..]))
}

fn parse(reply: &[u8]) -> Option<Answer> {
    let (head, body) = split(reply)?;
    let status = head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    let text = String::from_utf8_lossy(body).into_owned();
    let body = serde_json::from_str(&text).unwrap_or_default();
    Some(Answer { status, text, body, about_token: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_whole_when_its_body_is_there() {
        let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        assert!((0..reply.len()).all(|len| !is_whole(&reply[..len])));
        assert!(is_whole(reply));
        let answer = parse(reply).unwrap();
        assert_eq!((answer.status, answer.body), (200, serde_json::json!({})));
        // A reply of another server is recognised by its body.
        let other = parse(b"HTTP/1.0 404 File not found\r\n\r\n<html>").unwrap();
        assert!(other.status == 404 && !other.is_of_keyway());
        assert!(parse(b"+PONG\r\n").is_none() && parse(b"-ERR\r\n\r\n\r\n").is_none());
    }
}
