//! Resolves host names on a thread of its own, because the system's resolver blocks, for seconds if
//! a name server is down.

use crate::Token;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Most names that wait at once. Beyond that, connecting fails at once and is tried again with the
/// link's back-off.
const PENDING_MAX: usize = 1024;

struct Question {
    host: String,
    port: u16,
    token: Token,
}

pub(crate) struct Answer {
    pub(crate) token: Token,
    pub(crate) addr: Option<SocketAddr>,
}

/// One resolver thread, started at the first name.
pub(crate) struct Resolver {
    questions: SyncSender<Question>,
    answers: Receiver<Answer>,
    wake: Arc<OwnedFd>,
}

impl Resolver {
    pub(crate) fn start() -> std::io::Result<Self> {
        let (questions, asked) = sync_channel::<Question>(PENDING_MAX);
        let (answer, answers) = sync_channel(PENDING_MAX);
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let thread_wake = Arc::clone(&wake);
        std::thread::Builder::new().name("keyway-resolve".into()).spawn(move || {
            while let Ok(Question { host, port, token }) = asked.recv() {
                let addr = (host.as_str(), port).to_socket_addrs().ok().and_then(|mut a| a.next());
                if answer.send(Answer { token, addr }).is_err() {
                    return;
                }
                let _ = rustix::io::write(&*thread_wake, &1u64.to_ne_bytes());
            }
        })?;
        Ok(Self { questions, answers, wake })
    }

    pub(crate) fn ask(&self, host: &str, port: u16, token: Token) -> bool {
        self.questions.try_send(Question { host: host.to_owned(), port, token }).is_ok()
    }

    pub(crate) fn take(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }

    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
