//! LCS: the longest common subsequence of two strings.

use super::call::{Call, Fault, Outcome, SYNTAX};
use crate::items::STRING_LEN_MAX;
use keyway_resp::reply;

#[derive(Default)]
struct Options {
    len: bool,
    ranges: bool,
    with_match_len: bool,
    match_len_min: i64,
}

impl Options {
    fn parse(call: &Call<'_>) -> Result<Self, Fault> {
        let mut options = Self::default();
        let mut index = 3;
        while index < call.args.len() {
            match () {
                () if call.is(index, "idx") => options.ranges = true,
                () if call.is(index, "len") => options.len = true,
                () if call.is(index, "withmatchlen") => options.with_match_len = true,
                () if call.is(index, "minmatchlen") && index + 1 < call.args.len() => {
                    index += 1;
                    options.match_len_min = call.integer(index)?.max(0);
                }
                () => return Err(SYNTAX),
            }
            index += 1;
        }
        if options.len && options.ranges {
            return Err(Fault::Text(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(options)
    }
}

/// A run that both strings have: where it starts in each, and its length.
struct Run {
    one: usize,
    other: usize,
    len: usize,
}

/// The lengths of the longest common subsequences of all pairs of prefixes.
struct Lengths {
    columns: usize,
    cells: Vec<u32>,
}

impl Lengths {
    fn of(one: &[u8], other: &[u8]) -> Result<Self, Fault> {
        let columns = other.len() + 1;
        let count = (one.len() as u64 + 1) * columns as u64;
        if count * size_of::<u32>() as u64 > STRING_LEN_MAX {
            return Err(Fault::Text(
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
            ));
        }
        let mut lengths = Self { columns, cells: vec![0; count as usize] };
        for (row, byte) in one.iter().enumerate() {
            for (column, other_byte) in other.iter().enumerate() {
                let longest = if byte == other_byte {
                    lengths.at(row, column) + 1
                } else {
                    lengths.at(row, column + 1).max(lengths.at(row + 1, column))
                };
                lengths.cells[(row + 1) * columns + column + 1] = longest;
            }
        }
        Ok(lengths)
    }

    fn at(&self, row: usize, column: usize) -> u32 {
        self.cells[row * self.columns + column]
    }

    /// The subsequence and the runs it consists of, last first, found by going
    /// back from the end of both strings.
    fn trace(&self, one: &[u8], other: &[u8]) -> (Vec<u8>, Vec<Run>) {
        let (mut row, mut column) = (one.len(), other.len());
        let (mut common, mut runs) = (Vec::new(), Vec::<Run>::new());
        let mut open = false;
        while row > 0 && column > 0 {
            if one[row - 1] == other[column - 1] {
                (row, column) = (row - 1, column - 1);
                common.push(one[row]);
                match runs.last_mut().filter(|_| open) {
                    Some(run) => *run = Run { one: row, other: column, len: run.len + 1 },
                    None => runs.push(Run { one: row, other: column, len: 1 }),
                }
                open = true;
            } else {
                open = false;
                if self.at(row - 1, column) > self.at(row, column - 1) {
                    row -= 1;
                } else {
                    column -= 1;
                }
            }
        }
        common.reverse();
        (common, runs)
    }
}

/// LCS. The strings are copied, so that no shard is locked while the table of
/// lengths is made.
pub(super) fn lcs(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let read = |locked: &mut crate::store::Locked<'_>, index| {
        let mut entry = locked.entry(call.turn, call.arg(index));
        match entry.read_text() {
            Ok(item) => Ok(item.map_or(Vec::new(), |item| item.value().to_vec())),
            Err(_) => Err(Fault::Text("ERR The specified keys must contain string values")),
        }
    };
    let (one, other) = {
        let mut locked = call.store.lock_keys([call.arg(1), call.arg(2)].into_iter());
        (read(&mut locked, 1), read(&mut locked, 2))
    };
    let (one, other) = (one?, other?);
    let options = Options::parse(call)?;
    let lengths = Lengths::of(&one, &other)?;
    let len = i64::from(lengths.at(one.len(), other.len()));
    if options.len {
        reply::integer(out, len);
        return Ok(());
    }
    let (common, runs) = lengths.trace(&one, &other);
    if !options.ranges {
        reply::bulk(out, &common);
        return Ok(());
    }
    let long_enough = |run: &&Run| run.len as i64 >= options.match_len_min;
    call.turn.protocol.map(out, 2);
    reply::bulk(out, b"matches");
    reply::array(out, runs.iter().filter(long_enough).count());
    for run in runs.iter().filter(long_enough) {
        reply::array(out, 2 + usize::from(options.with_match_len));
        for start in [run.one, run.other] {
            reply::array(out, 2);
            reply::integer(out, start as i64);
            reply::integer(out, (start + run.len - 1) as i64);
        }
        if options.with_match_len {
            reply::integer(out, run.len as i64);
        }
    }
    reply::bulk(out, b"len");
    reply::integer(out, len);
    Ok(())
}
