//! Writes of every type by chance.

use keyway_testkit::Random;
use keyway_testkit::conformance::sequences::{Reach, Words, draw};
use keyway_testkit::{encode, encode_words};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Plays the sequences of one seed on three connections, without looking at the
/// replies: all writes are as good as any.
pub fn play(address: SocketAddr, seed: u64) {
    let connect = || {
        let stream = TcpStream::connect(address).expect("a server");
        stream.set_nonblocking(true).expect("a live socket");
        stream
    };
    let mut connections = [connect(), connect(), connect()];
    let mut random = Random::new(seed);
    for step in draw(seed, Reach::Four) {
        let stream = &mut connections[step.connection];
        let mut bytes = Vec::new();
        if random.below(8) == 0 {
            bytes.extend(encode_words(&format!("SELECT {}", random.below(3))));
        }
        let requests = step.requests.iter().filter(|request| is_replicated(request));
        requests.map(given).for_each(|request| bytes.extend(encode(&request)));
        // A connection that waits in BLPOP takes no more at some point, one that said QUIT is
        // gone: a new one stands in.
        if stream.write_all(&bytes).is_err() || is_over(stream) {
            *stream = connect();
        }
    }
}

/// Whether Redis tells its replicas all that comes of a request. BITFIELD of 7.0 makes a key
/// also where each of its parts overflows and fails, and tells them nothing of it.
fn is_replicated(request: &Words) -> bool {
    let may_fail = request.iter().any(|word| word.eq_ignore_ascii_case(b"FAIL"));
    !(may_fail && request[0].eq_ignore_ascii_case(b"BITFIELD"))
}

/// A request without the words that the players of sequences fill in.
fn given(request: &Words) -> Words {
    let word = |word: &Vec<u8>| match word.as_slice() {
        b"walk" => b"0".to_vec(),
        word if word.starts_with(b"CLIENT") && word.len() > 6 => b"999999".to_vec(),
        word => word.to_vec(),
    };
    request.iter().map(word).collect()
}

fn is_over(stream: &mut TcpStream) -> bool {
    let mut room = [0; 16 << 10];
    loop {
        match stream.read(&mut room) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// A thread that writes until it is dropped.
pub struct Writer {
    is_over: Arc<AtomicBool>,
    played: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// `may` is asked before each sequence, and waits where writing is to pause.
    pub fn start(address: SocketAddr, first: u64, may: impl Fn() + Send + 'static) -> Self {
        let (is_over, played) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ends, count) = (Arc::clone(&is_over), Arc::clone(&played));
        let thread = std::thread::spawn(move || {
            for seed in first.. {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                may();
                play(address, seed);
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { is_over, played, thread: Some(thread) }
    }

    /// Sequences that were played.
    pub fn played(&self) -> u64 {
        self.played.load(Ordering::Relaxed)
    }

    /// Ends it; nothing is written any more when this returns.
    pub fn end(mut self) {
        self.join();
    }

    fn join(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            assert!(outcome.is_ok() || std::thread::panicking(), "the writer panicked");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.join();
    }
}
