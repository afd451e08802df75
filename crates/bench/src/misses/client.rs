//! One connection that asks for keys in batches and writes the missing ones, like an application in
//! front of a database.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::Error;

/// Number of keys that are asked at once. If a missing key is in a batch twice, it is missing
/// twice, in every system.
pub const BATCH: usize = 50;
/// A system that answers nothing for this long counts as stuck.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 64 << 10;

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// RESP2.
    Redis,
    /// memcached's classic text.
    Memcached,
}

/// A blocking client.
pub struct Client {
    stream: TcpStream,
    words: Words,
    value: Vec<u8>,
    out: Vec<u8>,
    input: Vec<u8>,
    /// Index at which the unread part of `input` begins.
    taken: usize,
    missing: Vec<u32>,
}

impl Client {
    /// Connects. Values will have `value_bytes` bytes.
    ///
    /// # Errors
    /// Returns [`Error::Io`].
    pub fn connect(addr: SocketAddr, words: Words, value_bytes: usize) -> Result<Client, Error> {
        let io = || Error::io(format!("connecting to {addr}"));
        let stream = TcpStream::connect(addr).map_err(io())?;
        stream.set_nodelay(true).map_err(io())?;
        stream.set_read_timeout(Some(SILENCE_MAX)).map_err(io())?;
        let value = (b'a'..=b'z').cycle().take(value_bytes).collect();
        let (out, input) = (Vec::new(), Vec::new());
        Ok(Client { stream, words, value, out, input, taken: 0, missing: Vec::new() })
    }

    /// Asks for `keys`, at most a batch, and writes the missing ones. Returns how many were
    /// missing.
    ///
    /// # Errors
    /// Returns [`Error::Answers`] if a reply is neither the value nor a miss, or if a write was
    /// refused, and [`Error::Io`].
    pub fn get_or_set(&mut self, keys: &[u32]) -> Result<usize, Error> {
        for key in keys {
            let line = match self.words {
                Words::Redis => format!("*2\r\n$3\r\nGET\r\n$16\r\nkey:{key:012}\r\n"),
                Words::Memcached => format!("get key:{key:012}\r\n"),
            };
            self.out.extend_from_slice(line.as_bytes());
        }
        self.send()?;
        let mut missing = std::mem::take(&mut self.missing);
        missing.clear();
        for key in keys {
            if !self.take_value()? {
                missing.push(*key);
            }
        }
        for key in &missing {
            self.push_set(*key);
        }
        self.send()?;
        let written = match self.words {
            Words::Redis => &b"+OK"[..],
            Words::Memcached => b"STORED",
        };
        for _ in &missing {
            self.expect(written)?;
        }
        self.missing = missing;
        Ok(self.missing.len())
    }

    /// Returns the number of items.
    ///
    /// # Errors
    /// Returns [`Error::Answers`] and [`Error::Io`].
    pub fn count_items(&mut self) -> Result<u64, Error> {
        let question: &[u8] = match self.words {
            Words::Redis => b"*1\r\n$6\r\nDBSIZE\r\n",
            Words::Memcached => b"stats\r\n",
        };
        self.out.extend_from_slice(question);
        self.send()?;
        let mut count = None;
        loop {
            let line = String::from_utf8_lossy(&self.line()?).into_owned();
            let number = line.strip_prefix(':').or_else(|| line.strip_prefix("STAT curr_items "));
            count = number.and_then(|number| number.parse().ok()).or(count);
            if self.words == Words::Redis || line == "END" {
                return count.ok_or(Error::Answers(line));
            }
        }
    }

    fn push_set(&mut self, key: u32) {
        let len = self.value.len();
        let line = match self.words {
            Words::Redis => {
                format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n${len}\r\n")
            }
            Words::Memcached => format!("set key:{key:012} 0 0 {len}\r\n"),
        };
        self.out.extend_from_slice(line.as_bytes());
        self.out.extend_from_slice(&self.value);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Reads the next reply. Returns whether it is a value.
    fn take_value(&mut self) -> Result<bool, Error> {
        let line = self.line()?;
        match (self.words, &line[..]) {
            (Words::Redis, b"$-1") | (Words::Memcached, b"END") => return Ok(false),
            (Words::Redis, line) if line.starts_with(b"$") => {}
            (Words::Memcached, line) if line.starts_with(b"VALUE ") => {}
            _ => return Err(Error::Answers(String::from_utf8_lossy(&line).into_owned())),
        }
        let end = self.value.len() + 2;
        while self.input.len() - self.taken < end {
            self.read()?;
        }
        self.taken += end;
        if self.words == Words::Memcached {
            self.expect(b"END")?;
        }
        Ok(true)
    }

    fn expect(&mut self, expected: &[u8]) -> Result<(), Error> {
        let line = self.line()?;
        if line == expected {
            return Ok(());
        }
        Err(Error::Answers(String::from_utf8_lossy(&line).into_owned()))
    }

    /// Returns the next line, without its end.
    fn line(&mut self) -> Result<Vec<u8>, Error> {
        let mut seen = self.taken;
        loop {
            let rest = &self.input[seen..];
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let line = &self.input[self.taken..seen + at];
                let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
                self.taken = seen + at + 1;
                return Ok(line);
            }
            seen = self.input.len() - self.taken;
            self.read()?;
            seen += self.taken;
        }
    }

    fn send(&mut self) -> Result<(), Error> {
        self.stream.write_all(&self.out).map_err(Error::io("sending requests"))?;
        self.out.clear();
        Ok(())
    }

    /// Discards what was read and reads more.
    fn read(&mut self) -> Result<(), Error> {
        self.input.drain(..self.taken);
        self.taken = 0;
        let before = self.input.len();
        self.input.resize(before + READ_BYTES, 0);
        let len =
            self.stream.read(&mut self.input[before..]).map_err(Error::io("reading replies"))?;
        self.input.truncate(before + len);
        if len == 0 {
            return Err(Error::Load("the connection was closed".into()));
        }
        Ok(())
    }
}
