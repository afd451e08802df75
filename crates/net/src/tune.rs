//! Options of TCP sockets. On a listening socket they hold for every connection accepted from it,
//! which then costs no call of its own.

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::sockopt;
use std::net::SocketAddr;
use std::time::Duration;

/// Silence of a server after which the kernel checks whether it is still there. Otherwise a command
/// could wait for ever for a server that has vanished without a word.
const SERVER_SILENCE: Duration = Duration::from_secs(60);

/// Makes the kernel monitor a connection to a server.
pub(crate) fn watch_over(socket: &impl AsFd) -> Result<(), Errno> {
    keep_alive(socket, SERVER_SILENCE)
}

/// Prepares a socket for short messages. `addr` is the address of one of its ends.
pub(crate) fn tune(socket: &impl AsFd, addr: SocketAddr) -> Result<(), Errno> {
    sockopt::set_tcp_nodelay(socket, true)?;
    if addr.ip().is_loopback() {
        // On loopback there is no network to probe or to pace for. A system that is set to BBR or
        // the like would only spend timers on it (a tenth of the CPU of a proxied request). Every
        // kernel has Reno and permits every user to use it.
        let _ = sockopt::set_tcp_congestion(socket, "reno");
    }
    Ok(())
}

/// Makes the kernel probe a peer that was silent for this long. It sends three probes, at a third
/// of that interval.
pub(crate) fn keep_alive(socket: &impl AsFd, silence: Duration) -> Result<(), Errno> {
    // The kernel counts in whole seconds, from 1.
    let seconds = (silence.as_secs() + u64::from(silence.subsec_nanos() > 0)).max(1);
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(seconds))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs((seconds / 3).max(1)))?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    sockopt::set_socket_keepalive(socket, true)
}
