//! The keys that a server tells of, without those of slots that its group does not have.
//!
//! While slots move, two groups have the same keys: the target has copies before it has the slots, and
//! the source keeps its own for a while after.

use crate::core::Plane;
use keyway_resp::{Framing, Kind, frame_reply, reply};
use keyway_topology::SlotMap;
use std::borrow::Cow;

/// The keys that a group of servers has.
struct OwnKeys<'s> {
    map: &'s SlotMap,
    group: u16,
}

impl Plane {
    /// Returns an array of keys that a server has answered with, without those that belong to other
    /// groups.
    pub(in crate::core) fn own_keys<'r>(
        &self,
        pool: u16,
        server: u16,
        keys: &'r [u8],
    ) -> Cow<'r, [u8]> {
        match self.keys_of(pool, server) {
            Some(own) => own.kept(keys).map_or(Cow::Borrowed(keys), Cow::Owned),
            None => Cow::Borrowed(keys),
        }
    }

    /// Returns whether a server has answered with a key that belongs to another group.
    pub(in crate::core) fn is_foreign_key(&self, pool: u16, server: u16, reply: &[u8]) -> bool {
        let key = bulk(reply).map(|(key, _)| key);
        let own = self.keys_of(pool, server);
        own.zip(key).is_some_and(|(own, key)| !own.has(key))
    }

    /// Returns whether the groups of a pool share slots.
    pub(in crate::core) fn shares_slots(&self, pool: u16) -> bool {
        self.cluster_state(pool).is_some_and(|state| state.slots.is_some())
    }

    /// Returns the keys that the group of a server has, in a pool whose groups share slots.
    fn keys_of(&self, pool: u16, server: u16) -> Option<OwnKeys<'_>> {
        let state = self.cluster_state(pool)?;
        let map = &state.slots.as_ref()?.now().map;
        let node = state.map.node(usize::from(server))?;
        Some(OwnKeys { map, group: state.shared.group_of(&node.endpoint)? })
    }
}

impl OwnKeys<'_> {
    fn has(&self, key: &[u8]) -> bool {
        self.map.group_of(self.map.space().slot_of(key)) == Some(self.group)
    }

    /// Returns an array without the keys of others; `None` if it has none of them, or is no array of
    /// keys.
    fn kept(&self, keys: &[u8]) -> Option<Vec<u8>> {
        let mut rest = elements(keys)?;
        let (mut kept, mut count, mut all) = (Vec::with_capacity(keys.len()), 0, 0);
        while !rest.is_empty() {
            let (key, after) = bulk(rest)?;
            if self.has(key) {
                count += 1;
                kept.extend_from_slice(rest.get(..rest.len() - after.len())?);
            }
            all += 1;
            rest = after;
        }
        if count == all {
            return None;
        }
        let mut array = Vec::with_capacity(kept.len() + 16);
        reply::array(&mut array, count);
        array.extend_from_slice(&kept);
        Some(array)
    }
}

/// Returns the elements of an array.
fn elements(array: &[u8]) -> Option<&[u8]> {
    let head = array.iter().position(|&byte| byte == b'\n')?;
    array.starts_with(b"*").then(|| array.get(head + 1..))?
}

/// Returns the text of the first reply, and what is behind it.
fn bulk(replies: &[u8]) -> Option<(&[u8], &[u8])> {
    let Ok(Framing::Ready { len, kind: Kind::Bulk }) = frame_reply(replies, u32::MAX, 1) else {
        return None;
    };
    let (whole, rest) = replies.split_at_checked(len)?;
    let head = whole.iter().position(|&byte| byte == b'\n')?;
    Some((whole.get(head + 1..len.checked_sub(2)?)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_topology::SlotSpace;
    use proptest::prelude::*;

    fn map() -> SlotMap {
        let mut map = SlotMap::new(SlotSpace::Codis);
        map.give(0, 511, 0).unwrap();
        map.give(512, 1023, 1).unwrap();
        map
    }

    fn array(keys: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        reply::array(&mut out, keys.len());
        keys.iter().for_each(|key| reply::bulk(&mut out, key));
        out
    }

    proptest! {
        /// Two groups that have all keys tell of each key once together.
        #[test]
        fn each_key_is_of_one_group(keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..20)) {
            let map = map();
            let all = array(&keys);
            let told = |group: u16| {
                let own = OwnKeys { map: &map, group };
                let expected: Vec<Vec<u8>> =
                    keys.iter().filter(|key| own.has(key)).cloned().collect();
                let kept = own.kept(&all).unwrap_or_else(|| all.clone());
                assert_eq!(kept, array(&expected));
                expected.len()
            };
            prop_assert_eq!(told(0) + told(1), keys.len());
        }

        /// Bytes of a server never end the process.
        #[test]
        fn other_replies_are_left_as_they_are(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let map = map();
            let _ = OwnKeys { map: &map, group: 0 }.kept(&bytes);
            let _ = bulk(&bytes);
        }
    }

    #[test]
    fn an_array_of_something_else_is_left_as_it_is() {
        let map = map();
        let own = OwnKeys { map: &map, group: 0 };
        for other in
            ["*0\r\n", "*1\r\n:1\r\n", "-ERR no\r\n", "*2\r\n$1\r\na\r\n", "$1\r\na\r\n", ""]
        {
            let kept = own.kept(other.as_bytes());
            assert!(kept.is_none() || other.contains("$1"), "{other:?}");
        }
    }
}
