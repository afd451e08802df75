//! Free loopback ports.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};

/// Below the kernel's ephemeral range (32768 and up): an outgoing connection
/// of another test can never be given a port that was just found free.
const FIRST: u16 = 12_000;
const LAST: u16 = 31_999;

/// Ports are taken in blocks, each locked by a file for as long as the process
/// lives: test binaries that run at the same time never meet.
const BLOCK: u16 = 100;

struct Blocks {
    /// The next port to give and the end of its block.
    next: u16,
    end: u16,
    /// Where to look for the next block.
    look_at: u16,
    locks: Vec<File>,
}

static BLOCKS: Mutex<Blocks> =
    Mutex::new(Blocks { next: 0, end: 0, look_at: FIRST, locks: Vec::new() });

/// A loopback port nobody listens on, never given twice by this process nor by
/// another that is alive.
///
/// # Panics
/// When all are taken.
pub fn free_port() -> u16 {
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        while blocks.next < blocks.end {
            let port = blocks.next;
            blocks.next += 1;
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return port;
            }
        }
        blocks.lock_another();
    }
}

impl Blocks {
    fn lock_another(&mut self) {
        let directory = lock_directory();
        while self.look_at < LAST {
            let first = self.look_at;
            self.look_at += BLOCK;
            let path = directory.join(first.to_string());
            let Ok(file) = File::options().create(true).append(true).open(&path) else { continue };
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                (self.next, self.end) = (first, first + BLOCK);
                self.locks.push(file);
                return;
            }
        }
        panic!("no free loopback port between {FIRST} and {LAST}");
    }
}

/// The same for every process of the machine, for so are the ports: TMPDIR
/// counts only where `/tmp` cannot be written.
fn lock_directory() -> PathBuf {
    let usual = PathBuf::from("/tmp/keyway-test-ports");
    if std::fs::create_dir_all(&usual).is_ok() {
        return usual;
    }
    let other = std::env::temp_dir().join("keyway-test-ports");
    std::fs::create_dir_all(&other).expect("a directory for the locks of ports");
    other
}

/// `127.0.0.1` with a [`free_port`].
pub fn free_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_can_be_bound() {
        let ports: Vec<u16> = (0..250).map(|_| free_port()).collect();
        let mut unique = ports.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), ports.len());
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, ports[0])).is_ok());
    }
}
