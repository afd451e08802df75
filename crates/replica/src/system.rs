//! The system under the threads of replication: time, waiting, other threads, chance and local
//! connections. A simulator puts virtual time and one thread at a time in its place.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The work of a thread.
pub type Work = Box<dyn FnOnce() + Send>;

/// A descriptor that a thread waits for.
#[derive(Clone, Copy, Debug)]
pub struct Watch<'fd> {
    /// The descriptor.
    pub fd: BorrowedFd<'fd>,
    /// The events to wait for.
    pub wanted: PollFlags,
    /// The events that have come: errors, too.
    pub found: PollFlags,
}

impl<'fd> Watch<'fd> {
    /// Nothing has come yet.
    pub fn new(fd: &'fd impl AsFd, wanted: PollFlags) -> Self {
        Self { fd: fd.as_fd(), wanted, found: PollFlags::empty() }
    }

    /// Looks at descriptors until one has an event, for `patience` at most.
    ///
    /// # Errors
    /// The system's word.
    pub fn look(watches: &mut [Self], patience: Duration) -> Result<usize, Errno> {
        let polled = |watch: &Self| PollFd::from_borrowed_fd(watch.fd, watch.wanted);
        let mut fds: Vec<PollFd<'_>> = watches.iter().map(polled).collect();
        let count = poll(&mut fds, Some(&timespec(patience)))?;
        for (watch, fd) in watches.iter_mut().zip(&fds) {
            watch.found = fd.revents();
        }
        Ok(count)
    }
}

/// The system. Followers and feeds read no other clock, and wait nowhere else.
pub trait System: Send + Sync + 'static {
    /// Returns the time now.
    fn now(&self) -> Instant;

    /// Waits until a descriptor has an event, or until a time. Returns the number of descriptors
    /// with events: 0 when the time has come, or a little earlier.
    ///
    /// # Errors
    /// The system's word, `EINTR` among others.
    fn wait(&self, watches: &mut [Watch<'_>], until: Instant) -> Result<usize, Errno>;

    /// Starts a thread.
    ///
    /// # Errors
    /// The system gives no thread.
    fn spawn(&self, name: String, work: Work) -> io::Result<Thread>;

    /// Connects to a unix socket without waiting. The connection does not block.
    ///
    /// # Errors
    /// Nobody listens there, or too many wait already.
    fn connect_unix(&self, path: &Path) -> Result<OwnedFd, Errno>;

    /// Returns a number by chance.
    fn chance(&self) -> u32;

    /// Waits for a time to pass.
    fn sleep(&self, pause: Duration) {
        let until = self.now() + pause;
        while self.now() < until {
            // A signal ends a wait early.
            let _ = self.wait(&mut [], until);
        }
    }
}

/// A thread that was started.
pub struct Thread(Box<dyn FnOnce() -> std::thread::Result<()> + Send + Sync>);

impl Thread {
    /// A thread that has ended when `join` returns, which returns its panic.
    pub fn new(join: impl FnOnce() -> std::thread::Result<()> + Send + Sync + 'static) -> Self {
        Self(Box::new(join))
    }

    /// Waits for the end of the thread.
    ///
    /// # Errors
    /// The panic of the thread.
    pub fn join(self) -> std::thread::Result<()> {
        (self.0)()
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Thread")
    }
}

/// The operating system.
pub fn real() -> Arc<dyn System> {
    Arc::new(Real)
}

struct Real;

impl System for Real {
    #[allow(clippy::disallowed_methods, reason = "threads of replication serve no client")]
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wait(&self, watches: &mut [Watch<'_>], until: Instant) -> Result<usize, Errno> {
        Watch::look(watches, until.saturating_duration_since(self.now()))
    }

    fn spawn(&self, name: String, work: Work) -> io::Result<Thread> {
        let thread = std::thread::Builder::new().name(name).spawn(work)?;
        Ok(Thread::new(move || thread.join()))
    }

    /// A full backlog is refused at once.
    fn connect_unix(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(socket)
    }

    /// The middle number where the system has none to give.
    fn chance(&self) -> u32 {
        let mut bytes = [0; 4];
        match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK) {
            Ok(4) => u32::from_ne_bytes(bytes),
            _ => u32::MAX / 2,
        }
    }
}

fn timespec(left: Duration) -> Timespec {
    Timespec { tv_sec: left.as_secs().min(1 << 30) as i64, tv_nsec: left.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_tells_its_panic_to_the_thread_that_joins_it() {
        let system = real();
        let ends = |work: Work| system.spawn("t".to_owned(), work).expect("a thread").join();
        assert!(ends(Box::new(|| ())).is_ok());
        assert!(ends(Box::new(|| std::panic::resume_unwind(Box::new(())))).is_err());
        let before = system.now();
        system.sleep(Duration::from_millis(2));
        assert!(system.now() >= before + Duration::from_millis(2));
    }
}
