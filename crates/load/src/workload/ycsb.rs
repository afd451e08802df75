//! YCSB's core workloads. On Redis with the layout of its own client: a record is a hash of ten
//! fields, and a sorted set is the index of all. On memcached a record is one value of ten fields as
//! JSON, an update writes it anew as a whole, and there is nothing to scan.

use super::{Command, CommandKind, KeyForm, Keys, Pattern, Sizes, Workload};
use crate::error::Error;

/// Fields of a record.
pub const FIELDS: u32 = 10;

/// Bytes of a field.
const FIELD_LEN: u32 = 100;

/// Workload `letter`, `a` to `f`, over so many records.
///
/// - A: half reads, half updates; B: 95 reads, 5 updates; C: reads; F: half reads, half reads with
///   a write behind. Records by zipf.
/// - D: 95 reads of what is newest, 5 inserts.
/// - E: 95 scans of up to a hundred records, 5 inserts.
///
/// # Errors
/// [`Error::Asked`] for another letter.
pub fn ycsb(letter: char, records: u64) -> Result<Workload, Error> {
    use CommandKind as Kind;
    let parts: &[(&str, Kind, u32)] = match letter.to_ascii_lowercase() {
        'a' => &[("read", Kind::YcsbRead, 50), ("update", Kind::YcsbUpdate, 50)],
        'b' => &[("read", Kind::YcsbRead, 95), ("update", Kind::YcsbUpdate, 5)],
        'c' => &[("read", Kind::YcsbRead, 1)],
        'd' => &[("read", Kind::YcsbRead, 95), ("insert", Kind::YcsbInsert, 5)],
        'e' => &[("scan", Kind::YcsbScan, 95), ("insert", Kind::YcsbInsert, 5)],
        'f' => &[("read", Kind::YcsbRead, 50), ("read_modify_write", Kind::YcsbModify, 50)],
        other => return Err(Error::asked(format!("YCSB has no workload {other:?}: a to f are"))),
    };
    let command = |(name, kind, weight): &(&str, Kind, u32)| {
        (Command { name: (*name).to_owned(), kind: kind.clone() }, *weight)
    };
    let name = format!("ycsb-{}", letter.to_ascii_lowercase());
    let mut workload = Workload::new(&name, parts.iter().map(command).collect());
    workload.keys =
        Keys { prefix: "user".to_owned(), first: 0, count: records, form: KeyForm::Ycsb };
    let is_latest = letter.eq_ignore_ascii_case(&'d');
    workload.read_pattern = if is_latest { Pattern::Latest } else { Pattern::YcsbZipf };
    workload.write_pattern = Pattern::YcsbZipf;
    workload.sizes = Sizes::Fixed(FIELD_LEN);
    Ok(workload)
}
