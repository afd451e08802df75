//! Clients that never stop sending, whoever closes.

use crate::client::encode;
use crate::watchdog::wait_until;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Requests that are written at once.
const BATCH: usize = 400;

/// Requests without a reply above which a client waits: how long replies may wait for their reader
/// then does not matter, also where others keep the processors busy.
const AHEAD_MAX: u64 = 20_000;

/// Far above any deadline under test.
const PATIENCE: Duration = Duration::from_secs(40);

/// Clients that each count up a key of their own, by pipelines without a pause, until the server
/// says that nothing more comes.
#[derive(Debug)]
pub struct Flood {
    clients: Vec<Flooding>,
}

#[derive(Debug)]
struct Flooding {
    key: String,
    replies: Arc<AtomicU64>,
    reader: JoinHandle<Result<(), String>>,
}

impl Flood {
    /// `count` clients, whose keys begin with `name`.
    ///
    /// # Panics
    /// When nobody accepts.
    pub fn start(address: SocketAddr, name: &str, count: usize) -> Flood {
        let client = |number| {
            let key = format!("{name}:{number}");
            let stream = TcpStream::connect(address)
                .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
            let (replies, request) = (Arc::default(), encode(&["INCR", &key]));
            let counted = Arc::clone(&replies);
            let reader = std::thread::spawn(move || flood(&stream, &request, &counted));
            Flooding { key, replies, reader }
        };
        Flood { clients: (0..count).map(client).collect() }
    }

    /// Waits until each has had that many replies.
    pub fn await_replies(&self, each: u64) {
        wait_until("replies in a flood", PATIENCE, || {
            self.clients
                .iter()
                .all(|one| one.replies.load(Ordering::Relaxed) >= each || one.reader.is_finished())
        });
    }

    /// Waits until all were closed: their keys, and how often each was counted up.
    ///
    /// # Panics
    /// When one was reset, or had something else than whole replies in their order.
    pub fn ended(self) -> Vec<(String, u64)> {
        let ended = self.clients.into_iter().map(|Flooding { key, replies, reader }| {
            let outcome = reader.join().expect("a client of a flood");
            let replies = replies.load(Ordering::Relaxed);
            if let Err(what) = outcome {
                panic!("{key}, after {replies} replies: {what}");
            }
            (key, replies)
        });
        ended.collect()
    }
}

/// One client: sends on a thread of its own, and reads until the end.
fn flood(stream: &TcpStream, request: &[u8], replies: &Arc<AtomicU64>) -> Result<(), String> {
    let is_over = Arc::new(AtomicBool::new(false));
    let failed = |what: &'static str| move |error| format!("{what}: {error}");
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed("its socket"))?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed("its socket"))?;
    let mut writing = stream.try_clone().map_err(failed("no descriptor"))?;
    let (over, batch) = (Arc::clone(&is_over), request.repeat(BATCH));
    let (answered, mut sent) = (Arc::clone(replies), 0);
    let writer = std::thread::spawn(move || {
        while !over.load(Ordering::Acquire) {
            if sent > answered.load(Ordering::Relaxed) + AHEAD_MAX {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            sent += BATCH as u64;
            match writing.write_all(&batch) {
                Err(error) if !over.load(Ordering::Acquire) => {
                    return Err(format!("writing: {error}"));
                }
                _ => {}
            }
        }
        Ok(())
    });
    let read = read_all(stream, replies);
    is_over.store(true, Ordering::Release);
    let _ = stream.shutdown(Shutdown::Both);
    let written = writer.join().expect("a writer");
    read.and(written)
}

/// Reads `:1`, `:2` and so on until the end.
fn read_all(mut stream: &TcpStream, replies: &AtomicU64) -> Result<(), String> {
    let (mut got, mut line) = (vec![0; 64 << 10], Vec::new());
    let mut count = 0;
    loop {
        let len = match stream.read(&mut got) {
            Ok(0) if line.is_empty() => return Ok(()),
            Ok(0) => return Err(format!("a reply is cut: {}", line.escape_ascii())),
            Ok(len) => len,
            Err(error) => return Err(format!("reading: {error}")),
        };
        for &byte in &got[..len] {
            line.push(byte);
            if byte == b'\n' {
                count += 1;
                if line != format!(":{count}\r\n").as_bytes() {
                    return Err(format!("for reply {count}: {}", line.escape_ascii()));
                }
                line.clear();
                replies.store(count, Ordering::Relaxed);
            }
        }
    }
}
