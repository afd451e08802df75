//! Replies to commands that waited on an embedded store and were served by another worker, on their
//! way to the worker of their client.

use parking_lot::Mutex;

/// The reply to a waiting client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Handout {
    pub(crate) client: u64,
    pub(crate) reply: Vec<u8>,
}

/// The replies for each worker's clients. There is at most one for each client that waits.
#[derive(Debug, Default)]
pub struct Handouts {
    inboxes: Mutex<Vec<Vec<Handout>>>,
}

impl Handouts {
    /// Leaves a reply for a worker. Returns whether the worker must be woken.
    pub(crate) fn post(&self, worker: u16, handout: Handout) -> bool {
        let mut inboxes = self.inboxes.lock();
        let index = usize::from(worker);
        if inboxes.len() <= index {
            inboxes.resize_with(index + 1, Vec::new);
        }
        inboxes[index].push(handout);
        inboxes[index].len() == 1
    }

    /// Moves the replies for a worker to the end of `out`.
    pub(crate) fn take(&self, worker: u16, out: &mut Vec<Handout>) {
        if let Some(inbox) = self.inboxes.lock().get_mut(usize::from(worker)) {
            out.append(inbox);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_told_of_the_first_and_takes_all() {
        let handouts = Handouts::default();
        let handout = |client| Handout { client, reply: Vec::new() };
        assert!(handouts.post(2, handout(1)) && !handouts.post(2, handout(2)));
        let mut taken = Vec::new();
        handouts.take(1, &mut taken);
        assert!(taken.is_empty());
        handouts.take(2, &mut taken);
        assert_eq!(taken, [handout(1), handout(2)]);
        assert!(handouts.post(2, handout(3)));
    }
}
