//! One HTTP request, bounded in time and length.

use crate::reading::{Pages, Reading};
use keyway_tls::{Channel, ClientTls};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Time for all that is asked of a process in one round. Longer delays what is said of one that
/// hangs, shorter calls slow ones gone.
const TIME_MAX: Duration = Duration::from_secs(3);
/// Longest reply that is read, in bytes. A pool with 100 servers has under 1 MiB.
const REPLY_LEN_MAX: u64 = 16 << 20;
/// Keys that stand out: as many as fit on a screen.
const HOT_KEYS: &str = "/v1/hot-keys?limit=10";

/// What admin listeners are shown, and how those that speak TLS are asked.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The token, if they want one.
    pub token: Option<String>,
    /// Whose certificates are believed, and our own.
    pub tls: Option<ClientTls>,
}

/// Between the address of a control node and the id of a member in a target.
const MEMBER: char = '#';

/// Returns the name of a target for people: the id of a member, or the address of a process.
pub fn name_of(target: &str) -> &str {
    target.split_once(MEMBER).map_or(target, |(_, id)| id)
}

/// Returns the targets of the members of the control node at `target`, of all zones or of one.
///
/// # Errors
/// What is wrong, for the eyes of an operator.
pub fn members(
    target: &str,
    zone: Option<u64>,
    shown: &Credentials,
) -> Result<Vec<String>, String> {
    let (status, body) = get(target, "/v1/fleet", shown, Instant::now() + TIME_MAX)?;
    match status {
        200 => {}
        404 => return Err("it is no control node: leave out --fleet".to_owned()),
        401 | 403 => return Err(refusal(status, shown.token.is_some())),
        _ => return Err(format!("it answers HTTP {status} to /v1/fleet")),
    }
    let fleet: Value = serde_json::from_str(&body).unwrap_or_default();
    if fleet["leads"] != true {
        let admin = fleet["leader"]["admin"].as_str();
        let admin = admin.map_or("nobody does".to_owned(), |admin| format!("ask {admin}"));
        return Err(format!("it does not lead, and members answer the leader alone: {admin}"));
    }
    let all = fleet["members"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_of = |one: &&Value| zone.is_none_or(|zone| one["zone"].as_u64() == Some(zone));
    let ids = all.iter().filter(is_of).filter_map(|one| one["id"].as_str());
    let found: Vec<String> = ids.map(|id| format!("{target}{MEMBER}{id}")).collect();
    match (found.is_empty(), zone) {
        (false, _) => Ok(found),
        (true, Some(zone)) => Err(format!("it has no members in zone {zone}")),
        (true, None) => Err("it has no members yet".to_owned()),
    }
}

/// Returns the address and the path at which a page of a target is read.
fn located(target: &str, path: &str) -> (String, String) {
    match target.split_once(MEMBER) {
        None => (target.to_owned(), path.to_owned()),
        Some((address, id)) => {
            let (page, rest) = path.split_once('?').map_or((path, ""), |(page, rest)| (page, rest));
            let sign = if rest.is_empty() { "" } else { "&" };
            let path = format!("/v1/fleet/page?members={id}&page={page}{sign}{rest}");
            (address.to_owned(), path)
        }
    }
}

/// Reads all there is of the process with its admin listener at `target`.
///
/// # Errors
/// What is wrong, for the eyes of an operator.
pub fn read(target: &str, shown: &Credentials) -> Result<Reading, String> {
    let deadline = Instant::now() + TIME_MAX;
    let get = |path| {
        let (address, path) = located(target, path);
        get(&address, &path, shown, deadline)
    };
    let (status, metrics) =
        get("/metrics").map_err(|why| match target.starts_with("https://") {
            false if why == no_http() || why.starts_with(BROKEN) => {
                spoken_at(target).map_or(why, no_admin_address)
            }
            _ => why,
        })?;
    let at = Instant::now();
    if status != 200 {
        return Err(refusal(status, shown.token.is_some()));
    }
    let backends = get("/backends")?;
    let ready = get("/readyz")?;
    // An older process has no such page, and a token may be good for less.
    let keys = get(HOT_KEYS)?;
    let pages = Pages {
        metrics,
        keys: (keys.0 == 200).then_some(keys.1),
        backends: (backends.0 == 200).then_some(backends.1),
        not_ready: (ready.0 == 503).then_some(ready.1),
    };
    Reading::new(&pages, at).ok_or_else(|| {
        "what answers there has /metrics, but not Keyway's; give the address of `server.admin`"
            .to_owned()
    })
}

/// The beginning of the words for an answer that is no reading.
const ANSWERS: [&str; 5] = [
    "the token is wrong",
    "the admin listener asks",
    "what answers there",
    "it answers",
    "this port",
];

/// Returns whether something is there, though its answer is no reading: a refusal, or something else.
pub(crate) fn has_answered(why: &str) -> bool {
    ANSWERS.iter().any(|begin| why.starts_with(begin))
}

fn refusal(status: u16, has_token: bool) -> String {
    match status {
        401 | 403 if has_token => {
            "the token is wrong: --token-file, or KEYWAY_ADMIN_TOKEN, is to have that of the \
             listener (admin_token_file or admin_token_env)"
                .to_owned()
        }
        401 | 403 => "the admin listener asks for a token: give --token-file FILE, or set \
                      KEYWAY_ADMIN_TOKEN"
            .to_owned(),
        502 => "control has no answer from it".to_owned(),
        404 => "what answers there has no /metrics; give the address of `server.admin`".to_owned(),
        _ => format!("it answers HTTP {status} to /metrics"),
    }
}

/// A reply's status and body.
fn get(
    target: &str,
    path: &str,
    shown: &Credentials,
    deadline: Instant,
) -> Result<(u16, String), String> {
    let secured = target.strip_prefix("https://");
    let address = secured.unwrap_or(target);
    let mut stream = connect(address, deadline)?;
    // Version 1.0 has no reply in pieces.
    let mut request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n");
    if let Some(token) = &shown.token {
        request.extend(["Authorization: Bearer ", token, "\r\n"]);
    }
    request.push_str("\r\n");
    let reply = match secured {
        None => ask(&mut stream, request.as_bytes(), deadline)?,
        Some(_) => {
            let tls = shown.tls.as_ref().ok_or("it speaks TLS: give --ca-file")?;
            ask_secured(&mut stream, (tls, host_of(address)), request.as_bytes(), deadline)?
        }
    };
    parse(&reply)
}

/// The host of `HOST:PORT`.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

fn ask(stream: &mut TcpStream, request: &[u8], deadline: Instant) -> Result<Vec<u8>, String> {
    set_times(stream, deadline)?;
    stream.write_all(request).map_err(|error| broken(&error))?;
    let mut reply = Vec::new();
    read_reply(stream, &mut reply, deadline)?;
    Ok(reply)
}

/// The same by TLS.
fn ask_secured(
    stream: &mut TcpStream,
    (tls, host): (&ClientTls, &str),
    mut request: &[u8],
    deadline: Instant,
) -> Result<Vec<u8>, String> {
    let mut channel = tls.connect(host).map_err(|fault| tls.explain(fault, host))?;
    let (mut reply, mut part) = (Vec::new(), [0; 16 << 10]);
    loop {
        while !request.is_empty() && !channel.is_handshaking() {
            request = &request[channel.encrypt(request)..];
        }
        flush(&mut channel, stream, deadline)?;
        check_length(&reply)?;
        if channel.has_ended() {
            return Ok(reply);
        }
        set_times(stream, deadline)?;
        let count = stream.read(&mut part).map_err(|error| broken(&error))?;
        if count == 0 {
            return Ok(reply);
        }
        if let Err(fault) = channel.handle_input(&part[..count], &mut reply) {
            // It is told why.
            let _ = flush(&mut channel, stream, deadline);
            return Err(tls.explain(fault, host));
        }
    }
}

fn flush(channel: &mut Channel, stream: &mut TcpStream, deadline: Instant) -> Result<(), String> {
    let mut records = Vec::new();
    channel.take_output(&mut records);
    set_times(stream, deadline)?;
    stream.write_all(&records).map_err(|error| broken(&error))
}

fn check_length(reply: &[u8]) -> Result<(), String> {
    match reply.len() as u64 > REPLY_LEN_MAX {
        true => Err(format!("its reply is longer than {} MiB", REPLY_LEN_MAX >> 20)),
        false => Ok(()),
    }
}

fn connect(address: &str, deadline: Instant) -> Result<TcpStream, String> {
    let found = address.to_socket_addrs().map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => format!("`{address}` is no HOST:PORT"),
        _ => format!("cannot find the host of `{address}`: {error}"),
    })?;
    let mut why = format!("the host of `{address}` has no address");
    for one in found {
        match TcpStream::connect_timeout(&one, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                why = "nobody listens there (connection refused)".into();
            }
            Err(error) if is_timeout(&error) => return Err(too_slow()),
            Err(error) => why = format!("cannot connect: {error}"),
        }
    }
    Err(why)
}

/// Reads to the end, or to the length that the head tells.
fn read_reply(
    stream: &mut TcpStream,
    reply: &mut Vec<u8>,
    deadline: Instant,
) -> Result<(), String> {
    let mut part = [0; 16 << 10];
    loop {
        set_times(stream, deadline)?;
        let count = match stream.read(&mut part) {
            Ok(count) => count,
            // What Redis speaks may be no more than an error, and then silence.
            Err(error) if is_timeout(&error) && !may_be_http(reply) => return Err(no_http()),
            Err(error) => return Err(broken(&error)),
        };
        reply.extend_from_slice(&part[..count]);
        if count == 0 {
            return Ok(());
        }
        if !may_be_http(reply) {
            return Err(no_http());
        }
        check_length(reply)?;
    }
}

fn may_be_http(reply: &[u8]) -> bool {
    let begin = reply.len().min(5);
    reply[..begin] == b"HTTP/"[..begin]
}

fn set_times(stream: &TcpStream, deadline: Instant) -> Result<(), String> {
    let left = Some(left(deadline)?);
    stream.set_read_timeout(left).map_err(|error| broken(&error))?;
    stream.set_write_timeout(left).map_err(|error| broken(&error))
}

fn left(deadline: Instant) -> Result<Duration, String> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(too_slow()) } else { Ok(left) }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

fn too_slow() -> String {
    format!("no answer within {} s", TIME_MAX.as_secs())
}

fn no_http() -> String {
    "what answers there does not speak HTTP; give the address of `server.admin`, not that of a \
     listener for clients, with https:// before it where there is `admin_tls`"
        .to_owned()
}

fn broken(error: &std::io::Error) -> String {
    if is_timeout(error) { too_slow() } else { format!("{BROKEN}: {error}") }
}

const BROKEN: &str = "the connection broke";

/// Time to find out which protocol an address speaks.
const SPOKEN_TIME: Duration = Duration::from_secs(1);

/// The protocol of an address that does not speak HTTP, if it is known.
pub fn spoken_at(address: &str) -> Option<&'static str> {
    let deadline = Instant::now() + SPOKEN_TIME;
    let mut stream = connect(address, deadline).ok()?;
    set_times(&stream, deadline).ok()?;
    stream.write_all(b"PING\r\n").ok()?;
    let mut reply = [0; 64];
    let count = stream.read(&mut reply).ok()?;
    match &reply[..count] {
        // memcached servers and proxies do not know this command.
        reply if reply.starts_with(b"ERROR") => Some("the protocol of memcached"),
        [b'+' | b'-', ..] => Some("RESP, the protocol of Redis"),
        _ => None,
    }
}

/// Advice for an address that speaks another protocol.
pub fn no_admin_address(spoken: &str) -> String {
    format!(
        "this port speaks {spoken}: it is for clients; give the address of `server.admin` \
         (127.0.0.1:9380 unless configured)"
    )
}

fn parse(reply: &[u8]) -> Result<(u16, String), String> {
    let text = String::from_utf8_lossy(reply);
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(no_http)?;
    let mut words = head.split(' ');
    let status = words.next().filter(|word| word.starts_with("HTTP/"));
    let status = status.and(words.next()).and_then(|word| word.parse().ok());
    let status = status.ok_or_else(no_http)?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    if length.is_some_and(|length| length > body.len()) {
        return Err("its reply was cut off".to_owned());
    }
    Ok((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener};
    use std::thread::{JoinHandle, spawn};

    /// Answers one connection with these bytes, once it has heard something.
    fn answering(reply: &'static [u8]) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let thread = spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(reply);
        });
        (address, thread)
    }

    #[test]
    fn a_port_for_clients_is_told_as_that() {
        for (reply, spoken) in [
            (&b"+PONG\r\n"[..], "speaks RESP"),
            (b"-NOAUTH Authentication required.\r\n", "speaks RESP"),
            (b"ERROR\r\n", "protocol of memcached"),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = listener.local_addr().expect("a bound socket").to_string();
            let thread = spawn(move || {
                // The server closes the connection at HTTP, as Redis does.
                let (mut stream, _) = listener.accept().expect("a client");
                let _ = stream.read(&mut [0; 1024]);
                drop(stream);
                let (mut stream, _) = listener.accept().expect("a client");
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(reply);
            });
            let error = read(&address, &Credentials::default()).expect_err("no Keyway");
            assert!(error.contains(spoken) && error.contains("9380"), "{error}");
            thread.join().expect("it answered");
        }
    }

    #[test]
    fn who_is_not_keyway_is_told_apart() {
        for (reply, why) in [
            (&b"-ERR unknown command\r\n"[..], "does not speak HTTP"),
            (b"", "does not speak HTTP"),
            (b"HTTP/1.1 404 Not Found\r\n\r\n", "has no /metrics"),
            (b"HTTP/1.1 403 Forbidden\r\n\r\n", "asks for a token"),
            (b"HTTP/1.1 500 Oh\r\n\r\n", "HTTP 500"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort", "cut off"),
        ] {
            let (address, thread) = answering(reply);
            let error = read(&address.to_string(), &Credentials::default()).expect_err("no Keyway");
            assert!(error.contains(why), "{error}");
            thread.join().expect("it answered");
        }
    }

    #[test]
    fn a_wrong_token_is_told_apart_from_none() {
        let (address, thread) = answering(b"HTTP/1.1 401 Unauthorized\r\n\r\n");
        let shown = Credentials { token: Some("another".into()), ..Credentials::default() };
        let error = read(&address.to_string(), &shown).expect_err("a refusal");
        assert!(error.starts_with("the token is wrong"), "{error}");
        thread.join().expect("it answered");
    }

    #[test]
    fn a_token_is_shown_if_there_is_one() {
        for token in [None, Some("open sesame")] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = listener.local_addr().expect("a bound socket").to_string();
            let asked = spawn(move || {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut head = [0; 1024];
                let count = stream.read(&mut head).expect("a request");
                String::from_utf8_lossy(&head[..count]).into_owned()
            });
            let shown = Credentials { token: token.map(str::to_owned), tls: None };
            let _ = read(&address, &shown);
            let head = asked.join().expect("it was asked");
            let shown = head.lines().find_map(|line| line.strip_prefix("Authorization: Bearer "));
            assert_eq!(shown, token);
            assert!(head.ends_with("\r\n\r\n"), "{head}");
        }
    }

    #[test]
    fn who_is_to_be_asked_by_tls_is_asked_by_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let error = read(&format!("https://{address}"), &Credentials::default());
        assert!(error.expect_err("without an authority").contains("--ca-file"));
        assert_eq!(host_of("[::1]:9380"), "::1");
        assert_eq!(host_of("cache-1:9380"), "cache-1");
    }

    #[test]
    fn addresses_that_lead_nowhere_are_named() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket").to_string();
        drop(listener);
        assert!(
            read(&address, &Credentials::default()).expect_err("nobody").contains("nobody listens")
        );
        assert!(
            read("nonsense", &Credentials::default())
                .expect_err("no port")
                .contains("is no HOST:PORT")
        );
    }

    #[test]
    fn a_member_is_read_through_its_control_node() {
        let there = |target, path| located(target, path);
        let of = |address: &str, path: &str| (address.to_owned(), path.to_owned());
        assert_eq!(there("a:1", "/metrics"), of("a:1", "/metrics"));
        let member = "https://a:1#z1.p.0.1";
        assert_eq!(
            there(member, HOT_KEYS),
            of("https://a:1", "/v1/fleet/page?members=z1.p.0.1&page=/v1/hot-keys&limit=10")
        );
        assert_eq!((name_of(member), name_of("a:1")), ("z1.p.0.1", "a:1"));
    }

    #[test]
    fn a_reply_has_its_status_and_body() {
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(parse(reply), Ok((200, "abc".to_owned())));
    }
}
