//! etcd's JSON: 64-bit numbers are text, keys and values base64, and what is empty is left out.

use crate::txn::Operation;
use crate::{Batch, Change, Compare, Entry, Key, Mark, Prefix, Revision, SessionId, Txn};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How keys are named in etcd: `ROOT/CLUSTER/KEY`.
#[derive(Debug)]
pub(super) struct Names {
    base: String,
}

impl Names {
    pub(super) fn new(root: &str, cluster: &str) -> Names {
        Names { base: format!("{root}/{cluster}/") }
    }

    fn name(&self, key: &Key) -> Value {
        text(format!("{}{key}", self.base).as_bytes())
    }

    fn key(&self, name: &[u8]) -> Option<Key> {
        let name = std::str::from_utf8(name).ok()?;
        Key::new(name.strip_prefix(&self.base)?).ok()
    }

    /// Returns the first name of a prefix and the first behind it.
    pub(super) fn range(&self, prefix: &Prefix) -> (Value, Value) {
        let first = format!("{}{}", self.base, prefix.as_str()).into_bytes();
        let mut behind = first.clone();
        // Names are ASCII: the next of their last byte exists.
        if let Some(last) = behind.last_mut() {
            *last += 1;
        }
        (text(&first), text(&behind))
    }

    /// Returns the entries of `kvs`, or nothing if it is something else. Names that no transaction
    /// of ours makes are left out.
    pub(super) fn entries(&self, kvs: &Value) -> Option<Vec<Entry>> {
        let mut entries = Vec::new();
        for kv in array(kvs)? {
            if let Some(key) = self.key(&bytes(&kv["key"])?) {
                entries.push(entry(kv, key)?);
            }
        }
        Some(entries)
    }

    /// Returns a transaction whose failure tells what the compared keys are.
    pub(super) fn txn(&self, txn: &Txn) -> Value {
        let compare: Vec<Value> = txn.comparisons().iter().map(|one| self.compare(one)).collect();
        let success: Vec<Value> = txn.operations().iter().map(|one| self.operation(one)).collect();
        let mut asked = BTreeMap::new();
        for one in txn.comparisons() {
            asked.insert(one.key(), json!({"request_range": {"key": self.name(one.key())}}));
        }
        let failure: Vec<Value> = asked.into_values().collect();
        json!({"compare": compare, "success": success, "failure": failure})
    }

    fn compare(&self, compare: &Compare) -> Value {
        let key = self.name(compare.key());
        match compare {
            Compare::Exists(_) => {
                json!({"key": key, "target": "CREATE", "result": "GREATER", "create_revision": "0"})
            }
            Compare::Absent(_) => {
                json!({"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"})
            }
            Compare::Modified(_, revision) => {
                let revision = revision.to_string();
                json!({"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision})
            }
            Compare::Value(_, value) => {
                json!({"key": key, "target": "VALUE", "result": "EQUAL", "value": text(value)})
            }
        }
    }

    fn operation(&self, operation: &Operation) -> Value {
        let key = self.name(operation.key());
        match operation {
            Operation::Put { value, .. } => {
                let lease = operation.session().map_or(0, |id| id.0.cast_signed()).to_string();
                json!({"request_put": {"key": key, "value": text(value), "lease": lease}})
            }
            Operation::Delete(_) => json!({"request_delete_range": {"key": key}}),
        }
    }

    /// Returns the keys whose comparison was false, from the reply to [`Names::txn`].
    pub(super) fn found(&self, txn: &Txn, reply: &Value) -> Option<Vec<(Key, Option<Entry>)>> {
        let mut entries = BTreeMap::new();
        for response in array(&reply["responses"])? {
            for entry in self.entries(&response["response_range"]["kvs"])? {
                entries.insert(entry.key.clone(), entry);
            }
        }
        Some(txn.false_for(|key| entries.get(key)))
    }

    /// Returns a watch's events as changes with their revisions, in order.
    pub(super) fn events(&self, events: &Value) -> Option<Vec<(Revision, Change)>> {
        let mut changes = Vec::new();
        for event in array(events)? {
            let kv = &event["kv"];
            let revision = revision(&kv["mod_revision"])?;
            let Some(key) = self.key(&bytes(&kv["key"])?) else { continue };
            let change = match event["type"].as_str() {
                Some("DELETE") => Change::Deleted(key),
                None | Some("PUT") => Change::Put(entry(kv, key)?),
                Some(_) => return None,
            };
            changes.push((revision, change));
        }
        Some(changes)
    }
}

fn entry(kv: &Value, key: Key) -> Option<Entry> {
    let value = Arc::from(bytes(&kv["value"])?);
    let lease = number(&kv["lease"]).unwrap_or(0).cast_unsigned();
    Some(Entry {
        key,
        value,
        created: revision(&kv["create_revision"])?,
        modified: revision(&kv["mod_revision"])?,
        session: Some(SessionId(lease)).filter(|id| id.0 != 0),
    })
}

/// Adds changes to batches of one revision each.
pub(super) fn gather(changes: Vec<(Revision, Change)>, into: &mut Vec<Batch>) {
    for (revision, change) in changes {
        match into.last_mut() {
            Some(last) if last.revision == revision => last.changes.push(change),
            _ => into.push(Batch { revision, changes: vec![change] }),
        }
    }
}

/// Returns which state an answer is of.
pub(super) fn mark(reply: &Value) -> Option<Mark> {
    let header = &reply["header"];
    // A cluster's number has all 64 bits.
    let cluster = match &header["cluster_id"] {
        Value::String(text) => text.parse().ok()?,
        number => number.as_u64()?,
    };
    Some(Mark { cluster, revision: revision(&header["revision"])? })
}

/// Returns the last name of `kvs`, in base64.
pub(super) fn last_key(kvs: &Value) -> Option<Vec<u8>> {
    bytes(&kvs.as_array()?.last()?["key"])
}

/// Returns the first name behind this one.
pub(super) fn behind(name: &[u8]) -> Value {
    text(&[name, &[0]].concat())
}

/// Returns a 64-bit number.
pub(super) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_i64(),
    }
}

pub(super) fn revision(value: &Value) -> Option<Revision> {
    number(value).and_then(|number| u64::try_from(number).ok()).map(Revision)
}

fn text(bytes: &[u8]) -> Value {
    Value::String(STANDARD.encode(bytes))
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::String(text) => STANDARD.decode(text).ok(),
        _ => None,
    }
}

fn array(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Null => Some(&[]),
        Value::Array(array) => Some(array),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_empty_and_what_is_wrong_is_refused() {
        let names = Names::new("/kw", "c");
        assert_eq!(names.entries(&Value::Null), Some(Vec::new()));
        let name = text(b"/kw/c/groups/7");
        let kv = json!({"key": name, "create_revision": "3", "mod_revision": "5"});
        let entries = names.entries(&json!([kv])).unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].key.as_str(), "groups/7");
        assert_eq!((entries[0].created, entries[0].modified), (Revision(3), Revision(5)));
        assert!(entries[0].value.is_empty() && entries[0].session.is_none());
        for wrong in [
            json!({}),
            json!([{"key": "*"}]),
            json!([{"key": name, "mod_revision": "5"}]),
            json!([{"key": name, "create_revision": "-3", "mod_revision": "5"}]),
            json!([{"key": name, "create_revision": "3", "mod_revision": "5", "value": 7}]),
        ] {
            assert_eq!(names.entries(&wrong), None, "{wrong}");
        }
        // Somebody else's name below ours.
        assert_eq!(names.entries(&json!([{"key": text(b"/kw/c/a//b")}])), Some(Vec::new()));
    }

    #[test]
    fn a_cluster_has_a_number_of_64_bits() {
        let reply = json!({"header": {"cluster_id": u64::MAX.to_string(), "revision": "9"}});
        let expected = Mark { cluster: u64::MAX, revision: Revision(9) };
        assert_eq!(mark(&reply), Some(expected));
        assert_eq!(mark(&json!({"header": {"cluster_id": "x"}})), None);
        assert_eq!(mark(&json!([])), None);
    }
}
