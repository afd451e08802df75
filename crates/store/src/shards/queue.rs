use keyway_memory::Deque;
use keyway_memory::nodes::{self, Node};

/// New items on probation, and the ghosts of those evicted from there.
pub(crate) struct Queue {
    /// Hashes, oldest first. An entry whose item left or moved to main does no
    /// harm: it is skipped when it comes up.
    pub(super) small: Deque<u32>,
    /// Something was evicted: memory is full, and the queue decides.
    pub(super) pressed: bool,
    /// Fingerprints of evicted items, indexed by hash, 0 when empty. The next
    /// ghost at the same index replaces it, so a ghost lives for about as many
    /// evictions as there are indices.
    ghosts: Node<u16>,
}

fn fingerprint(hash: u32) -> u16 {
    ((hash >> 16) as u16).max(1)
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { small: Deque::default(), pressed: false, ghosts: nodes::empty() }
    }

    pub(super) fn bytes(&self) -> usize {
        nodes::boxed_len::<Self>() + self.small.bytes() + nodes::bytes(&self.ghosts)
    }

    /// Moves what lies on sparse pages; how much.
    pub(super) fn relocate(&mut self) -> u64 {
        self.small.relocate() + u64::from(nodes::relocate(&mut self.ghosts))
    }

    fn ghost_index(&self, hash: u32) -> usize {
        hash as usize & (self.ghosts.len() - 1)
    }

    pub(super) fn add_ghost(&mut self, hash: u32, item_count: usize) {
        if self.ghosts.len() < item_count / 2 || self.ghosts.is_empty() {
            self.ghosts = nodes::empty();
            self.ghosts.resize(item_count.next_power_of_two(), 0);
        }
        let index = self.ghost_index(hash);
        self.ghosts[index] = fingerprint(hash);
    }

    pub(super) fn take_ghost(&mut self, hash: u32) -> bool {
        if self.ghosts.is_empty() {
            return false;
        }
        let index = self.ghost_index(hash);
        let known = self.ghosts[index] == fingerprint(hash);
        if known {
            self.ghosts[index] = 0;
        }
        known
    }
}
