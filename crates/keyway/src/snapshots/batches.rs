//! Threads that put strings into a store while its file is read.
//!
//! Each thread has shards of its own, so that memory does not go from processor to processor.

use keyway_store::{LoadBatch, LoadError, Store};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{Builder, Scope, available_parallelism};

/// Number of groups of shards that are dealt out to threads.
pub(super) const GROUPS: usize = 8;
/// The groups of the thread that reads the file, if there is one other thread. Reading takes about a
/// third of the time.
const GROUPS_OF_READER: usize = 2;
/// Number of threads beside the one that reads the file. It reads as much as this many can put.
const THREADS_MAX: usize = 3;
/// Batches that wait for each thread.
const WAITING: usize = 4;

/// Batches on their way to threads that put them into a store.
pub(super) struct Batches {
    store: Arc<Store>,
    queues: Vec<Queue>,
}

/// The batches of one thread.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    /// There is a batch, or no more of them come.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// False if the system had no thread for it.
    is_served: bool,
    waiting: VecDeque<LoadBatch>,
    empty: Vec<LoadBatch>,
    is_over: bool,
    failure: Option<LoadError>,
}

impl Batches {
    /// Queues for a thread of each processor but this thread's.
    pub(super) fn new(store: &Arc<Store>) -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        let queues = (1..cores.min(1 + THREADS_MAX)).map(|_| Queue::default()).collect();
        Self { store: Arc::clone(store), queues }
    }

    /// Starts the threads.
    pub(super) fn start<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        for queue in &self.queues {
            let thread = Builder::new().name("keyway-loading".into());
            queue.state.lock().is_served = thread.spawn_scoped(scope, || queue.run()).is_ok();
        }
    }

    /// The queue of a group of shards; none if they are this thread's.
    fn queue_of(&self, group: usize) -> Option<&Queue> {
        match self.queues.len() {
            1 if group < GROUPS_OF_READER => None,
            count => self.queues.get(group % count.max(1)),
        }
    }

    /// Passes a full batch on, and leaves an empty one. This thread puts it if the other one has
    /// enough to do.
    ///
    /// # Errors
    /// [`LoadError`] of this batch, or of one before.
    pub(super) fn put(&self, batch: &mut LoadBatch) -> Result<(), LoadError> {
        let Some(queue) = self.queue_of(batch.group()) else { return batch.put() };
        let mut state = queue.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if !state.is_served || state.waiting.len() >= WAITING {
            drop(state);
            return batch.put();
        }
        let empty = state.empty.pop().unwrap_or_else(|| LoadBatch::new(&self.store));
        state.waiting.push_back(batch.replace(empty));
        drop(state);
        queue.changed.notify_one();
        Ok(())
    }

    /// Ends the threads once no batch waits.
    pub(super) fn end(&self) {
        for queue in &self.queues {
            queue.state.lock().is_over = true;
            queue.changed.notify_all();
        }
    }

    /// The failure of a thread that has ended, if there was one.
    pub(super) fn failure(self) -> Option<LoadError> {
        self.queues.into_iter().find_map(|queue| queue.state.into_inner().failure)
    }
}

impl Queue {
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            let Some(mut batch) = state.waiting.pop_front() else {
                if state.is_over {
                    return;
                }
                self.changed.wait(&mut state);
                continue;
            };
            drop(state);
            let put = batch.put();
            state = self.state.lock();
            state.empty.push(batch);
            if let Err(failure) = put {
                // The batches that wait are of no use any more.
                state.waiting.clear();
                state.failure.get_or_insert(failure);
            }
        }
    }
}
