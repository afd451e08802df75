//! The parts of a request that is led to other pools, and which part has which key.

use super::RoutePolicy;
use keyway_base::Fault;
use keyway_memcache::Expect;

/// A part of a request: keys that take the same path.
#[derive(Debug)]
pub struct Part {
    /// The path.
    pub route_policy: RoutePolicy,
    /// The keys of the request, or empty for all of them.
    pub keys: Vec<u32>,
    /// The best reply so far. `expect` says how it ends if it is not the client's reply unchanged.
    pub reply: Vec<u8>,
    /// See `reply`.
    pub expect: Option<Expect>,
    /// The fault that the reply reports.
    pub fault: Option<Fault>,
    /// Number of open questions about items to be filled in.
    pub asking: u32,
}

impl Part {
    /// Creates a part for which nothing was asked.
    pub fn new(route_policy: RoutePolicy, keys: Vec<u32>) -> Part {
        Part { route_policy, keys, reply: Vec::new(), expect: None, fault: None, asking: 0 }
    }
}

/// The part of a request that has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOwner {
    /// Index of the part.
    pub part: u16,
    /// Index of the key among those of the part.
    pub index: u32,
}

impl KeyOwner {
    /// Creates the owner of the key with this index in this part.
    pub fn new(part: u16, index: u32) -> KeyOwner {
        KeyOwner { part, index }
    }
}
