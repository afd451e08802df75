//! A real redis-server to compare with.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// A real server, ended with the value.
pub struct Redis {
    process: Option<Child>,
    port: u16,
    stream: BufReader<TcpStream>,
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The server may be gone already; it is ours alone in any case.
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a real server runs on the real clock")]
fn now() -> Instant {
    Instant::now()
}

#[allow(clippy::disallowed_methods, reason = "a real server runs on the real clock")]
pub fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("a clock past 1970").as_millis() as u64
}

impl Redis {
    pub fn start(databases: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let mut process = Command::new("redis-server")
            // SORT compares texts as the locale has it.
            .env("LC_ALL", "C")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args([
                "--save",
                "",
                "--appendonly",
                "no",
                "--notify-keyspace-events",
                "AE",
                "--rdbcompression",
                "no",
                "--databases",
                &databases.to_string(),
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let deadline = now() + Duration::from_secs(20);
        let stream = loop {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                break stream;
            }
            let exited = process.try_wait().expect("a child to wait for");
            assert!(exited.is_none() && now() < deadline, "redis-server does not listen");
            std::thread::yield_now();
        };
        stream.set_nodelay(true).expect("a socket option");
        Self { process: Some(process), port, stream: BufReader::new(stream) }
    }

    /// Another connection to the same server, which must not outlive it.
    pub fn connect(&self) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a server that listens");
        Self { process: None, port: self.port, stream: BufReader::new(stream) }
    }

    /// Sends command lines.
    pub fn send(&mut self, lines: &[Vec<Vec<u8>>]) {
        let mut bytes = Vec::new();
        for words in lines {
            bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
            for word in words {
                bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                bytes.extend_from_slice(word);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        self.stream.get_mut().write_all(&bytes).expect("a server that reads");
    }

    /// The bytes of one reply.
    pub fn read_reply(&mut self, reply: &mut Vec<u8>) {
        let start = reply.len();
        self.stream.read_until(b'\n', reply).expect("a server that answers");
        let text = String::from_utf8_lossy(&reply[start + 1..]).trim_end().to_string();
        match reply[start] {
            b'$' if text != "-1" => {
                let len = text.parse::<usize>().expect("a length") + 2;
                let end = reply.len();
                reply.resize(end + len, 0);
                self.stream.read_exact(&mut reply[end..]).expect("a whole bulk");
            }
            b'*' | b'%' | b'~' | b'>' if text != "-1" => {
                let count: usize = text.parse().expect("a count");
                let elements = if reply[start] == b'%' { 2 * count } else { count };
                (0..elements).for_each(|_| self.read_reply(reply));
            }
            _ => {}
        }
    }
}
