//! Notifications to systemd, if it asks for them: `Type=notify`.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for room in the manager's queue. The queue has room for some messages of all
/// services together (`net.unix.max_dgram_qlen`: 10, if systemd has not raised it). If this were
/// shorter, a busy manager, such as one that reads all units again, would lose the unit when the
/// previous process ends. If it were longer, a manager that hangs would hold up the main thread,
/// which handles no signal meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tells that this process serves.
pub fn tell_of_start() {
    tell("READY=1\n");
}

/// Tells that another process is the main process from now on. Only the main process may say so,
/// and only while it exists. So this waits, within bounds, until the manager has room for it.
pub fn tell_of_successor(pid: u32) {
    tell(&format!("MAINPID={pid}\n"));
}

#[allow(clippy::disallowed_methods, reason = "the protocol of systemd")]
fn tell(words: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(Path::new(&path), words, PATIENCE) {
        let why = match error.kind() {
            ErrorKind::WouldBlock => format!("it has read nothing for {} s", PATIENCE.as_secs()),
            _ => error.to_string(),
        };
        let words = words.trim_end();
        tracing::warn!("systemd cannot be told {words}: {}: {why}", path.display());
    }
}

/// Sends one message, and waits for room in the manager's queue.
fn send(path: &Path, words: &str, patience: Duration) -> io::Result<()> {
    let addr = match path.to_str().and_then(|path| path.strip_prefix('@')) {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    let deadline = now() + patience;
    loop {
        let left = deadline.saturating_duration_since(now());
        if left.is_zero() {
            return Err(ErrorKind::WouldBlock.into());
        }
        // The kernel waits at most for that time. A signal ends the wait earlier.
        socket.set_write_timeout(Some(left))?;
        match socket.send_to_addr(words.as_bytes(), &addr) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            sent => return sent.map(drop),
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn hear(manager: &UnixDatagram) -> String {
        let mut bytes = [0; 32];
        let len = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    /// Sends messages until no more fit. Returns how many.
    fn fill(path: &Path) -> usize {
        // The number of messages in flight from one socket is bounded too.
        let of_another = || {
            let other = UnixDatagram::unbound().unwrap();
            other.set_nonblocking(true).unwrap();
            (0..100_000).take_while(|_| other.send_to(b"STATUS=x", path).is_ok()).count()
        };
        std::iter::repeat_with(of_another).take_while(|count| *count > 0).sum()
    }

    #[test]
    fn words_arrive_at_a_path_and_at_a_name() {
        let folder = keyway_testkit::TempDir::new();
        let path = folder.path().join("notify");
        let name = format!("keyway-notify-test-{}", std::process::id());
        let abstract_addr = SocketAddr::from_abstract_name(&name).unwrap();
        let listening =
            [UnixDatagram::bind(&path).unwrap(), UnixDatagram::bind_addr(&abstract_addr).unwrap()];
        for (socket, path) in listening.iter().zip([path, format!("@{name}").into()]) {
            send(&path, "MAINPID=7\n", LONG).unwrap();
            assert_eq!(hear(socket), "MAINPID=7\n");
        }
        assert!(send(&folder.path().join("nobody"), "READY=1\n", LONG).is_err());
    }

    #[test]
    fn a_manager_whose_queue_is_full_at_first_is_told_all_the_same() {
        let folder = keyway_testkit::TempDir::new();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let before = fill(&path);
        assert!(before > 0);
        let sending = std::thread::spawn(move || send(&path, "MAINPID=7\n", LONG));
        // A sender that does not wait has given up by now.
        std::thread::park_timeout(Duration::from_millis(200));
        assert!(!sending.is_finished());
        for _ in 0..before {
            assert_eq!(hear(&manager), "STATUS=x");
        }
        assert_eq!(hear(&manager), "MAINPID=7\n");
        sending.join().unwrap().unwrap();
    }

    #[test]
    fn a_manager_that_reads_nothing_is_not_waited_for_without_end() {
        let folder = keyway_testkit::TempDir::new();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let before = fill(&path);
        let sent = send(&path, "MAINPID=7\n", Duration::from_millis(50));
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::WouldBlock);
        manager.set_nonblocking(true).unwrap();
        assert_eq!((0..=before).take_while(|_| manager.recv(&mut [0; 32]).is_ok()).count(), before);
    }
}
