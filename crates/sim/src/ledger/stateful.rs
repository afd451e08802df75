//! Transactions, and elements of lists.

use super::*;
use crate::network::{MILLI, SECOND};

/// How long a server may still serve a client that has left, and how long before its reply is read
/// a request to unblock may have taken effect.
const SLACK: Nanos = SECOND;

impl Ledger {
    /// Returns a number for a transaction that a client begins.
    pub fn new_group(&mut self) -> usize {
        self.groups.push(Group::default());
        self.groups.len() - 1
    }

    /// Notes that a write is asked inside a transaction.
    pub fn join_group(&mut self, write: u64, group: usize) {
        self.group_of.insert(write, group);
        self.groups[group].writes.push(write);
    }

    /// Notes that a client asks for the execution of its transaction.
    pub fn close_group(&mut self, group: usize) {
        self.groups[group].is_closed = true;
    }

    /// Notes that a server has executed a request. It contains all writes of a transaction in their
    /// order, or none.
    pub fn end_request(&mut self) {
        let recent = std::mem::take(&mut self.recent);
        let mut groups = recent.iter().filter_map(|write| self.group_of.get(write));
        let Some(&first) = groups.next() else { return };
        let group = &self.groups[first];
        if recent != group.writes || !group.is_closed {
            let text = format!(
                "a transaction of the writes {:?} was torn: {recent:?} were executed{}",
                group.writes,
                if group.is_closed { "" } else { ", without EXEC" }
            );
            self.fail(|| text);
        }
    }

    /// Returns the bytes of a new element for a list.
    pub fn new_element(&mut self, list: &[u8]) -> Vec<u8> {
        let (list, number) = (list.to_vec(), self.elements.len());
        let bytes = [&list[..], format!("#{number}").as_bytes()].concat();
        self.elements.push(Element {
            list,
            is_pushed: false,
            popped: None,
            is_settled: false,
            told: None,
        });
        bytes
    }

    fn element(&mut self, bytes: &[u8]) -> Option<&mut Element> {
        let text = String::from_utf8_lossy(bytes);
        let (list, number) = text.rsplit_once('#')?;
        let element = self.elements.get_mut(number.parse::<usize>().ok()?)?;
        (element.list == list.as_bytes()).then_some(element)
    }

    /// Notes that a server put an element into a list.
    pub fn on_pushed(&mut self, bytes: &[u8]) {
        let is_first = match self.element(bytes) {
            Some(element) => !std::mem::replace(&mut element.is_pushed, true),
            None => false,
        };
        if !is_first {
            self.fail(|| format!("the element {} was pushed twice, or is none", clip(bytes)));
        }
    }

    /// Notes that a server took an element out of a list, for a connection.
    pub fn on_popped(&mut self, bytes: &[u8], server: usize, now: Nanos, is_straggler: bool) {
        if let Some(element) = self.element(bytes) {
            element.popped = Some((server, now));
            element.is_settled = is_straggler;
        }
    }

    /// Notes that a client was given an element.
    ///
    /// # Errors
    /// Returns an error if the element was not taken out of one of these lists, or was given
    /// before.
    pub fn on_delivered(
        &mut self,
        pool: usize,
        lists: &[Vec<u8>],
        (list, bytes): (&[u8], &[u8]),
    ) -> Result<(), String> {
        self.deliveries += 1;
        // It is not visible when the embedded store takes an element out.
        let is_seen = self.pools[pool].is_some();
        let Some(element) = self.element(bytes) else { return Err("no element".into()) };
        let is_asked = element.list == list && lists.iter().any(|asked| asked == list);
        if !is_asked || (is_seen && element.popped.is_none()) {
            return Err("an element of another list, or one that was never popped".into());
        }
        match std::mem::replace(&mut element.is_settled, true) {
            true => Err("an element that was given to somebody before".into()),
            false => Ok(()),
        }
    }

    /// Notes that a client was told that its element is in a list. The client had asked at
    /// `asked_at`.
    pub fn on_push_told(&mut self, pool: usize, bytes: &[u8], asked_at: Nanos) {
        let is_store = self.pools[pool].is_none();
        if let Some(element) = self.element(bytes).filter(|_| is_store) {
            element.told = Some((pool, asked_at));
        }
    }

    /// Notes that a client was told that a shared counter, which it had watched, is raised to a
    /// value.
    ///
    /// # Errors
    /// Returns an error if another client has raised it to that value.
    pub fn on_raised(&mut self, pool: usize, name: &[u8], value: i64) -> Result<(), String> {
        // A counter that was evicted starts again.
        let is_store = self.pools[pool].is_none() && !self.may_all_go(pool);
        match is_store && !self.raised.insert((name.to_vec(), value)) {
            true => Err(format!("lost update: {} was raised to {value} before", clip(name))),
            false => Ok(()),
        }
    }

    /// Checks that each element that should be in a list of an embedded store is there, or has
    /// reached one client, or one that had left.
    pub fn check_store_lists(&mut self, pool: usize, lists: impl Fn(&[u8]) -> Vec<Vec<u8>>) {
        let mut found = BTreeMap::new();
        let wrong = self.elements.iter().enumerate().find_map(|(number, element)| {
            let (_, asked_at) = element.told.filter(|(told, _)| *told == pool)?;
            let bytes = [&element.list[..], format!("#{number}").as_bytes()].concat();
            let there = found.entry(&element.list).or_insert_with(|| lists(&element.list));
            let is_there = there.contains(&bytes);
            let is_meant = |(lists, _, until): &(Vec<Vec<u8>>, Nanos, Nanos)| {
                lists.contains(&element.list) && *until >= asked_at
            };
            let is_fine = match element.is_settled {
                true => !is_there,
                false => is_there || self.departures.iter().any(is_meant),
            };
            (!is_fine).then(|| (clip(&bytes), is_there))
        });
        if let Some((name, is_there)) = wrong {
            let how =
                if is_there { "was given to somebody and is still there" } else { "got lost" };
            self.fail(|| format!("the element {name} {how}"));
        }
    }

    /// Notes that a client leaves that has waited for elements since `from`.
    pub fn on_departure(&mut self, lists: &[Vec<u8>], from: Nanos, now: Nanos) {
        self.departures.push((lists.to_vec(), from, now + SLACK));
    }

    /// Checks that every element that was popped has reached its client, unless the client had left
    /// or the connection broke.
    pub fn check_elements(&mut self) {
        let lost = self.elements.iter().find_map(|element| {
            let (server, at) = element.popped.filter(|_| !element.is_settled)?;
            let is_meant = |(lists, from, until): &(Vec<Vec<u8>>, Nanos, Nanos)| {
                lists.contains(&element.list) && (*from..=*until).contains(&at)
            };
            let is_excused = self.departures.iter().any(is_meant)
                || self.is_excused(&[server], at.saturating_sub(SLACK), at + SLACK);
            (!is_excused).then(|| (clip(&element.list), server, at))
        });
        if let Some((list, server, at)) = lost {
            self.fail(|| {
                let at = at as f64 / SECOND as f64;
                format!("an element of {list}, popped by server {server} at {at:.6}, got lost")
            });
        }
    }

    /// Notes that a client asks to unblock another.
    pub fn on_unblock_asked(&mut self, id: i64) {
        self.unblocks.entry(id).or_default().0 += 1;
    }

    /// Notes that such a request is over: it was answered, or the client that asked has left.
    /// `was_blocked_since`: the client that asked at that time was told that the other was blocked.
    pub fn on_unblock_over(&mut self, id: i64, now: Nanos, was_blocked_since: Option<Nanos>) {
        let (under_way, last) = self.unblocks.entry(id).or_default();
        *under_way = under_way.saturating_sub(1);
        *last = now;
        if let Some(asked_at) = was_blocked_since {
            self.must_end.insert(id, (asked_at, now));
        }
    }

    /// Returns whether a request to unblock a client explains that its wait, begun at `since`, was
    /// ended.
    pub fn may_be_unblocked(&self, id: i64, since: Nanos) -> bool {
        self.unblocks
            .get(&id)
            .is_some_and(|&(under_way, last)| under_way > 0 || last + SLACK >= since)
    }

    /// Returns whether a client that has waited since `since` should have been unblocked by now.
    pub fn is_unblock_overdue(&self, id: i64, since: Nanos, now: Nanos) -> bool {
        self.must_end.get(&id).is_some_and(|&(asked_at, known_at)| {
            asked_at > since + 50 * MILLI && now > known_at + 3 * SECOND
        })
    }
}
