//! The orders of operators, and their answers.

use keyway_fleet::{ApplyFault, Author, OrderId, Version};
use std::collections::{BTreeMap, BTreeSet};

/// Orders that a leader has waiting at most.
const WAITING_MAX: usize = 8;

/// An order without an answer.
#[derive(Debug)]
pub(super) struct Asked {
    /// The control node that was asked.
    pub nth: usize,
    /// The pool; `None` if the order is about the document.
    pub pool: Option<usize>,
    /// The server that is to be the primary.
    pub to: Option<String>,
}

/// The orders of operators.
#[derive(Debug, Default)]
pub(super) struct Operators {
    next: u64,
    asked: BTreeMap<OrderId, Asked>,
    /// The orders that were carried out.
    done: BTreeSet<OrderId>,
}

impl Operators {
    /// Notes an order. Returns its id, and an author who asks once.
    pub fn ask(&mut self, asked: Asked) -> (OrderId, Author) {
        self.next += 1;
        let id = OrderId(self.next);
        self.asked.insert(id, asked);
        (id, Author { name: format!("sim-{}", id.0), address: String::new() })
    }

    /// Takes an answer. Returns the order.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn take(
        &mut self,
        id: OrderId,
        outcome: &Result<Version, ApplyFault>,
    ) -> Result<Asked, String> {
        let Some(asked) = self.asked.remove(&id) else {
            return Err("an order is answered twice".to_owned());
        };
        match outcome {
            Ok(_) => drop(self.done.insert(id)),
            Err(ApplyFault::Busy) => {
                let of_it = self.asked.values().filter(|other| other.nth == asked.nth);
                let is_full = of_it.clone().count() >= WAITING_MAX;
                if !is_full && !of_it.clone().any(|other| other.pool == asked.pool) {
                    return Err(format!("{asked:?} is refused as busy, and it was the only one"));
                }
            }
            Err(_) => {}
        }
        Ok(asked)
    }

    /// Nobody waits for the answers of a process that is gone.
    pub fn forget(&mut self, nth: usize) {
        self.asked.retain(|_, asked| asked.nth != nth);
    }

    pub fn waiting(&self) -> usize {
        self.asked.len()
    }

    pub fn is_done(&self, id: OrderId) -> bool {
        self.done.contains(&id)
    }
}
