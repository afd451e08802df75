//! Ports for the programs of a run.

use crate::error::Error;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::IntoRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The ports lie below the range that outgoing connections get theirs from. A connection that is
/// tried until there is a listener would else be connected to itself now and then.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// Returns a port of the loopback address on which nobody listens. No run gets it again while this
/// process lives, whichever process asks.
///
/// # Errors
/// When all ports are taken, or the process has no descriptors left.
pub fn free_port() -> Result<u16, Error> {
    // Runs that begin at about the same time have neighbouring ids, and look in different places.
    let start = std::process::id().wrapping_mul(331) % u32::from(COUNT);
    let ports = (0..COUNT).map(|offset| FIRST + (start as u16 + offset) % COUNT);
    for port in ports {
        let Some(lock) = lock(port) else { continue };
        // The name is this process's until its end.
        let _ = lock.into_raw_fd();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::system(
        "cannot find a free port",
        "all from 20000 to 31999 are taken, or no descriptors are left: raise `ulimit -n`",
    ))
}

/// Takes the name of a port. A name in the abstract namespace belongs to one socket of the network
/// namespace, as the port does, and leaves no file behind. Returns nothing if the name is taken.
fn lock(port: u16) -> Option<UnixDatagram> {
    let name = format!("keyway-bench-port-{port}");
    let address = SocketAddr::from_abstract_name(name).ok()?;
    UnixDatagram::bind_addr(&address).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_a_port_of_another_run_is_left_out() {
        let first = free_port().unwrap();
        let others: Vec<u16> =
            (1..=40).map(|step| FIRST + (first - FIRST + step) % COUNT).collect();
        let locks: Vec<_> = others.iter().map(|port| lock(*port)).collect();
        let mut given: Vec<u16> = (0..100).map(|_| free_port().unwrap()).collect();
        assert!(given.iter().all(|port| !others.contains(port) && *port != first), "{given:?}");
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len(), 100);
        drop(locks);
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, first)).is_ok());
    }
}
