//! A way to a server that is cut after a number of bytes.

use keyway_testkit::free_address;
use parking_lot::{Condvar, Mutex};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// Passes bytes between whoever connects and a server.
pub struct Cutter {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    /// Bytes to the replica after which the connection is cut, drawn for each
    /// connection; negative for never.
    budget: AtomicI64,
    is_closed: AtomicBool,
    cuts: AtomicUsize,
    ends: AtomicUsize,
    live: Mutex<Vec<TcpStream>>,
    /// Bytes in a connection that is held up.
    held: Mutex<bool>,
    released: Condvar,
}

impl Cutter {
    pub fn new(server: SocketAddr) -> Self {
        let address = free_address();
        let listener = TcpListener::bind(address).expect("a free port");
        let shared = Arc::new(Shared {
            server,
            budget: AtomicI64::new(-1),
            is_closed: AtomicBool::new(false),
            cuts: AtomicUsize::new(0),
            ends: AtomicUsize::new(0),
            live: Mutex::new(Vec::new()),
            held: Mutex::new(false),
            released: Condvar::new(),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if serving.ends.load(Ordering::Relaxed) > 0 {
                    return;
                }
                if !serving.is_closed.load(Ordering::Relaxed) {
                    serving.connect(client);
                }
            }
        });
        Self { address, shared }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts connections that are made from now on after so many bytes.
    pub fn set_budget(&self, bytes: Option<usize>) {
        let budget = bytes.map_or(-1, |bytes| bytes as i64);
        self.shared.budget.store(budget, Ordering::Relaxed);
    }

    /// Connections that ran out of their bytes.
    pub fn cuts(&self) -> usize {
        self.shared.cuts.load(Ordering::Relaxed)
    }

    /// Cuts all connections, and takes no more until [`Cutter::open`].
    pub fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        self.cut();
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        let mut live = self.shared.live.lock();
        live.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    pub fn open(&self) {
        self.shared.is_closed.store(false, Ordering::Relaxed);
    }

    /// Lets nothing through to the replica, or everything again.
    pub fn hold(&self, is_held: bool) {
        *self.shared.held.lock() = is_held;
        self.shared.released.notify_all();
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.shared.ends.store(1, Ordering::Relaxed);
        self.hold(false);
        self.close();
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn connect(self: &Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(self.server) else { return };
        let budget = self.budget.load(Ordering::Relaxed);
        let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
        {
            let mut live = self.live.lock();
            // What ended by itself counts for nothing: shutting it down again is no harm.
            live.clear();
            live.extend([clone(&client), clone(&server)]);
        }
        let (up, down) = ((clone(&client), clone(&server)), (server, client));
        std::thread::spawn(move || pass(up.0, up.1, |_| true));
        let shared = Arc::clone(self);
        let mut left = budget;
        std::thread::spawn(move || {
            pass(down.0, down.1, |piece| {
                let mut held = shared.held.lock();
                shared.released.wait_while(&mut held, |held| *held);
                drop(held);
                if budget < 0 {
                    return true;
                }
                if (left as usize) < piece.len() {
                    piece.truncate(left as usize);
                }
                left -= piece.len() as i64;
                if left == 0 {
                    shared.cuts.fetch_add(1, Ordering::Relaxed);
                }
                left > 0
            });
        });
    }
}

/// Passes bytes on until `may` says that a piece, which it may shorten, is the
/// last.
fn pass(mut from: TcpStream, mut to: TcpStream, mut may: impl FnMut(&mut Vec<u8>) -> bool) {
    let mut room = [0; 16 << 10];
    while let Ok(len @ 1..) = from.read(&mut room) {
        let mut piece = room[..len].to_vec();
        let goes_on = may(&mut piece);
        if to.write_all(&piece).is_err() || !goes_on {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
