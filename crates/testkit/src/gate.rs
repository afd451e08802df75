//! A TCP relay that a test can cut, hold or slow down.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::ports::free_address;

/// How often a relay looks whether the gate has changed.
const LOOK_EVERY: Duration = Duration::from_millis(5);

const OPEN: u8 = 0;
const HELD: u8 = 1;
const CUT: u8 = 2;

/// Relays connections to one address. It ends with the value.
#[derive(Debug)]
pub struct TcpGate {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    mode: AtomicU8,
    delay_ms: AtomicU64,
    /// Grows with each cut: connections of before are closed.
    cuts: AtomicU64,
    is_over: AtomicBool,
}

impl TcpGate {
    /// A gate in front of `target`, open.
    ///
    /// # Panics
    /// When there is no free port.
    pub fn new(target: SocketAddr) -> TcpGate {
        let address = free_address();
        let listener = TcpListener::bind(address).expect("a free port can be bound");
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            mode: AtomicU8::new(OPEN),
            delay_ms: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accept(&listener, &accepting));
        TcpGate { address, shared }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets everything through again.
    pub fn open(&self) {
        self.shared.mode.store(OPEN, Ordering::SeqCst);
    }

    /// Lets nothing through. Connections stay, and new ones are accepted.
    pub fn hold(&self) {
        self.shared.mode.store(HELD, Ordering::SeqCst);
    }

    /// Closes all connections, and new ones at once.
    pub fn cut(&self) {
        self.shared.mode.store(CUT, Ordering::SeqCst);
        self.shared.cuts.fetch_add(1, Ordering::SeqCst);
    }

    /// Closes all connections. New ones work.
    pub fn cut_once(&self) {
        self.shared.cuts.fetch_add(1, Ordering::SeqCst);
    }

    /// Closes all connections. New ones go elsewhere.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
        self.cut_once();
    }

    /// Makes each piece of bytes late by this time, in each direction.
    pub fn slow_down(&self, delay: Duration) {
        let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.shared.delay_ms.store(millis, Ordering::SeqCst);
    }
}

impl Drop for TcpGate {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn target(&self) -> SocketAddr {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming().flatten() {
        if shared.is_over.load(Ordering::SeqCst) {
            return;
        }
        if shared.mode.load(Ordering::SeqCst) == CUT {
            continue;
        }
        let cuts = shared.cuts.load(Ordering::SeqCst);
        let Ok(server) = TcpStream::connect(shared.target()) else { continue };
        let pairs = [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))];
        for (from, to) in pairs {
            let (Ok(from), Ok(to)) = (from, to) else { continue };
            let shared = Arc::clone(shared);
            std::thread::spawn(move || relay(from, to, cuts, &shared));
        }
    }
}

fn relay(mut from: TcpStream, mut to: TcpStream, cuts: u64, shared: &Shared) {
    let _ = from.set_read_timeout(Some(LOOK_EVERY));
    let mut buffer = vec![0; 64 << 10];
    while !shared.is_over.load(Ordering::SeqCst) && shared.cuts.load(Ordering::SeqCst) == cuts {
        if shared.mode.load(Ordering::SeqCst) == HELD {
            std::thread::sleep(LOOK_EVERY);
            continue;
        }
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => {
                std::thread::sleep(Duration::from_millis(shared.delay_ms.load(Ordering::SeqCst)));
                // What was read just before is held, too.
                while shared.mode.load(Ordering::SeqCst) == HELD
                    && !shared.is_over.load(Ordering::SeqCst)
                {
                    std::thread::sleep(LOOK_EVERY);
                }
                if shared.cuts.load(Ordering::SeqCst) != cuts
                    || to.write_all(&buffer[..len]).is_err()
                {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = from.shutdown(std::net::Shutdown::Both);
    let _ = to.shutdown(std::net::Shutdown::Both);
}
