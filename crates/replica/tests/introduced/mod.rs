//! The front of a feed: a connection up to its PSYNC.

use keyway_rdb::replication::{ReplicaProfile, Request};
use keyway_replica::feed::Candidate;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// Answers a replica up to its PSYNC.
pub fn introduced(mut stream: TcpStream) -> Option<Candidate> {
    let mut lines = BufReader::new(stream.try_clone().ok()?);
    let mut profile = ReplicaProfile::default();
    loop {
        let words = command(&mut lines)?;
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        match words[0].to_ascii_lowercase().as_slice() {
            b"ping" => stream.write_all(b"+PONG\r\n").ok()?,
            b"replconf" => {
                profile.replconf(&words[1..]).expect("a valid REPLCONF");
                stream.write_all(b"+OK\r\n").ok()?;
            }
            b"psync" => {
                stream.set_nonblocking(true).ok()?;
                let request = Request::parse(&words[1..]).expect("a valid PSYNC");
                let peer = stream.peer_addr().ok()?.ip().to_string();
                return Some(Candidate { socket: stream.into(), peer, profile, request });
            }
            _ => stream.write_all(b"-ERR unknown\r\n").ok()?,
        }
    }
}

/// Reads a command; none at the end of the connection.
fn command(lines: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let count = number(lines, '*')?;
    let mut word = || {
        let len = number(lines, '$')?;
        let mut bytes = vec![0; len + 2];
        lines.read_exact(&mut bytes).ok()?;
        bytes.truncate(len);
        Some(bytes)
    };
    (0..count).map(|_| word()).collect()
}

fn number(lines: &mut impl BufRead, mark: char) -> Option<usize> {
    let mut line = String::new();
    lines.read_line(&mut line).ok()?;
    line.strip_prefix(mark)?.trim_end().parse().ok()
}
