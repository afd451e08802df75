//! A check that clients leave nothing behind in a process: no descriptors of connections that are
//! over, and nothing of what the module `kept` looks at.
//!
//! A connection is over when the other side has closed it. A side that has only stopped sending has
//! not closed it. Both ends are on this machine, so the system's table tells the two apart by the
//! other end's socket. There are two exceptions: a server has yet to answer, or a worker runs a
//! long script and reads nothing. Any other connection that stays is a leak.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::http::Metrics;
use crate::kept::{AtStart, kept, page};

/// Longest time that a connection may stay after it is over. A shorter time takes a machine under
/// load for a leak. A longer one delays only tests that fail.
const STAYS_MAX: Duration = Duration::from_secs(3);

/// Time after which the check asks why a connection stays. Gauges are updated ten times a second.
const ASKED_AFTER: Duration = Duration::from_millis(300);

const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Codes of states in the system's table.
const CLOSE_WAIT: &str = "08";
pub(crate) const LISTEN: &str = "0A";

/// A socket in the system's table.
pub(crate) struct Entry {
    pub(crate) local: String,
    pub(crate) remote: String,
    pub(crate) state: String,
    pub(crate) inode: u64,
}

/// Waits until the process has closed all connections that are over, and keeps nothing of clients
/// that are gone.
///
/// # Panics
/// When connections or other things stay without a reason.
pub(crate) fn check_left(pid: u32, admin: SocketAddr, start: &AtStart) {
    let began = Instant::now();
    let (mut turns, mut stale) = (None, stale_sockets(pid, admin.port()));
    loop {
        let is_stopped = || matches!(crate::proc::state(pid), Some('T' | 'Z') | None);
        if is_stopped() {
            return;
        }
        let kept = if stale.is_empty() { kept(pid, admin, start) } else { Vec::new() };
        if (stale.is_empty() && kept.is_empty()) || is_stopped() {
            return;
        }
        if turns.is_none() && began.elapsed() > ASKED_AFTER {
            let Some(metrics) = unanswered_of(admin) else { return };
            turns = Some(turns_of(&metrics));
        }
        if began.elapsed() > STAYS_MAX {
            let Some(metrics) = unanswered_of(admin) else { return };
            let now = turns_of(&metrics);
            let goes_on = |(worker, count): (&String, &u64)| now.get(worker) > Some(count);
            assert!(
                !turns.unwrap_or_default().iter().all(goes_on),
                "clients have left, and this stays in the process {pid}: {stale:?} {kept:?}"
            );
            return;
        }
        std::thread::sleep(LOOK_EVERY);
        // Other connections may be over for a moment by now.
        let now = stale_sockets(pid, admin.port());
        stale.retain(|one| now.contains(one));
    }
}

/// The metrics; none while a server has yet to answer, or if the admin address does not reply.
fn unanswered_of(admin: SocketAddr) -> Option<Metrics> {
    let metrics = page(admin, "/metrics").map(|text| Metrics::parse(&text))?;
    let waits = metrics.sum("keyway_backend_in_flight_requests", &[]) > 0.0;
    (!waits).then_some(metrics)
}

/// Number of turns of each worker.
fn turns_of(metrics: &Metrics) -> BTreeMap<String, u64> {
    let lines = metrics.text().lines();
    let turns = lines.filter(|line| line.starts_with("keyway_worker_turns_total"));
    let pairs = turns.filter_map(|line| line.rsplit_once(' '));
    pairs.filter_map(|(worker, count)| Some((worker.to_owned(), count.parse().ok()?))).collect()
}

/// Describes the sockets of the process whose connection is over. The port `admin` is left out: its
/// clients may have to wait.
fn stale_sockets(pid: u32, admin: u16) -> Vec<String> {
    let admin = format!(":{admin:04X}");
    let own = socket_inodes(pid);
    let tables = ["tcp", "tcp6"].map(|name| table(pid, name));
    let entries: Vec<&Entry> = tables.iter().flatten().collect();
    let held: BTreeMap<(&str, &str), u64> =
        entries.iter().map(|it| ((&*it.local, &*it.remote), it.inode)).collect();
    let is_over = |it: &&&Entry| {
        let other = held.get(&(&*it.remote, &*it.local));
        let is_own = it.state == CLOSE_WAIT && own.contains(&it.inode);
        is_own && !it.local.ends_with(&admin) && other.is_none_or(|inode| *inode == 0)
    };
    let ended = entries.iter().filter(is_over);
    let mut stale: Vec<String> =
        ended.map(|it| format!("{} from {}, not closed", it.local, it.remote)).collect();
    let known: BTreeSet<u64> = entries.iter().map(|it| it.inode).collect();
    let mut others = None;
    for inode in own.difference(&known) {
        let others = others.get_or_insert_with(|| other_inodes(pid));
        if !others.contains(inode) {
            stale.push(format!("socket {inode}, reset and not closed"));
        }
    }
    stale
}

/// The inode numbers of the process's sockets.
pub(crate) fn socket_inodes(pid: u32) -> BTreeSet<u64> {
    let Ok(list) = fs::read_dir(format!("/proc/{pid}/fd")) else { return BTreeSet::new() };
    let names = list.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    let number = |name: std::path::PathBuf| {
        name.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    names.filter_map(number).collect()
}

pub(crate) fn table(pid: u32, name: &str) -> Vec<Entry> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let word = |at: usize| words.get(at).map(|&word| word.to_owned());
        let inode = words.get(9)?.parse().ok()?;
        Some(Entry { local: word(1)?, remote: word(2)?, state: word(3)?, inode })
    };
    text.lines().skip(1).filter_map(entry).collect()
}

/// Sockets that are not TCP connections.
fn other_inodes(pid: u32) -> BTreeSet<u64> {
    let column = [("unix", 6), ("udp", 9), ("udp6", 9), ("netlink", 9), ("raw", 9), ("packet", 8)];
    column.iter().flat_map(|(name, at)| other_inodes_of(pid, name, *at, |_| true)).collect()
}

/// Those in one table, whose numbers are in the column `at`, for which `is_wanted` holds of the
/// words of their line.
pub(crate) fn other_inodes_of(
    pid: u32,
    name: &str,
    at: usize,
    is_wanted: impl Fn(&[&str]) -> bool,
) -> BTreeSet<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let number = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(at).filter(|_| is_wanted(&words))?.parse().ok()
    };
    text.lines().skip(1).filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn is_stale(ours: &TcpStream) -> bool {
        let local = ours.local_addr().expect("an address").port();
        let remote = ours.peer_addr().expect("an address").port();
        let words = format!("0100007F:{local:04X} from 0100007F:{remote:04X}, not closed");
        stale_sockets(std::process::id(), 0).contains(&words)
    }

    #[test]
    fn a_connection_is_over_when_the_other_side_has_closed_it_and_not_before() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let theirs = TcpStream::connect(listener.local_addr().expect("one")).expect("a client");
        let (ours, _) = listener.accept().expect("it waits");
        assert!(!is_stale(&ours));
        theirs.shutdown(std::net::Shutdown::Write).expect("it stands");
        assert!(!is_stale(&ours), "it may still read");
        drop(theirs);
        crate::wait_until("its end has come", Duration::from_secs(10), || is_stale(&ours));
    }

    #[test]
    fn a_connection_that_was_reset_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let theirs = TcpStream::connect(listener.local_addr().expect("one")).expect("a client");
        let (ours, _) = listener.accept().expect("it waits");
        let name = {
            use std::os::fd::AsRawFd as _;
            fs::read_link(format!("/proc/self/fd/{}", ours.as_raw_fd())).expect("a socket")
        };
        let inode = name.to_string_lossy().replace("socket:[", "socket ").replace(']', ",");
        let is_told =
            || stale_sockets(std::process::id(), 0).iter().any(|it| it.starts_with(&inode));
        assert!(!is_told());
        let _ = rustix::net::sockopt::set_socket_linger(&theirs, Some(Duration::ZERO));
        drop(theirs);
        crate::wait_until("the reset has come", Duration::from_secs(10), is_told);
        drop(ours);
    }

    /// An admin listener that tells of one client, which has no socket, and of a worker that goes
    /// on.
    fn admin_with_a_client_that_has_left() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let admin = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for (turn, stream) in listener.incoming().enumerate() {
                let mut stream = stream.expect("a connection");
                let mut request = [0; 512];
                let len = stream.read(&mut request).unwrap_or(0);
                let pid = std::process::id();
                let body = match std::str::from_utf8(&request[..len]).unwrap_or_default() {
                    it if it.starts_with("GET /v1/status ") => format!("{{\"pid\":{pid}}}"),
                    it if it.starts_with("GET /v1/connections") => {
                        r#"{"total": 1, "clients": [{"id": 7, "address": "127.0.0.1:5",
                            "listener": "tcp://127.0.0.1:1"}]}"#
                            .to_owned()
                    }
                    _ => format!(
                        "keyway_client_connections{{pool=\"a\"}} 1\n\
                         keyway_worker_turns_total{{worker=\"0\"}} {turn}\n"
                    ),
                };
                let _ = write!(stream, "HTTP/1.1 200 OK\r\n\r\n{body}");
            }
        });
        admin
    }

    #[test]
    #[should_panic(expected = "in the list, with 0 sockets: client 7 from")]
    fn a_client_that_stays_in_the_list_fails_the_test() {
        let admin = admin_with_a_client_that_has_left();
        check_left(std::process::id(), admin, &AtStart::default());
    }
}
