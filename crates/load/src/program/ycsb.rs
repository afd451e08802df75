//! Records of YCSB: hashes of Redis as its own client has them, and whole values of memcached.

use super::{Cursor, Judge, Part, Program, Step, words_step};
use crate::workload::{FIELDS, Piece, Word};

/// What a field's text stands between in a record of memcached, beside its number.
const HEAD: &[u8] = b"\"field";
const MIDDLE: &[u8] = b"\":\"";

pub(super) fn read() -> Step {
    words_step(&[Word::text("HGETALL"), Word::of(Piece::Key)], Judge::Record)
}

pub(super) fn update() -> Step {
    let (text, of) = (Word::text, Word::of);
    let words = [text("HMSET"), of(Piece::Key), of(Piece::YcsbField), of(Piece::Data)];
    words_step(&words, Judge::One)
}

pub(super) fn write() -> Step {
    let mut words = vec![Word::text("HMSET"), Word::of(Piece::Key)];
    for field in 0..FIELDS {
        words.extend([Word::text(&format!("field{field}")), Word::of(Piece::Data)]);
    }
    words_step(&words, Judge::One)
}

pub(super) fn index() -> Step {
    let (text, of) = (Word::text, Word::of);
    let words = [text("ZADD"), text("_indices"), of(Piece::YcsbScore), of(Piece::Key)];
    let mut step = words_step(&words, Judge::One);
    // Its key is that of the index, not the record's.
    step.route = vec![Piece::Bytes(b"_indices".to_vec())];
    step
}

pub(super) fn scan() -> Step {
    let (text, of) = (Word::text, Word::of);
    let words = [
        text("ZRANGEBYSCORE"),
        text("_indices"),
        of(Piece::YcsbScore),
        text("+inf"),
        text("LIMIT"),
        text("0"),
        of(Piece::YcsbScanLen),
    ];
    words_step(&words, Judge::Scan)
}

/// Writes a whole record in memcached's text: what stands before its length, and the record.
pub(super) fn text_write(before: &[u8], behind_key: &[u8], field_len: u32) -> Step {
    let mut step = Step::new(Judge::One);
    let len = record_len(field_len);
    step.push(before).part(Part::Key).push(behind_key).push(format!("{len}\r\n").as_bytes());
    step.part(Part::Record { field_len }).push(b"\r\n");
    step
}

/// Bytes of a record in memcached: JSON with a text for each field, as YCSB's client has it.
pub(super) fn record_len(field_len: u32) -> usize {
    let field = HEAD.len() + 1 + MIDDLE.len() + field_len as usize + 1;
    // Braces, and a comma between any two.
    2 + field * FIELDS as usize + (FIELDS as usize - 1)
}

impl Program {
    pub(super) fn push_record(&self, field_len: u32, cursor: &mut Cursor<'_>, out: &mut Vec<u8>) {
        out.push(b'{');
        for field in 0..FIELDS as u8 {
            if field > 0 {
                out.push(b',');
            }
            out.extend_from_slice(HEAD);
            out.push(b'0' + field);
            out.extend_from_slice(MIDDLE);
            self.push_value(field_len as usize, cursor, out);
            out.push(b'"');
        }
        out.push(b'}');
    }
}
