use super::{Tracking, write_everything};
use crate::{Announcement, ConnectionKey, ReplyOrder};
use keyway_resp::reply;
use std::collections::{BTreeSet, VecDeque};

/// Number of bytes of held messages above which a client is told instead to drop its whole cache.
/// More would take memory for each slow pipeline. With less, clients would drop more than
/// necessary.
const HELD_LEN_MAX: usize = 64 << 10;

/// The links that only one session uses, for as long as it is tracked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackedLinks {
    /// The links for its requests, by server.
    pub links: Vec<ConnectionKey>,
    /// The links for its invalidations, by server, if they are separate: for a client with RESP2.
    pub receivers: Vec<ConnectionKey>,
    /// Links for which `CLIENT TRACKING` still waits before it is answered.
    pub awaited: BTreeSet<ConnectionKey>,
    /// Where its reply belongs.
    pub reply_index: Option<u32>,
    /// True if these links replace others. No server has told of the changes in between.
    pub is_renewed: bool,
    /// The servers that refused, if any did.
    pub refusal: Option<String>,
}

/// Pushes that must not overtake earlier replies, which wait for those of other servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// For each push the index in the order for which it waits, and its bytes.
    pushes: VecDeque<(u32, Vec<u8>)>,
    len: usize,
    /// The index after the last request that was split into fragments. A part of its reply may have
    /// arrived, which no push may overtake either.
    fragments_end: Option<u32>,
}

impl Held {
    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.pushes.is_empty()
    }

    /// Notes that a request was split into fragments, whose reply has the index before `next`.
    pub fn note_fragments(&mut self, next: u32) {
        self.fragments_end = Some(next);
    }

    /// Returns whether a push that arrives now must wait for replies in `order`.
    pub fn must_hold(&mut self, order: &ReplyOrder) -> bool {
        self.fragments_end = self.fragments_end.filter(|&end| !order.has_passed(end));
        order.has_early() || self.fragments_end.is_some() || !self.is_empty()
    }

    /// Holds a push back until every reply before `reply_index` has left. If there are too many,
    /// one push replaces them that says that every key may have changed.
    pub fn hold(&mut self, reply_index: u32, push: &[u8]) {
        self.len += push.len();
        self.pushes.push_back((reply_index, push.to_vec()));
        if self.len > HELD_LEN_MAX {
            let mut everything = Vec::new();
            write_everything(&mut everything);
            self.pushes.clear();
            self.len = everything.len();
            self.pushes.push_back((reply_index, everything));
        }
    }

    /// Appends the pushes that no longer wait. `has_passed` tells whether all replies before a reply
    /// index have been sent.
    pub fn release(&mut self, has_passed: impl Fn(u32) -> bool, out: &mut Vec<u8>) {
        while let Some((reply_index, _)) = self.pushes.front() {
            if !has_passed(*reply_index) {
                return;
            }
            if let Some((_, push)) = self.pushes.pop_front() {
                self.len -= push.len();
                out.extend_from_slice(&push);
            }
        }
    }
}

/// Returns what a link sends to its server, so that the keys of this client are tracked there.
/// `receiver` is the server's client that gets the invalidations instead.
pub fn announcement(tracking: &Tracking, receiver: Option<i64>) -> Announcement {
    let mut words: Vec<Vec<u8>> = vec![b"CLIENT".into(), b"TRACKING".into(), b"ON".into()];
    if let Some(id) = receiver {
        words.extend([b"REDIRECT".into(), id.to_string().into_bytes()]);
    }
    let Tracking { bcast, optin, optout, noloop, ref prefixes, .. } = *tracking;
    let options = [(bcast, "BCAST"), (optin, "OPTIN"), (optout, "OPTOUT"), (noloop, "NOLOOP")];
    words.extend(options.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| (*word).into()));
    // The empty one matches every key, and must not be sent together with others.
    if !prefixes.contains(&b""[..]) {
        for prefix in prefixes {
            words.extend([b"PREFIX".into(), prefix.clone()]);
        }
    }
    let mut requests = Vec::new();
    reply::array(&mut requests, words.len());
    words.iter().for_each(|word| reply::bulk(&mut requests, word));
    Announcement { requests, count: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Output;

    #[test]
    fn a_push_leaves_behind_what_came_before_it_and_in_order() {
        let mut held = Held::default();
        held.hold(3, b"a");
        held.hold(3, b"b");
        held.hold(5, b"c");
        let mut out = Vec::new();
        held.release(|reply_index| reply_index <= 2, &mut out);
        assert!(out.is_empty());
        held.release(|reply_index| reply_index <= 4, &mut out);
        assert_eq!(out, b"ab");
        held.release(|_| true, &mut out);
        assert_eq!(out, b"abc");
        assert!(held.is_empty() && held.len == 0);
    }

    #[test]
    fn a_push_waits_for_the_parts_of_a_reply_and_for_early_ones() {
        let (mut held, mut order, mut out) =
            (Held::default(), ReplyOrder::default(), Output::default());
        let first = order.reserve();
        assert!(!held.must_hold(&order), "its own reply is still to come");
        held.note_fragments(order.next_index());
        assert!(held.must_hold(&order));
        let second = order.reserve();
        order.complete(first, &mut out, |_| ());
        assert!(!held.must_hold(&order));
        let third = order.reserve();
        order.complete(third, &mut out, |_| ());
        assert!(held.must_hold(&order));
        order.complete(second, &mut out, |_| ());
        assert!(!held.must_hold(&order));
        held.hold(order.next_index(), b"a");
        assert!(held.must_hold(&order), "pushes stay in their order");
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut held = Held::default();
        for reply_index in 0..9 {
            held.hold(reply_index, &[b'x'; HELD_LEN_MAX / 8]);
        }
        let mut out = Vec::new();
        held.release(|reply_index| reply_index < 8, &mut out);
        assert!(out.is_empty(), "it waits as long as the last would have");
        held.release(|_| true, &mut out);
        assert_eq!(out, b">2\r\n$10\r\ninvalidate\r\n_\r\n");
    }

    #[test]
    fn servers_are_told_the_same_as_keyway() {
        let said = |tracking: &Tracking, receiver| {
            let Announcement { requests, count } = announcement(tracking, receiver);
            assert_eq!(count, 1);
            let lines = String::from_utf8(requests).unwrap();
            let words: Vec<_> = lines.split("\r\n").skip(2).step_by(2).collect();
            words.join(" ")
        };
        let mut tracking = Tracking { optin: true, noloop: true, ..Tracking::default() };
        assert_eq!(said(&tracking, None), "CLIENT TRACKING ON OPTIN NOLOOP");
        assert_eq!(said(&tracking, Some(7)), "CLIENT TRACKING ON REDIRECT 7 OPTIN NOLOOP");
        tracking = Tracking { bcast: true, ..Tracking::default() };
        tracking.prefixes = BTreeSet::from([b"b".to_vec(), b"a".to_vec()]);
        assert_eq!(said(&tracking, None), "CLIENT TRACKING ON BCAST PREFIX a PREFIX b");
        tracking.prefixes.insert(Vec::new());
        assert_eq!(said(&tracking, None), "CLIENT TRACKING ON BCAST");
    }
}
