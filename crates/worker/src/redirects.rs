//! Invalidations for clients that are told in place of those whose keys they concern, on their way
//! from worker to worker.

use parking_lot::Mutex;
use std::collections::BTreeSet;

/// Number of bytes that wait for a worker, above which its clients are told instead to drop their
/// whole cache. With more, a slow worker could hold more memory. With less, clients would drop more
/// than necessary.
const INBOX_LEN_MAX: usize = 1 << 20;

/// One bounded inbox for each worker.
#[derive(Debug, Default)]
pub struct Redirects {
    inboxes: Mutex<Vec<Inbox>>,
}

/// The pushes that wait for the clients of one worker.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// The client, and the push.
    pub(crate) pushes: Vec<(u64, Vec<u8>)>,
    /// Clients for whose pushes there was no room.
    pub(crate) overrun: BTreeSet<u64>,
    len: usize,
}

impl Redirects {
    /// Puts a push for a client of `worker` into its inbox. Returns whether the inbox was empty, so
    /// that the worker must be woken.
    pub(crate) fn post(&self, worker: u16, client: u64, push: &[u8]) -> bool {
        let mut inboxes = self.inboxes.lock();
        let worker = usize::from(worker);
        if inboxes.len() <= worker {
            inboxes.resize_with(worker + 1, Inbox::default);
        }
        let inbox = &mut inboxes[worker];
        let was_empty = inbox.pushes.is_empty() && inbox.overrun.is_empty();
        if inbox.overrun.contains(&client) {
            return was_empty;
        }
        if inbox.len + push.len() > INBOX_LEN_MAX {
            inbox.overrun.insert(client);
        } else {
            inbox.len += push.len();
            inbox.pushes.push((client, push.to_vec()));
        }
        was_empty
    }

    /// Takes what waits for the clients of `worker`.
    pub(crate) fn take(&self, worker: u16) -> Inbox {
        let mut inboxes = self.inboxes.lock();
        inboxes.get_mut(usize::from(worker)).map(std::mem::take).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_room_is_told_once_that_everything_may_have_changed() {
        let redirects = Redirects::default();
        let push = vec![b'x'; INBOX_LEN_MAX / 2];
        assert!(redirects.post(1, 7, &push));
        assert!(!redirects.post(1, 8, &push));
        assert!(!redirects.post(1, 9, b"y"));
        assert!(!redirects.post(1, 9, b""), "it is to forget everything already");
        let inbox = redirects.take(1);
        assert_eq!(inbox.pushes.iter().map(|(client, _)| *client).collect::<Vec<_>>(), [7, 8]);
        assert_eq!(inbox.overrun, BTreeSet::from([9]));
        assert!(redirects.take(1).pushes.is_empty() && redirects.take(5).pushes.is_empty());
        assert!(redirects.post(1, 9, b"y"));
    }
}
