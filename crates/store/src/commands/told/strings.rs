//! Effects on strings, and on when keys expire.

use super::{FLAGS_COMMAND, Told};
use crate::entry::Entry;
use crate::items::Kind;
use crate::store::Store;

impl Store {
    /// Adds what a string is now to this thread's unit; a key that is gone or holds another
    /// type is told as gone.
    pub(crate) fn tell_text(&self, database: u32, entry: &mut Entry<'_>, key: &[u8]) {
        let item = entry.look().filter(|item| item.encoding().kind() == Kind::Text);
        self.effects.with_unit(|unit| {
            let Some(item) = item else { return unit.push(database, [b"DEL", key].into_iter()) };
            let meta = item.meta();
            let expiry = meta.expiry.map(|millis| millis.to_string());
            let mut words: [&[u8]; 5] = [b"SET", key, item.value(), b"PXAT", b""];
            if let Some(expiry) = &expiry {
                words[4] = expiry.as_bytes();
            }
            let len = if expiry.is_some() { words.len() } else { 3 };
            unit.push(database, words[..len].iter().copied());
            if meta.flags != 0 || meta.marks != 0 {
                let (flags, marks) = (meta.flags.to_string(), meta.marks.to_string());
                let words = [FLAGS_COMMAND, key, flags.as_bytes(), marks.as_bytes()];
                unit.push(database, words.into_iter());
            }
        });
    }

    /// Adds when a key expires to this thread's unit, or that it is gone.
    pub(crate) fn tell_expiry(&self, database: u32, entry: &mut Entry<'_>, key: &[u8]) {
        let expiry = entry.look().map(|item| item.expiry());
        self.effects.with_unit(|unit| match expiry {
            None => unit.push(database, [b"DEL", key].into_iter()),
            Some(None) => unit.push(database, [b"PERSIST", key].into_iter()),
            Some(Some(millis)) => {
                let millis = millis.to_string();
                unit.push(database, [b"PEXPIREAT", key, millis.as_bytes()].into_iter());
            }
        });
    }
}

impl Told<'_> {
    /// Tells what the string at a key is now.
    pub(super) fn tell_text(&self, key: &[u8]) {
        let (store, database) = (self.call.store, self.call.turn.database);
        self.with_key(key, |mut entry| store.tell_text(database, &mut entry, key));
    }

    /// Tells a SET, whose value is argument `index` unless it came apart.
    pub(super) fn tell_set(&self, index: usize) {
        let key = self.key();
        if self.is_streamed {
            return self.tell_text(key);
        }
        let expiry = self.with_key(key, |mut entry| entry.look().map(|item| item.expiry()));
        match expiry {
            None => self.tell_words(&[b"DEL", key]),
            Some(None) => self.tell_words(&[b"SET", key, self.arg(index)]),
            Some(Some(millis)) => {
                let millis = millis.to_string();
                self.tell_words(&[b"SET", key, self.arg(index), b"PXAT", millis.as_bytes()]);
            }
        }
    }

    /// Tells when the key expires now.
    pub(super) fn tell_expiry(&self) {
        let (store, database, key) = (self.call.store, self.call.turn.database, self.key());
        self.with_key(key, |mut entry| store.tell_expiry(database, &mut entry, key));
    }

    /// Tells an MSETNX that was done.
    pub(super) fn tell_mset(&self) {
        let args = self.call.args;
        self.push((0..args.len()).map(move |index| match index {
            0 => &b"MSET"[..],
            _ => args.get(index).unwrap_or_default(),
        }));
    }

    /// Tells a RESTORE with the time of its key's end.
    pub(super) fn tell_restore(&self) {
        let key = self.key();
        let expiry = self.with_key(key, |mut entry| entry.look().map(|item| item.expiry()));
        let Some(expiry) = expiry else { return self.tell_words(&[b"DEL", key]) };
        let millis = expiry.unwrap_or(0).to_string();
        let words = [b"RESTORE", key, millis.as_bytes(), self.arg(3), b"REPLACE", b"ABSTTL"];
        self.push(words.into_iter());
    }
}
