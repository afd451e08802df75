//! Effects on fields of hashes. Fields that have expired may still be there and hidden,
//! here or at the other side, so no effect may depend on whether a field is there.

use super::Told;
use super::pieces::{Piece, Pieces};
use crate::collections::hash::Hash;
use keyway_command::Verb;

/// The replies of HEXPIRE and HPERSIST for a field.
const DONE: Piece<'_> = Piece::Number(1);
const DELETED: Piece<'_> = Piece::Number(2);

/// The state of a field after the command.
enum State {
    Gone,
    /// With its value, and when it expires.
    There(Vec<u8>, Option<u64>),
}

impl<'t> Told<'t> {
    /// Where the fields that FIELDS names begin.
    fn first_field(&self) -> usize {
        let args = self.call.args;
        let at = (2..args.len()).find(|index| self.call.is(*index, "fields"));
        at.map_or(args.len(), |at| at + 2)
    }

    fn field_state(&self, field: &[u8]) -> State {
        self.with_key(self.key(), |mut entry| {
            let hash: Option<Hash<'_>> = entry.look_at().ok().flatten();
            match hash.and_then(|hash| hash.get_timed(field)) {
                None => State::Gone,
                Some((value, time)) => State::There(value.to_vec(), time),
            }
        })
    }

    /// Tells a command about some fields, if there are any.
    fn tell_fields(&self, head: &[&[u8]], fields: &[&[u8]]) {
        if !fields.is_empty() {
            let words: Vec<&[u8]> = head.iter().chain(fields).copied().collect();
            self.tell_words(&words);
        }
    }

    fn tell_deleted(&self, fields: &[&[u8]]) {
        self.tell_fields(&[b"HDEL", self.key()], fields);
    }

    /// Tells a command with FIELDS in front of the fields.
    fn tell_named(&self, head: &[&[u8]], fields: &[&[u8]]) {
        let count = fields.len().to_string();
        let head: Vec<&[u8]> =
            head.iter().copied().chain([&b"FIELDS"[..], count.as_bytes()]).collect();
        self.tell_fields(&head, fields);
    }

    /// Tells HEXPIRE and its kin, and HPERSIST: of the fields for which they were done.
    pub(super) fn tell_times_set(&self) {
        let mut pieces = Pieces(self.reply);
        let _count = pieces.many();
        let (mut done, mut deleted) = (Vec::new(), Vec::new());
        for field in self.call.args_from(self.first_field(), 1) {
            match pieces.next() {
                Some(DONE) => done.push(field),
                Some(DELETED) => deleted.push(field),
                _ => {}
            }
        }
        self.tell_deleted(&deleted);
        let Some(first) = done.first() else { return };
        if self.verb == Verb::Hpersist {
            return self.tell_named(&[b"HPERSIST", self.key()], &done);
        }
        if let State::There(_, Some(time)) = self.field_state(first) {
            let time = time.to_string();
            self.tell_named(&[b"HPEXPIREAT", self.key(), time.as_bytes()], &done);
        }
    }

    /// Tells HGETDEL.
    pub(super) fn tell_fields_gone(&self) {
        let fields: Vec<&[u8]> = self.call.args_from(self.first_field(), 1).collect();
        self.tell_deleted(&fields);
    }

    /// Tells HGETEX: when its fields expire now.
    pub(super) fn tell_times(&self) {
        let mut deleted = Vec::new();
        for field in self.call.args_from(self.first_field(), 1) {
            match self.field_state(field) {
                State::Gone => deleted.push(field),
                State::There(_, None) => self.tell_named(&[b"HPERSIST", self.key()], &[field]),
                State::There(_, Some(time)) => {
                    let time = time.to_string();
                    self.tell_named(&[b"HPEXPIREAT", self.key(), time.as_bytes()], &[field]);
                }
            }
        }
        self.tell_deleted(&deleted);
    }

    /// Tells HSETEX: its fields as they are now.
    pub(super) fn tell_hsetex(&self) {
        self.call.args_from(self.first_field(), 2).for_each(|field| self.tell_field(field));
    }

    /// Tells what a field is now.
    fn tell_field(&self, field: &[u8]) {
        let key = self.key();
        match self.field_state(field) {
            State::Gone => self.tell_deleted(&[field]),
            State::There(value, None) => self.tell_words(&[b"HSET", key, field, &value]),
            State::There(value, Some(time)) => {
                let time = time.to_string();
                let head: [&[u8]; 6] = [b"HSETEX", key, b"PXAT", time.as_bytes(), b"FIELDS", b"1"];
                self.tell_fields(&head, &[field, &value]);
            }
        }
    }

    /// Tells HINCRBY, or HINCRBYFLOAT, whose result is a matter of rounding.
    pub(super) fn tell_increment(&self, is_integer: bool) {
        let is_timed = || {
            self.with_key(self.key(), |mut entry| {
                entry.look().is_some_and(|item| item.encoding().is_timed())
            })
        };
        if is_integer && !is_timed() { self.tell_itself() } else { self.tell_field(self.arg(2)) }
    }
}
