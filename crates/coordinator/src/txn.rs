use crate::limits::{OPERATION_LEN, TXN_LEN_MAX, TXN_OPERATIONS_MAX, VALUE_LEN_MAX};
use crate::session::Lease;
use crate::{Entry, Fault, FaultKind, Key, Revision, Session, SessionId};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// What must hold for a transaction to be executed.
#[derive(Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key exists.
    Exists(Key),
    /// The key does not exist.
    Absent(Key),
    /// The key exists, and this revision changed it last.
    Modified(Key, Revision),
    /// The key exists and has this value.
    Value(Key, Arc<[u8]>),
}

impl Compare {
    /// Returns the key.
    pub fn key(&self) -> &Key {
        match self {
            Compare::Exists(key)
            | Compare::Absent(key)
            | Compare::Modified(key, _)
            | Compare::Value(key, _) => key,
        }
    }

    /// Returns whether it holds for what the key is.
    pub fn holds(&self, entry: Option<&Entry>) -> bool {
        match self {
            Compare::Exists(_) => entry.is_some(),
            Compare::Absent(_) => entry.is_none(),
            Compare::Modified(_, revision) => {
                entry.is_some_and(|entry| entry.modified == *revision)
            }
            Compare::Value(_, value) => entry.is_some_and(|entry| entry.value == *value),
        }
    }

    fn len(&self) -> usize {
        let value_len = if let Compare::Value(_, value) = self { value.len() } else { 0 };
        self.key().as_str().len() + value_len + OPERATION_LEN
    }
}

// Values may be secrets.
impl fmt::Debug for Compare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compare::Exists(key) => write!(f, "Exists({key})"),
            Compare::Absent(key) => write!(f, "Absent({key})"),
            Compare::Modified(key, revision) => write!(f, "Modified({key}, {revision})"),
            Compare::Value(key, value) => write!(f, "Value({key}, {} bytes)", value.len()),
        }
    }
}

/// What a transaction does with one key.
pub(crate) enum Operation {
    Put { key: Key, value: Arc<[u8]>, lease: Option<Arc<Lease>> },
    Delete(Key),
}

impl Operation {
    pub(crate) fn key(&self) -> &Key {
        match self {
            Operation::Put { key, .. } | Operation::Delete(key) => key,
        }
    }

    /// The session that the key is bound to.
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self {
            Operation::Put { lease, .. } => lease.as_ref().map(|lease| lease.id()),
            Operation::Delete(_) => None,
        }
    }

    fn len(&self) -> usize {
        let value_len = if let Operation::Put { value, .. } = self { value.len() } else { 0 };
        self.key().as_str().len() + value_len + OPERATION_LEN
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Put { key, value, .. } => write!(f, "Put({key}, {} bytes)", value.len()),
            Operation::Delete(key) => write!(f, "Delete({key})"),
        }
    }
}

/// A transaction: comparisons, and operations that are executed together if all of them hold.
///
/// It has at most [`TXN_OPERATIONS_MAX`] comparisons and as many operations, and [`TXN_LEN_MAX`]
/// bytes. Each key is operated on once at most.
#[derive(Debug, Default)]
pub struct Txn {
    compare: Vec<Compare>,
    then: Vec<Operation>,
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every comparison was true and everything was done.
    Done {
        /// The revision that the transaction made. It is the current one if the transaction only
        /// deleted what did not exist.
        revision: Revision,
    },
    /// A comparison was false, and nothing was done.
    Refused {
        /// A revision at which that was so.
        revision: Revision,
        /// The keys whose comparison was false, each with what it was at that revision.
        found: Vec<(Key, Option<Entry>)>,
    },
}

impl Outcome {
    /// Returns the revision that was made.
    pub fn done(&self) -> Option<Revision> {
        if let Outcome::Done { revision } = self { Some(*revision) } else { None }
    }
}

impl Txn {
    /// Creates one without comparisons and operations.
    pub fn new() -> Txn {
        Txn::default()
    }

    /// Adds a comparison.
    #[must_use]
    pub fn when(mut self, compare: Compare) -> Txn {
        self.compare.push(compare);
        self
    }

    /// Adds setting a key. A key that was bound to a session is bound no longer.
    #[must_use]
    pub fn put(mut self, key: &Key, value: impl Into<Arc<[u8]>>) -> Txn {
        let put = Operation::Put { key: key.clone(), value: value.into(), lease: None };
        self.then.push(put);
        self
    }

    /// Adds setting a key that the end of the session deletes.
    #[must_use]
    pub fn put_bound(mut self, key: &Key, value: impl Into<Arc<[u8]>>, session: &Session) -> Txn {
        let lease = Some(Arc::clone(session.lease()));
        self.then.push(Operation::Put { key: key.clone(), value: value.into(), lease });
        self
    }

    /// Adds deleting a key. It may be absent.
    #[must_use]
    pub fn delete(mut self, key: &Key) -> Txn {
        self.then.push(Operation::Delete(key.clone()));
        self
    }

    pub(crate) fn comparisons(&self) -> &[Compare] {
        &self.compare
    }

    pub(crate) fn operations(&self) -> &[Operation] {
        &self.then
    }

    /// Checks what every backend relies on.
    pub(crate) fn check(&self, place: &str) -> Result<(), Fault> {
        if self.then.is_empty() {
            return Err(Fault::invalid("the transaction does nothing"));
        }
        let too_large =
            |what: String| Err(Fault::new(FaultKind::TooLarge, place, "transaction", what));
        if self.then.len().max(self.compare.len()) > TXN_OPERATIONS_MAX {
            return too_large(format!("more than {TXN_OPERATIONS_MAX} operations or comparisons"));
        }
        let compared = self.compare.iter().map(Compare::len);
        let len: usize = compared.chain(self.then.iter().map(Operation::len)).sum();
        if len > TXN_LEN_MAX {
            return too_large(format!("it has {len} bytes, {TXN_LEN_MAX} are allowed"));
        }
        // No state has it, and etcd would take it for an absent key.
        let is_never = |one: &Compare| matches!(one, Compare::Modified(_, Revision(0)));
        if self.compare.iter().any(is_never) {
            return Err(Fault::invalid("a comparison is with revision 0"));
        }
        let mut keys = BTreeSet::new();
        for operation in &self.then {
            if !keys.insert(operation.key()) {
                let key = operation.key();
                return Err(Fault::invalid(format!("the transaction changes {key} twice")));
            }
            let Operation::Put { value, lease, .. } = operation else { continue };
            if value.len() > VALUE_LEN_MAX {
                let what = format!("the value of {} has {} bytes", operation.key(), value.len());
                return too_large(format!("{what}, {VALUE_LEN_MAX} are allowed"));
            }
            if lease.as_ref().is_some_and(|lease| !lease.is_alive()) {
                return Err(Fault::session_lost(place, "transaction"));
            }
        }
        Ok(())
    }

    /// Returns the keys whose comparison is false for what `entry_of` tells.
    pub(crate) fn false_for<'a>(
        &self,
        entry_of: impl Fn(&Key) -> Option<&'a Entry>,
    ) -> Vec<(Key, Option<Entry>)> {
        let mut found: Vec<(Key, Option<Entry>)> = Vec::new();
        for compare in &self.compare {
            let key = compare.key();
            let entry = entry_of(key);
            if !compare.holds(entry) && !found.iter().any(|(known, _)| known == key) {
                found.push((key.clone(), entry.cloned()));
            }
        }
        found
    }
}
