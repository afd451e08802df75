//! The document of the cluster: the pools that it has, and which of them each leader has taken.

use crate::random::Random;

/// The pools of the document.
#[derive(Debug)]
pub(super) struct Listed {
    current: Vec<bool>,
    /// The pools that each control node has taken since it leads; `None` before it has read the
    /// document.
    taken: Vec<Option<Vec<bool>>>,
    /// The pools that a document of this run has lacked.
    dropped: Vec<bool>,
    /// The pools that have come back to the document.
    returned: Vec<bool>,
    /// True if the document changes during the run.
    changes: bool,
}

impl Listed {
    /// Begins with the first pool, and with most others.
    pub fn new(pools: usize, controls: usize, random: &mut Random) -> Listed {
        let changes = pools > 1 && random.percent(60);
        let has = |nth| nth == 0 || !changes || random.percent(80);
        let current: Vec<bool> = (0..pools).map(has).collect();
        let dropped = current.iter().map(|has| !has).collect();
        let (taken, returned) = (vec![None; controls], vec![false; pools]);
        Listed { current, taken, dropped, returned, changes }
    }

    pub fn current(&self) -> &[bool] {
        &self.current
    }

    pub fn has(&self, pool: usize) -> bool {
        self.current[pool]
    }

    /// Returns the pools of the document.
    pub fn pools(&self) -> Vec<usize> {
        (0..self.current.len()).filter(|pool| self.has(*pool)).collect()
    }

    /// Somebody applies a document without one of the pools, or with one more. A document with one
    /// pool keeps that. Returns the pool.
    pub fn change(&mut self, random: &mut Random) -> Option<usize> {
        let pool = random.index(self.current.len());
        let is_last = self.has(pool) && self.pools().len() == 1;
        if !self.changes || is_last {
            return None;
        }
        self.current[pool] = !self.current[pool];
        self.returned[pool] |= self.current[pool] && self.dropped[pool];
        self.dropped[pool] = true;
        Some(pool)
    }

    pub fn was_dropped(&self, pool: usize) -> bool {
        self.dropped[pool]
    }

    pub fn has_returned(&self, pool: usize) -> bool {
        self.returned[pool]
    }

    /// Returns whether a control node leads by another document than the current one.
    pub fn is_behind(&self, nth: usize) -> bool {
        self.taken[nth].as_ref() != Some(&self.current)
    }

    /// A leader takes the document. Returns the pools that it had and that are gone.
    pub fn take(&mut self, nth: usize) -> Vec<usize> {
        let before = self.taken[nth].replace(self.current.clone()).unwrap_or_default();
        let had = before.iter().enumerate().filter(|(pool, had)| **had && !self.has(*pool));
        had.map(|(pool, _)| pool).collect()
    }

    /// A control node leads no more, or has begun to.
    pub fn forget(&mut self, nth: usize) {
        self.taken[nth] = None;
    }

    /// Returns whether a control node has taken a document with this pool; `None` if it has taken
    /// none.
    pub fn taken(&self, nth: usize, pool: usize) -> Option<bool> {
        self.taken[nth].as_ref().map(|taken| taken[pool])
    }
}
