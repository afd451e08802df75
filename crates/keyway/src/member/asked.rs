//! Requests of the admin listener that come from the leader of the control plane.
//!
//! A thread answers them, one after the other, because an answer may wait for workers. The thread of
//! the bus never waits for it.

use anyhow::{Context, Result};
use keyway_bus::NodeId;
use keyway_control::{AdminState, MemberReply, PassedRequest, answer_passed};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// Most requests that wait. More are refused: the leader says so to whom it asks for.
const WAITING_MAX: usize = 16;

/// A request, and the command of the bus that has brought it.
struct Asked {
    from: NodeId,
    seq: u64,
    request: PassedRequest,
}

/// An answer.
pub struct Answer {
    pub to: NodeId,
    pub seq: u64,
    pub reply: MemberReply,
}

/// The side of the thread of the bus. Dropping it ends the thread, after the request that it answers.
pub struct Desk {
    asked: SyncSender<Asked>,
    answered: Receiver<Answer>,
    /// Number of requests without an answer yet.
    open: usize,
}

impl Desk {
    /// Starts the thread. It answers from `state`, and wakes the thread of the bus by `waker`.
    ///
    /// # Errors
    /// Returns that there is no thread.
    pub fn start(state: Arc<dyn AdminState>, waker: Arc<OwnedFd>) -> Result<Desk> {
        let (asked, asks) = sync_channel(WAITING_MAX);
        let (answers, answered) = channel();
        std::thread::Builder::new()
            .name("keyway-asked".to_owned())
            .spawn(move || answer_all(&*state, &asks, &answers, &waker))
            .context("cannot start a thread")?;
        Ok(Desk { asked, answered, open: 0 })
    }

    /// Has a request answered. Returns false if too many wait.
    pub fn ask(&mut self, from: NodeId, seq: u64, request: PassedRequest) -> bool {
        let is_taken = self.asked.try_send(Asked { from, seq, request }).is_ok();
        self.open += usize::from(is_taken);
        is_taken
    }

    /// Returns the next answer.
    pub fn poll(&mut self) -> Option<Answer> {
        let answer = self.answered.try_recv().ok()?;
        self.open = self.open.saturating_sub(1);
        Some(answer)
    }

    /// Returns whether a request has no answer yet.
    pub fn is_busy(&self) -> bool {
        self.open > 0
    }
}

fn answer_all(
    state: &dyn AdminState,
    asks: &Receiver<Asked>,
    answers: &Sender<Answer>,
    waker: &OwnedFd,
) {
    for Asked { from, seq, request } in asks.iter() {
        if request.is_change() {
            let (path, by) = (&request.path, keyway_base::printable(request.by.as_bytes()));
            tracing::info!(
                target: "keyway::event::operator-request",
                "{by} asks for {} {path} through {from}", request.method
            );
        }
        let reply = answer_passed(state, &request);
        if answers.send(Answer { to: from, seq, reply }).is_err() {
            return;
        }
        let _ = rustix::io::write(waker, &1u64.to_ne_bytes());
    }
}
