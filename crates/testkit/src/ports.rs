//! Free loopback ports.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the kernel's ephemeral range (32768 and up): an outgoing connection
/// of another test can never be given a port that was just found free.
const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

static TAKEN: AtomicU32 = AtomicU32::new(0);

/// A loopback port nobody listens on, never given twice by this process.
/// Processes start at different places, so two test binaries rarely meet.
pub fn free_port() -> u16 {
    let start = std::process::id().wrapping_mul(131);
    for _ in 0..COUNT {
        let nth = TAKEN.fetch_add(1, Ordering::Relaxed);
        let candidate = FIRST + start.wrapping_add(nth) % COUNT;
        let port = u16::try_from(candidate).expect("the range fits 16 bits");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free loopback port between {FIRST} and {}", FIRST + COUNT);
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
        let ports: Vec<u16> = (0..50).map(|_| free_port()).collect();
        let mut unique = ports.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), ports.len());
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, ports[0])).is_ok());
    }
}
