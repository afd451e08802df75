//! Effects on streams. An entry is told with its id, and what a consumer got by the
//! deliveries as they are now: XCLAIM with the time and the count of each.

use super::Told;
use super::pieces::{Piece, Pieces};
use crate::collections::stream::Stream;
use crate::collections::stream::id::{ID_LEN_MAX, Id};

/// The state of one delivery, as an effect tells it.
enum Pending {
    Acknowledged,
    Delivered { consumer: Box<[u8]>, millis: u64, count: u64 },
}

impl<'t> Told<'t> {
    /// Tells XADD: the entry with its id, and what was trimmed by the length that is left.
    pub(super) fn tell_xadd(&self) {
        let mut at = 2;
        let mut has_trimmed = false;
        while at + 1 < self.call.args.len() {
            if self.call.is(at, "nomkstream") {
                at += 1;
            } else if self.call.is(at, "maxlen") || self.call.is(at, "minid") {
                has_trimmed = true;
                at += 1;
                at += usize::from(matches!(self.arg(at), b"=" | b"~"));
                at += 1;
            } else if self.call.is(at, "limit") {
                at += 2;
            } else {
                break;
            }
        }
        let Some(id) = Pieces(self.reply).text() else { return };
        let mut words: Vec<&[u8]> = vec![b"XADD", self.key(), id];
        words.extend(self.call.args_from(at + 1, 1));
        self.tell_words(&words);
        if has_trimmed {
            self.tell_length(self.key());
        }
    }

    /// Tells how long a stream was trimmed to.
    pub(super) fn tell_length(&self, key: &[u8]) {
        let len = self.with_stream(key, |stream| stream.log().len().to_string());
        if let Some(len) = len {
            self.tell_words(&[b"XTRIM", key, b"MAXLEN", b"=", len.as_bytes()]);
        }
    }

    fn with_stream<R>(&self, key: &[u8], work: impl FnOnce(&Stream) -> R) -> Option<R> {
        self.with_key(key, |mut entry| {
            let stream: Option<&Stream> = entry.look_at().ok().flatten();
            stream.map(work)
        })
    }

    /// Tells XREADGROUP: of each stream in the reply, what the consumer got.
    pub(super) fn tell_xreadgroup(&self, is_changed: bool) {
        let at = (1..self.call.args.len()).find(|index| self.call.is(*index, "group"));
        let Some(at) = at else { return };
        let (group, consumer) = (self.arg(at + 1), self.arg(at + 2));
        let mut pieces = Pieces(self.reply);
        let Some(Piece::Many(_)) = pieces.next() else { return };
        while let Some(piece) = pieces.next() {
            // RESP2 has a pair for each stream, RESP3 one map of all.
            let key = match piece {
                Piece::Text(key) => Some(key),
                _ => pieces.text(),
            };
            let (Some(key), Some(count)) = (key, pieces.many()) else { return };
            let ids = (0..count).map_while(|_| entry_id(&mut pieces)).flatten().collect();
            if is_changed {
                self.tell_words(&[b"XGROUP", b"CREATECONSUMER", key, group, consumer]);
            }
            self.tell_deliveries(key, group, ids);
            self.tell_position(key, group);
        }
    }

    /// Tells XCLAIM: of all ids that it names, what became of them.
    pub(super) fn tell_xclaim(&self, is_changed: bool) {
        if self.reply.first() == Some(&b'-') {
            return;
        }
        let (key, group) = (self.key(), self.arg(2));
        if is_changed {
            self.tell_words(&[b"XGROUP", b"CREATECONSUMER", key, group, self.arg(3)]);
        }
        let ids = self.call.args_from(5, 1).map_while(|text| Id::parse(text, 0)).collect();
        self.tell_deliveries(key, group, ids);
        if self.call.args.from(5).any(|word| word.eq_ignore_ascii_case(b"lastid")) {
            self.tell_position(key, group);
        }
    }

    /// Tells XAUTOCLAIM: what it claimed, and what it found deleted.
    pub(super) fn tell_xautoclaim(&self, is_changed: bool) {
        let (key, group) = (self.key(), self.arg(2));
        if is_changed {
            self.tell_words(&[b"XGROUP", b"CREATECONSUMER", key, group, self.arg(3)]);
        }
        let mut pieces = Pieces(self.reply);
        let (Some(_), Some(_), Some(count)) = (pieces.many(), pieces.text(), pieces.many()) else {
            return;
        };
        let mut ids: Vec<Id> = (0..count).map_while(|_| entry_id(&mut pieces)).flatten().collect();
        let gone = pieces.many().unwrap_or(0);
        ids.extend((0..gone).map_while(|_| Id::parse(pieces.text()?, 0)));
        self.tell_deliveries(key, group, ids);
    }

    /// Tells what deliveries of a group are now.
    fn tell_deliveries(&self, key: &[u8], group: &[u8], ids: Vec<Id>) {
        let mut last = Id::ZERO;
        let mut told: Vec<(Id, Pending)> = Vec::with_capacity(ids.len());
        self.with_stream(key, |stream| {
            let Some(group) = stream.group(group) else { return };
            last = group.last;
            told.extend(ids.into_iter().map(|id| {
                let delivery = group.delivery(id);
                let consumer = delivery.and_then(|delivery| group.consumer(delivery.consumer));
                (
                    id,
                    match (delivery, consumer) {
                        (Some(delivery), Some(consumer)) => Pending::Delivered {
                            consumer: consumer.name.clone(),
                            millis: delivery.millis,
                            count: delivery.count,
                        },
                        _ => Pending::Acknowledged,
                    },
                )
            }));
        });
        let mut last_buffer = [0; ID_LEN_MAX];
        let last = last.format(&mut last_buffer);
        for (id, pending) in told {
            let mut buffer = [0; ID_LEN_MAX];
            let id = id.format(&mut buffer);
            match pending {
                Pending::Acknowledged => self.tell_words(&[b"XACK", key, group, id]),
                Pending::Delivered { consumer, millis, count } => {
                    let (millis, count) = (millis.to_string(), count.to_string());
                    self.tell_words(&[
                        b"XCLAIM",
                        key,
                        group,
                        &consumer,
                        b"0",
                        id,
                        b"TIME",
                        millis.as_bytes(),
                        b"RETRYCOUNT",
                        count.as_bytes(),
                        b"FORCE",
                        b"JUSTID",
                        b"LASTID",
                        last,
                    ]);
                }
            }
        }
    }

    /// Tells how far a group has read.
    fn tell_position(&self, key: &[u8], group: &[u8]) {
        let position = self.with_stream(key, |stream| {
            stream.group(group).map(|group| (group.last, group.entries_read.to_string()))
        });
        let Some((last, read)) = position.flatten() else { return };
        let mut buffer = [0; ID_LEN_MAX];
        let last = last.format(&mut buffer);
        self.tell_words(&[b"XGROUP", b"SETID", key, group, last, b"ENTRIESREAD", read.as_bytes()]);
    }
}

/// The id of an entry, or of one that is told by its id alone: `None` at the end. An entry
/// that is deleted was not delivered again.
fn entry_id(pieces: &mut Pieces<'_>) -> Option<Option<Id>> {
    match pieces.next()? {
        Piece::Text(id) => Some(Id::parse(id, 0)),
        Piece::Many(_) => {
            let id = pieces.text()?;
            let is_there = matches!(pieces.skip()?, Piece::Many(_));
            Some(Id::parse(id, 0).filter(|_| is_there))
        }
        _ => Some(None),
    }
}
