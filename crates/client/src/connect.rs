//! How a connection comes to be.

use crate::stream::Waiting;
use keyway_ring::{CAPACITY_MIN, Hello, Pipe, Refusal, Shared, Spin, hear, say};
use rustix::event::PollFlags;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, recv, sockopt,
};
use std::io::{self, ErrorKind, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest text that is told of what a server says instead of an answer, in bytes.
const WORDS_MAX: usize = 512;

pub fn connect_tcp(host: &str, port: u16, timeout: Option<Duration>) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let connected = match timeout {
            Some(timeout) => TcpStream::connect_timeout(&address, timeout),
            None => TcpStream::connect(address),
        };
        match connected {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub fn connect_unix(path: &Path, timeout: Option<Duration>) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let (address, mut waiting) = (SocketAddrUnix::new(path)?, Waiting::new(timeout));
    loop {
        // A server whose backlog is full lets who connects wait for as long as who sends.
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, waiting.left()?)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
    Ok(socket.into())
}

/// Shared memory, or the socket that is left when there is none.
pub fn connect_shared(
    path: &Path,
    ring_len: usize,
    spin: Duration,
    timeout: Option<Duration>,
) -> io::Result<Result<Pipe, (Refusal, UnixStream)>> {
    let mut waiting = Waiting::new(timeout);
    waiting.left()?;
    let socket = connect_unix(path, timeout)?;
    let shared = match ask_for_less_and_less(&socket, ring_len, &mut waiting)? {
        Ok(shared) => shared,
        Err(why) => return Ok(Err((why, socket))),
    };
    let spin = if spin.is_zero() { Spin::never() } else { Spin::adaptive(spin) };
    Ok(Ok(Pipe::new(shared, socket, spin)))
}

/// Asks for rings of `ring_len` bytes each, and for half of that while they are too large for the
/// server.
fn ask_for_less_and_less(
    socket: &UnixStream,
    ring_len: usize,
    waiting: &mut Waiting,
) -> io::Result<Result<Shared, Refusal>> {
    let mut hello = Hello::new(ring_len, ring_len);
    loop {
        match ask(socket, &hello, waiting)? {
            Err(Refusal::Capacity) if hello.up > CAPACITY_MIN => {
                hello = Hello::new(hello.up / 2, hello.up / 2);
            }
            outcome => return Ok(outcome),
        }
    }
}

/// Asks once. What is no answer is told in the server's words.
fn ask(
    socket: &UnixStream,
    hello: &Hello,
    waiting: &mut Waiting,
) -> io::Result<Result<Shared, Refusal>> {
    let said = say(socket, hello);
    let late = |error: io::Error| match error.kind() {
        ErrorKind::TimedOut => {
            let what = "no answer in time: does its process run, and is it a listener of shm://?";
            io::Error::new(ErrorKind::TimedOut, what)
        }
        _ => error,
    };
    match first_byte(socket, waiting).map_err(late)? {
        // Answers begin like that, and come in one piece; nothing else does.
        Some(0) => {
            socket.set_read_timeout(waiting.left().map_err(late)?)?;
            let answer = hear(socket, hello);
            socket.set_read_timeout(None)?;
            answer
        }
        Some(_) => Err(instead(&words(socket, waiting)?)),
        None => Err(said.err().unwrap_or_else(|| {
            let what = "the server has ended the connection without an answer";
            io::Error::new(ErrorKind::UnexpectedEof, what)
        })),
    }
}

/// What comes first, which stays there; `None` when the server has ended.
fn first_byte(socket: &UnixStream, waiting: &mut Waiting) -> io::Result<Option<u8>> {
    let mut byte = [0];
    loop {
        match recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, len)) => return Ok((len > 0).then_some(byte[0])),
            Err(Errno::AGAIN) => waiting.wait(socket.as_fd(), PollFlags::IN)?,
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET | Errno::PIPE) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// A line of text, or what there is of it when the server ends or says no more.
fn words(mut socket: &UnixStream, waiting: &mut Waiting) -> io::Result<Vec<u8>> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.len() < WORDS_MAX && !line.ends_with(b"\n") {
        match first_byte(socket, waiting) {
            Ok(Some(_)) => socket.read_exact(&mut byte)?,
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::TimedOut => break,
            Err(error) => return Err(error),
        }
        line.push(byte[0]);
    }
    Ok(line)
}

/// The error that a server has answered with, or what else it has said.
fn instead(line: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    match text.strip_prefix('-') {
        // It took the hello for a command.
        Some(error) if error.contains("unknown command") => {
            let what =
                format!("a server of unix:// listens there, not of shm:// (it answers {error:?})");
            io::Error::new(ErrorKind::InvalidData, what)
        }
        Some(error) => io::Error::new(ErrorKind::ConnectionRefused, error),
        None => {
            let what = format!("it answers {text:?}: is it a listener of shm://?");
            io::Error::new(ErrorKind::InvalidData, what)
        }
    }
}
