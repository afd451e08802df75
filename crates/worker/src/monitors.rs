//! Clients of all workers that see a pool's requests with MONITOR.
//!
//! ```text
//!  worker 0: a request ──► who watches? ──► inbox of worker 1 ──► its monitors
//! ```
//! Only requests of a pool with monitors get here. A bit in the pool's pause marks such pools. An
//! inbox is bounded: lines that find no room are counted.

use crate::Pause;
use crate::pool_worker::PoolWorker;
use parking_lot::Mutex;
use std::sync::Arc;

/// Number of bytes that may wait in one worker's inbox. It is emptied every turn.
const INBOX_LEN_MAX: usize = 1 << 20;

/// A line that a pool's monitors are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) pool: u16,
    pub(crate) text: Arc<[u8]>,
}

/// The monitors, by worker.
#[derive(Debug, Default)]
pub struct Monitors(Mutex<Vec<Part>>);

/// One worker's monitors.
#[derive(Debug, Default)]
struct Part {
    /// Number of monitors of each pool.
    watching: Vec<u32>,
    lines: Vec<Line>,
    /// Number of bytes of these lines.
    len: usize,
    /// Number of lines of each pool that found no room.
    lost: Vec<(u16, u64)>,
}

impl Part {
    fn watches(&self, pool: u16) -> bool {
        self.watching.get(usize::from(pool)).is_some_and(|count| *count > 0)
    }

    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.lost.is_empty()
    }

    fn show(&mut self, line: &Line) {
        if !self.watches(line.pool) {
            return;
        }
        if self.len + line.text.len() <= INBOX_LEN_MAX {
            self.len += line.text.len();
            self.lines.push(line.clone());
            return;
        }
        match self.lost.iter_mut().find(|(of, _)| *of == line.pool) {
            Some((_, lost)) => *lost += 1,
            None => self.lost.push((line.pool, 1)),
        }
    }
}

impl Monitors {
    /// Counts one more monitor of a worker, and marks its pool.
    pub(crate) fn add(&self, PoolWorker { pool, worker }: PoolWorker, pause: &Pause) {
        let mut parts = self.0.lock();
        if parts.len() <= usize::from(worker) {
            parts.resize_with(usize::from(worker) + 1, Part::default);
        }
        let watching = &mut parts[usize::from(worker)].watching;
        if watching.len() <= usize::from(pool) {
            watching.resize(usize::from(pool) + 1, 0);
        }
        watching[usize::from(pool)] += 1;
        pause.set_monitored(true);
    }

    /// Counts one less, and removes the mark with the last one.
    pub(crate) fn remove(&self, PoolWorker { pool, worker }: PoolWorker, pause: &Pause) {
        let mut parts = self.0.lock();
        let part = parts.get_mut(usize::from(worker));
        if let Some(count) = part.and_then(|part| part.watching.get_mut(usize::from(pool))) {
            *count = count.saturating_sub(1);
        }
        pause.set_monitored(parts.iter().any(|part| part.watches(pool)));
    }

    /// Puts lines into the inbox of every worker with monitors of their pool. Returns the workers
    /// whose inbox was empty, which must be woken.
    pub(crate) fn show(&self, lines: Vec<Line>) -> Vec<u16> {
        let mut wake = Vec::new();
        if lines.is_empty() {
            return wake;
        }
        for (worker, part) in self.0.lock().iter_mut().enumerate() {
            let was_empty = part.is_empty();
            lines.iter().for_each(|line| part.show(line));
            if was_empty && !part.is_empty() {
                wake.push(worker as u16);
            }
        }
        wake
    }

    /// Takes the lines for a worker, and the number of lost lines of each pool.
    pub(crate) fn take(&self, worker: u16) -> (Vec<Line>, Vec<(u16, u64)>) {
        let mut parts = self.0.lock();
        let Some(part) = parts.get_mut(usize::from(worker)) else { return Default::default() };
        part.len = 0;
        (std::mem::take(&mut part.lines), std::mem::take(&mut part.lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pool: u16, worker: u16) -> PoolWorker {
        PoolWorker { pool, worker }
    }

    #[test]
    fn a_line_reaches_the_workers_whose_monitors_watch_its_pool() {
        let (monitors, pauses) = (Monitors::default(), [Pause::default(), Pause::default()]);
        assert!(!pauses[1].is_monitored());
        monitors.add(of(1, 0), &pauses[1]);
        monitors.add(of(1, 2), &pauses[1]);
        monitors.add(of(0, 1), &pauses[0]);
        let show = |text: &[u8]| monitors.show(vec![Line { pool: 1, text: text.into() }]);
        assert_eq!(show(b"a"), [0, 2]);
        assert_eq!(show(b"b"), [], "they have been told");
        assert_eq!(monitors.take(1).0, []);
        let lines = [b"a", b"b"].map(|text| Line { pool: 1, text: text[..].into() });
        assert_eq!(monitors.take(2).0, lines);
        assert_eq!(show(b"c"), [2]);
        monitors.remove(of(1, 0), &pauses[1]);
        assert!(pauses[1].is_monitored());
        monitors.remove(of(1, 2), &pauses[1]);
        assert!(!pauses[1].is_monitored() && pauses[1].is_unused() && pauses[0].is_monitored());
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let (monitors, pause) = (Monitors::default(), Pause::default());
        monitors.add(of(0, 0), &pause);
        let line = Line { pool: 0, text: vec![b'x'; 1000].into() };
        (0..200).for_each(|_| drop(monitors.show(vec![line.clone(); 10])));
        let (lines, lost) = monitors.take(0);
        assert_eq!(lines.len(), INBOX_LEN_MAX / 1000);
        assert_eq!(lost, [(0, 2000 - lines.len() as u64)]);
        assert_eq!(monitors.take(0).1, []);
    }
}
