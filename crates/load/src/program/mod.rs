//! A workload in the form in which it is sent: for each command, the bytes that never change and
//! the pieces between them. Rendering appends to a buffer. It allocates nothing once the buffer is
//! large enough.

mod compile;
mod packet;
mod template;
mod write;
mod ycsb;

pub(crate) use compile::compile;
pub(crate) use template::Template;

use crate::draw::Draw;
use crate::random::Random;
use crate::verify::{Check, Ledger};
use crate::workload::{KeyForm, Keys, Pattern, Piece, Sizes};
use compile::words_step;
use keyway_memcache::Expect;
use std::collections::VecDeque;
use write::{push_bulk_head, push_digits, push_number};

/// Number of offsets in the random bytes at which values begin.
const DATA_PLACES: u64 = 4096;

/// A workload in the form in which it is sent.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) ops: Vec<Op>,
    /// The end of each command's share of all weights.
    ends: Vec<u64>,
    keys: Keys,
    /// Number of digits of every key, if all keys have the same number.
    digits: Option<u8>,
    write_pattern: Pattern,
    read_pattern: Pattern,
    sizes: Sizes,
    sizes_sum: u64,
    expiry: Option<(u32, u32)>,
    data: Vec<u8>,
    pub(crate) ledger: Option<Ledger>,
}

/// A command in the form in which it is sent. A step is sent when the one before it is answered.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
    /// Number of requests of one step that are sent for the command, each with its own key.
    pub(crate) pieces: u32,
    pub(crate) is_write: bool,
    /// True if the command uses a new key each time, behind all others.
    pub(crate) inserts: bool,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Step {
    parts: Vec<Part>,
    bytes: Vec<u8>,
    /// The end of a reply of memcached.
    pub(crate) expect: Expect,
    pub(crate) judge: Judge,
    /// Number of keys that are verified.
    pub(crate) verified_keys: u32,
    pub(crate) stamps: Stamps,
    /// The word that decides the server of a cluster.
    route: Vec<Piece>,
    /// The whole request in one piece, if that is possible.
    pub(crate) template: Option<Template>,
}

/// The part of a request that is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamps {
    None,
    Read,
    Write,
}

/// What a reply tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judge {
    /// One value, a miss, or an acknowledgement.
    One,
    /// This number of values.
    Many(u32),
    /// A record. An empty one is a miss.
    Record,
    /// The keys of the records that are read next.
    Scan,
}

/// A piece of a request.
#[derive(Debug)]
enum Part {
    /// A range of the step's own bytes.
    Bytes {
        from: u32,
        to: u32,
    },
    Key,
    /// The number of a key, with as many digits as every key has.
    KeyDigits {
        digits: u8,
    },
    KeyBulk,
    /// A value of this length.
    Value {
        len: usize,
    },
    /// A value and its length in RESP.
    ValueBulk,
    /// A value and its length in memcached's text protocol.
    ValueText,
    /// A value and its length in memcached's meta commands, with an expiry.
    ValueMeta {
        ttl: u32,
    },
    /// A record of YCSB in memcached.
    Record {
        field_len: u32,
    },
    Ttl,
    TtlBulk,
    Bulk(Vec<Piece>),
    Plain(Vec<Piece>),
    /// The pieces from here on use the next key.
    NextKey,
    Packet(packet::Packet),
}

/// The state of one request while it is rendered.
pub(crate) struct Cursor<'a> {
    pub(crate) key: u64,
    pub(crate) random: Random,
    /// The number of the client and the number of clients. They decide the keys that the client may
    /// write.
    pub(crate) owner: (u64, u64),
    /// The draw that decides the keys behind the first one.
    pub(crate) draw: &'a Draw,
    pub(crate) checks: &'a mut VecDeque<Check>,
    /// The versions of a request that is sent again.
    pub(crate) again: &'a [Check],
}

impl Program {
    /// Returns the command of the next request.
    #[inline]
    pub(crate) fn next_op(&self, random: &mut Random) -> u16 {
        if self.ends.len() == 1 {
            return 0;
        }
        let at = random.below(*self.ends.last().unwrap_or(&1));
        self.ends.partition_point(|&end| end <= at) as u16
    }

    /// Returns the draws of the keys that `client` of `clients` reads and writes.
    pub(crate) fn draws(&self, client: u64, clients: u64) -> (Draw, Draw) {
        let draw = |pattern| Draw::new(pattern, self.keys.count, client, clients);
        (draw(self.read_pattern), draw(self.write_pattern))
    }

    /// Returns the number of keys at the start.
    pub(crate) fn key_count(&self) -> u64 {
        self.keys.count
    }

    /// Returns the key near `key` that `owner` may write. Without verification this is `key`.
    #[inline]
    pub(crate) fn own(&self, key: u64, owner: (u64, u64)) -> u64 {
        if self.ledger.is_none() {
            return key;
        }
        let (client, clients) = owner;
        let key = key - key % clients + client;
        if key < self.keys.count { key } else { key.saturating_sub(clients) }
    }

    /// Appends a request.
    #[inline]
    pub(crate) fn render(&self, step: &Step, cursor: &mut Cursor<'_>, out: &mut Vec<u8>) {
        if step.stamps == Stamps::Read {
            self.note_read(cursor);
        }
        for part in &step.parts {
            match part {
                Part::Bytes { from, to } => {
                    out.extend_from_slice(&step.bytes[*from as usize..*to as usize]);
                }
                Part::KeyDigits { digits } => {
                    push_digits(self.keys.first + cursor.key, *digits, out);
                }
                Part::Value { len } => self.push_value(*len, cursor, out),
                Part::Key => self.push_key(cursor.key, out),
                Part::KeyBulk => {
                    push_bulk_head(self.key_len(cursor.key), out);
                    self.push_key(cursor.key, out);
                    out.extend_from_slice(b"\r\n");
                }
                Part::ValueBulk => {
                    let len = self.value_len(&mut cursor.random);
                    push_bulk_head(len, out);
                    self.push_value(len, cursor, out);
                    out.extend_from_slice(b"\r\n");
                }
                Part::ValueText => {
                    let len = self.value_len(&mut cursor.random);
                    push_number(len as u64, out);
                    out.extend_from_slice(b"\r\n");
                    self.push_value(len, cursor, out);
                    out.extend_from_slice(b"\r\n");
                }
                Part::NextKey => {
                    cursor.key = cursor.draw.beside(cursor.key, &mut cursor.random);
                    match step.stamps {
                        Stamps::Read => self.note_read(cursor),
                        Stamps::Write => cursor.key = self.own(cursor.key, cursor.owner),
                        Stamps::None => {}
                    }
                }
                other => self.render_seldom(other, cursor, out),
            }
        }
    }

    fn render_seldom(&self, part: &Part, cursor: &mut Cursor<'_>, out: &mut Vec<u8>) {
        match part {
            Part::Ttl => push_number(self.ttl(&mut cursor.random), out),
            Part::TtlBulk => {
                let ttl = self.ttl(&mut cursor.random);
                push_bulk_head(write::digits_of(ttl), out);
                push_number(ttl, out);
                out.extend_from_slice(b"\r\n");
            }
            Part::Bulk(pieces) => {
                // Its length is known when it is written: it moves behind its head then.
                let start = out.len();
                self.push_pieces(pieces, cursor, out);
                let len = out.len() - start;
                push_bulk_head(len, out);
                let head = out.len() - start - len;
                out[start..].rotate_right(head);
                out.extend_from_slice(b"\r\n");
            }
            Part::ValueMeta { ttl } => {
                let len = self.value_len(&mut cursor.random);
                push_number(len as u64, out);
                out.extend_from_slice(b" T");
                push_number(u64::from(*ttl), out);
                out.extend_from_slice(b"\r\n");
                self.push_value(len, cursor, out);
                out.extend_from_slice(b"\r\n");
            }
            Part::Record { field_len } => self.push_record(*field_len, cursor, out),
            Part::Plain(pieces) => self.push_pieces(pieces, cursor, out),
            Part::Packet(packet) => self.push_packet(packet, cursor, out),
            _ => unreachable!("the others are rendered at once"),
        }
    }

    fn push_pieces(&self, pieces: &[Piece], cursor: &mut Cursor<'_>, out: &mut Vec<u8>) {
        for piece in pieces {
            match piece {
                Piece::Bytes(bytes) => out.extend_from_slice(bytes),
                Piece::Key => self.push_key(cursor.key, out),
                Piece::Data => {
                    let len = self.value_len(&mut cursor.random);
                    self.push_value(len, cursor, out);
                }
                Piece::Rand => push_number(cursor.random.below(self.keys.count), out),
                Piece::RandInt => push_digits(cursor.random.below(self.keys.count), 12, out),
                Piece::Ttl => push_number(self.ttl(&mut cursor.random), out),
                Piece::YcsbField => {
                    out.extend_from_slice(b"field");
                    push_number(cursor.random.below(crate::workload::FIELDS.into()), out);
                }
                Piece::YcsbScore => self.push_score(cursor.key, out),
                Piece::YcsbScanLen => push_number(1 + cursor.random.below(100), out),
            }
        }
    }

    /// Appends the score of a key in YCSB's index: Java's hash of its text.
    fn push_score(&self, key: u64, out: &mut Vec<u8>) {
        let start = out.len();
        self.push_key(key, out);
        let hash = out[start..]
            .iter()
            .fold(0i32, |hash, &byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)));
        out.truncate(start);
        if hash < 0 {
            out.push(b'-');
        }
        push_number(u64::from(hash.unsigned_abs()), out);
    }

    /// Returns the slot of a request in a cluster. `None` means that any server can answer.
    pub(crate) fn slot(&self, step: &Step, key: u64, scratch: &mut Vec<u8>) -> Option<u16> {
        if step.route.is_empty() {
            return None;
        }
        scratch.clear();
        for piece in &step.route {
            match piece {
                Piece::Bytes(bytes) => scratch.extend_from_slice(bytes),
                // The compiler lets nothing else in.
                _ => self.push_key(key, scratch),
            }
        }
        Some(keyway_topology::key_slot(scratch))
    }

    /// Appends a key.
    #[inline]
    pub(crate) fn push_key(&self, key: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(self.keys.prefix.as_bytes());
        match self.keys.form {
            KeyForm::Digits(0) => push_number(self.keys.first + key, out),
            KeyForm::Digits(digits) => push_digits(self.keys.first + key, digits, out),
            KeyForm::Ycsb => push_number(crate::draw::fnv64(self.keys.first + key), out),
        }
    }

    #[inline]
    fn key_len(&self, key: u64) -> usize {
        let digits = match (self.digits, self.keys.form) {
            (Some(digits), _) => usize::from(digits),
            (None, KeyForm::Ycsb) => write::digits_of(crate::draw::fnv64(self.keys.first + key)),
            (None, KeyForm::Digits(least)) => {
                write::digits_of(self.keys.first + key).max(usize::from(least))
            }
        };
        self.keys.prefix.len() + digits
    }

    #[inline]
    fn value_len(&self, random: &mut Random) -> usize {
        match &self.sizes {
            Sizes::Fixed(len) => *len as usize,
            Sizes::Range(from, to) => {
                *from as usize + random.below(u64::from(to - from) + 1) as usize
            }
            Sizes::Weighted(list) => {
                let mut at = random.below(self.sizes_sum);
                for (len, weight) in list {
                    match at.checked_sub(u64::from(*weight)) {
                        Some(rest) => at = rest,
                        None => return *len as usize,
                    }
                }
                0
            }
        }
    }

    #[inline]
    fn push_value(&self, len: usize, cursor: &mut Cursor<'_>, out: &mut Vec<u8>) {
        let place = cursor.random.below(DATA_PLACES) as usize;
        let start = out.len();
        out.extend_from_slice(&self.data[place..place + len]);
        if let Some(ledger) = &self.ledger {
            let version = match cursor.again.split_first() {
                Some((check, rest)) => {
                    cursor.again = rest;
                    check.version
                }
                None => ledger.issue(cursor.key),
            };
            cursor.checks.push_back(Check { key: cursor.key, version });
            ledger.stamp(&mut out[start..], cursor.key, version);
        }
    }

    fn note_read(&self, cursor: &mut Cursor<'_>) {
        let Some(ledger) = &self.ledger else { return };
        let version = match cursor.again.split_first() {
            Some((check, rest)) => {
                cursor.again = rest;
                check.version
            }
            None => ledger.floor(cursor.key),
        };
        cursor.checks.push_back(Check { key: cursor.key, version });
    }

    fn ttl(&self, random: &mut Random) -> u64 {
        let (from, to) = self.expiry.unwrap_or((60, 60));
        u64::from(from) + random.below(u64::from(to - from) + 1)
    }
}
