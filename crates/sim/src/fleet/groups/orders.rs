//! The orders of operators, and their answers.

use keyway_fleet::{Author, OrderId};
use std::collections::BTreeMap;

/// An order without an answer.
#[derive(Debug)]
pub(super) struct Asked {
    /// The control node that was asked.
    nth: usize,
    /// The server that is to be the primary.
    pub to: Option<String>,
}

/// The orders of operators.
#[derive(Debug, Default)]
pub(super) struct Operators {
    next: u64,
    asked: BTreeMap<OrderId, Asked>,
}

impl Operators {
    /// Notes an order for a control node. Returns its id, and an author who asks once.
    pub fn ask(&mut self, nth: usize, to: Option<String>) -> (OrderId, Author) {
        self.next += 1;
        let id = OrderId(self.next);
        self.asked.insert(id, Asked { nth, to });
        (id, Author { name: format!("sim-{}", id.0), address: String::new() })
    }

    /// Takes an answer. Returns the order; `None` if nobody waits for it.
    pub fn take(&mut self, id: OrderId) -> Option<Asked> {
        self.asked.remove(&id)
    }

    /// Nobody waits for the answers of a process that is gone.
    pub fn forget(&mut self, nth: usize) {
        self.asked.retain(|_, asked| asked.nth != nth);
    }

    pub fn waiting(&self) -> usize {
        self.asked.len()
    }
}
