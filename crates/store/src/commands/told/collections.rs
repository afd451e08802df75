//! Effects on lists, sets and sorted sets.

use super::Told;
use super::pieces::{Piece, Pieces};
use crate::collections::list::List;
use crate::collections::score;
use crate::collections::sorted::Sorted;
use crate::commands::sort;

/// Elements that one command of an effect brings. More make longer commands, which others
/// have to hold whole.
const ELEMENTS_MAX: usize = 512;

impl Told<'_> {
    /// Tells SPOP by its members.
    pub(super) fn tell_spop(&self) {
        let key = self.key();
        if self.tell_gone(key) {
            return;
        }
        let mut pieces = Pieces(self.reply);
        let mut members = Vec::new();
        while let Some(piece) = pieces.next() {
            if let Piece::Text(member) = piece {
                members.push(member);
            }
        }
        for some in members.chunks(ELEMENTS_MAX) {
            let words: Vec<&[u8]> =
                [b"SREM", key].into_iter().chain(some.iter().copied()).collect();
            self.tell_words(&words);
        }
    }

    /// Tells a pop of one element, whose reply begins with its key.
    pub(super) fn tell_pop(&self, name: &[u8]) {
        let mut pieces = Pieces(self.reply);
        if let (Some(_), Some(key)) = (pieces.many(), pieces.text()) {
            self.tell_words(&[name, key]);
        }
    }

    /// Tells LMPOP, ZMPOP and the like, which say how many keys they have in argument
    /// `index`: by the key and the number of elements in the reply.
    pub(super) fn tell_multi_pop(&self, index: usize) {
        let mut pieces = Pieces(self.reply);
        let (Some(_), Some(key), Some(count)) = (pieces.many(), pieces.text(), pieces.many())
        else {
            return;
        };
        let keys = usize::try_from(self.call.integer(index).unwrap_or(0)).unwrap_or(0);
        let at = index + 1 + keys;
        let name: &[u8] = match () {
            () if self.call.is(at, "left") => b"LPOP",
            () if self.call.is(at, "right") => b"RPOP",
            () if self.call.is(at, "min") => b"ZPOPMIN",
            () => b"ZPOPMAX",
        };
        self.tell_words(&[name, key, count.to_string().as_bytes()]);
    }

    /// Tells SORT with STORE by the list that it made.
    pub(super) fn tell_sort(&self) {
        let Some(target) = sort::target_of(self.call) else { return };
        self.tell_words(&[b"DEL", target]);
        self.with_key(target, |mut entry| {
            let Ok(Some(list)) = entry.look_at::<List<'_>>() else { return };
            let mut elements = list.from(0).peekable();
            while elements.peek().is_some() {
                let mut words: Vec<&[u8]> = vec![b"RPUSH", target];
                words.extend(elements.by_ref().take(ELEMENTS_MAX));
                self.tell_words(&words);
            }
        });
    }

    /// The key to which GEOSEARCHSTORE, or GEORADIUS with STORE, writes.
    fn found_target(&self) -> Option<&[u8]> {
        use keyway_command::Verb::{Georadius, Geosearchstore};
        let options_at = match self.verb {
            Geosearchstore => return Some(self.key()),
            Georadius => 6,
            _ => 5,
        };
        let is_option =
            |index: &usize| self.call.is(*index, "store") || self.call.is(*index, "storedist");
        let at = (options_at..self.call.args.len()).rev().find(is_option)?;
        self.call.args.get(at + 1)
    }

    /// Tells a search of positions by the sorted set that it made.
    pub(super) fn tell_found(&self) {
        let Some(target) = self.found_target() else { return };
        self.tell_words(&[b"DEL", target]);
        let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        self.with_key(target, |mut entry| {
            let Ok(Some(sorted)) = entry.look_at::<Sorted<'_>>() else { return };
            sorted.visit(|member, score| {
                pairs.push((score::with_all_digits(score, <[u8]>::to_vec), member.to_vec()));
            });
        });
        for some in pairs.chunks(ELEMENTS_MAX) {
            let mut words: Vec<&[u8]> = vec![b"ZADD", target];
            words.extend(some.iter().flat_map(|(score, member)| [&score[..], &member[..]]));
            self.tell_words(&words);
        }
    }
}
