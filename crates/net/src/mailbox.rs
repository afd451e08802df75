use crossbeam_queue::ArrayQueue;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

struct Shared<M> {
    queue: ArrayQueue<M>,
    wake: OwnedFd,
}

/// The receiving end of a worker's bounded mail. Other threads post, and the worker takes all mail
/// when its [`crate::Io`] reports `Event::Mail`.
pub struct Mailbox<M>(Arc<Shared<M>>);

/// The posting end; cheap to clone.
pub struct Mailer<M>(Arc<Shared<M>>);

impl<M> Clone for Mailer<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> Mailbox<M> {
    /// Creates a mailbox for at most `capacity` pieces of mail.
    pub fn new(capacity: usize) -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(Shared { queue: ArrayQueue::new(capacity), wake })))
    }

    /// Returns a posting end for this box.
    pub fn mailer(&self) -> Mailer<M> {
        Mailer(Arc::clone(&self.0))
    }

    /// Returns the next piece of mail. Call it until it returns none.
    pub fn take(&self) -> Option<M> {
        self.0.queue.pop()
    }

    /// Returns the descriptor that an [`crate::EpollIo`] watches for mail.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

impl<M> Mailer<M> {
    /// Returns whether the mailbox is empty at this moment. A simulated driver asks this instead of
    /// the descriptor, which costs a system call.
    pub fn is_empty(&self) -> bool {
        self.0.queue.is_empty()
    }

    /// Posts `mail` and wakes the worker. Returns the mail if the mailbox is full.
    pub fn post(&self, mail: M) -> Result<(), M> {
        self.0.queue.push(mail)?;
        // This can fail only if the counter is full, and then the worker will wake anyway.
        let _ = rustix::io::write(&self.0.wake, &1u64.to_ne_bytes());
        Ok(())
    }
}
