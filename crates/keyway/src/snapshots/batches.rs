//! Threads that put strings into a store while its file is read.

use keyway_store::{LoadBatch, LoadError, Store};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{Builder, Scope, available_parallelism};

/// Number of threads beside the one that reads the file. It reads as much as this many can put.
const THREADS_MAX: usize = 3;
/// Batches that wait for each thread.
const WAITING: usize = 2;

/// Batches on their way to threads that put them into a store.
pub(super) struct Batches {
    store: Arc<Store>,
    state: Mutex<State>,
    /// There is a batch, or no more of them come.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<LoadBatch>,
    empty: Vec<LoadBatch>,
    threads: usize,
    is_over: bool,
    failure: Option<LoadError>,
}

impl Batches {
    pub(super) fn new(store: &Arc<Store>) -> Self {
        let store = Arc::clone(store);
        Self { store, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Starts a thread for each processor but this thread's. Without one, this thread does all.
    pub(super) fn start<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        let cores = available_parallelism().map_or(1, usize::from);
        for _ in 0..(cores - 1).min(THREADS_MAX) {
            let thread = Builder::new().name("keyway-loading".into());
            if thread.spawn_scoped(scope, || self.run()).is_ok() {
                self.state.lock().threads += 1;
            }
        }
    }

    /// Passes a full batch on, and leaves an empty one. This thread puts it if the others have
    /// enough to do.
    ///
    /// # Errors
    /// [`LoadError`] of any batch so far.
    pub(super) fn put(&self, batch: &mut LoadBatch) -> Result<(), LoadError> {
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.waiting.len() >= state.threads * WAITING {
            drop(state);
            return batch.put();
        }
        let empty = state.empty.pop().unwrap_or_else(|| LoadBatch::new(&self.store));
        state.waiting.push_back(std::mem::replace(batch, empty));
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Ends the threads once no batch waits.
    pub(super) fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }

    /// The first failure of a thread that has ended.
    pub(super) fn failure(self) -> Option<LoadError> {
        self.state.into_inner().failure
    }

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
