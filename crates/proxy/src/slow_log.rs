//! The slow requests of a pool, which SLOWLOG shows.

use keyway_base::Time;
use keyway_command::{Flags, lookup};
use keyway_resp::parse_integer;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;

/// Number of arguments that are shown of one request, and number of bytes of each, as in Redis.
pub(crate) const ARGS_MAX: usize = 32;
/// See [`ARGS_MAX`].
pub(crate) const ARG_LEN_MAX: usize = 128;

/// One slow request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowEntry {
    /// A number that ascends and is never used again.
    pub id: u64,
    /// When its reply arrived, in seconds of Unix time.
    pub unix_seconds: u64,
    /// Time that the server took, or that the store worked, in microseconds.
    pub micros: u64,
    /// Its arguments, truncated as in Redis.
    pub args: Vec<Vec<u8>>,
    /// Address of the client. Empty if it is gone.
    pub addr: String,
    /// The client's name. Empty without one.
    pub name: String,
    /// Its trace number in the log.
    pub trace: u64,
    /// The name of its server. Empty if there is none.
    pub server: String,
    /// Time that it waited for its turn on the connection to the server, or in its worker, in
    /// microseconds. This was before `micros`.
    pub queue_micros: u64,
    /// Time from the first bytes of the reply to its last, in microseconds. This was after
    /// `micros`.
    pub receive_micros: u64,
    /// Time from there until the system had taken the reply for its client, in microseconds. This
    /// was after `receive_micros`. `None` before that, and if it is not measured.
    pub write_micros: Option<u64>,
}

impl SlowEntry {
    /// Returns the known time since it was parsed, in microseconds.
    pub fn total_micros(&self) -> u64 {
        let before = self.queue_micros + self.micros + self.receive_micros;
        before + self.write_micros.unwrap_or(0)
    }
}

/// If requests are slow after a shorter time than this, any request may be slow, so all are timed.
const ALL_TIMED_BELOW: Duration = Duration::from_millis(1);

/// The latest slow requests of one pool, shared by all workers. It is locked when a request was
/// slow, and by SLOWLOG.
#[derive(Debug)]
pub struct SlowLog {
    slower_than: Duration,
    len_max: usize,
    /// Measures how long the pool itself takes for a request. `None` if servers execute requests.
    clock: Option<fn() -> Time>,
    /// See [`SlowLog::timed_from`].
    timed_from: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The entries, with the latest first.
    entries: VecDeque<SlowEntry>,
    next_id: u64,
}

impl Default for SlowLog {
    /// Creates a log that logs nothing.
    fn default() -> Self {
        Self::new(Duration::MAX, 0)
    }
}

impl SlowLog {
    /// Number of bytes of a request or its reply from which it is timed if not all are. If it were
    /// much less, the clock would be read for requests that never take long. If it were much more,
    /// slow ones would be missed.
    pub const TIMED_FROM: usize = 64 << 10;

    /// Returns whether both log the same requests, and the same number of them.
    pub fn is_like(&self, other: &SlowLog) -> bool {
        (self.slower_than, self.len_max) == (other.slower_than, other.len_max)
    }

    /// Creates a log of requests that take `slower_than` or longer (`Duration::MAX`: none). It
    /// keeps the latest `len_max`.
    pub fn new(slower_than: Duration, len_max: u32) -> Self {
        let (len_max, timed_from) = (len_max as usize, usize::MAX);
        Self { slower_than, len_max, clock: None, timed_from, inner: Mutex::default() }
    }

    /// Creates a log for a pool that executes requests itself, with times of `clock`.
    pub fn timed(slower_than: Duration, len_max: u32, clock: fn() -> Time) -> Self {
        let timed_from = match slower_than {
            Duration::MAX => usize::MAX,
            short if short < ALL_TIMED_BELOW => 0,
            _ => Self::TIMED_FROM,
        };
        Self { clock: Some(clock), timed_from, ..Self::new(slower_than, len_max) }
    }

    /// Returns the number of bytes of a request or reply from which it is timed, whatever it asks
    /// for: 0 if every request is, `usize::MAX` if none is.
    #[inline]
    pub fn timed_from(&self) -> usize {
        self.timed_from
    }

    /// Returns the time, if requests are timed.
    #[inline]
    pub fn now(&self) -> Option<Time> {
        if self.timed_from == usize::MAX {
            return None;
        }
        self.clock.map(|clock| clock())
    }

    /// Returns the time from which a request is slow, or `Duration::MAX` if none is.
    pub fn slower_than(&self) -> Duration {
        self.slower_than
    }

    /// Returns the number of entries that are kept.
    pub fn len_max(&self) -> usize {
        self.len_max
    }

    /// Adds an entry. Its id is assigned here, and returned.
    pub fn add(&self, mut entry: SlowEntry) -> u64 {
        let mut inner = self.inner.lock();
        let id = inner.next_id;
        entry.id = id;
        inner.next_id += 1;
        inner.entries.push_front(entry);
        inner.entries.truncate(self.len_max);
        id
    }

    /// Notes that the client of the request with this id has its reply, if the entry still exists.
    pub fn note_written(&self, id: u64, micros: u64) {
        let mut inner = self.inner.lock();
        // The ids of those that are there follow each other.
        let position = inner.entries.front().and_then(|latest| latest.id.checked_sub(id));
        let position = position.and_then(|position| usize::try_from(position).ok());
        if let Some(entry) = position.and_then(|position| inner.entries.get_mut(position)) {
            entry.write_micros = Some(micros);
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the latest `count` entries, with the latest first.
    pub fn latest(&self, count: usize) -> Vec<SlowEntry> {
        self.inner.lock().entries.iter().take(count).cloned().collect()
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.inner.lock().entries.clear();
    }
}

/// Returns, of a transaction that was sent whole, the first command that Redis does not call fast,
/// or else its `MULTI`. Of any other request it returns the request itself.
pub(crate) fn slow_part(request: &[u8]) -> &[u8] {
    const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
    let mut rest = request.strip_prefix(MULTI).unwrap_or_default();
    while let Some(end) = end_of(rest) {
        let (command, behind) = rest.split_at(end);
        if !is_fast(command) {
            return command;
        }
        rest = behind;
    }
    request
}

/// Returns whether Redis calls a request fast. One without a name is fast.
pub(crate) fn is_fast(request: &[u8]) -> bool {
    let args = shown_args(request);
    lookup(&args[0]).is_none_or(|command| command.flags.contains(Flags::FAST))
}

/// Returns the length of the complete request with which `bytes` begin, if there is one.
fn end_of(bytes: &[u8]) -> Option<usize> {
    let (count, mut rest) = number(bytes, b'*')?;
    for _ in 0..count {
        let (len, behind) = number(rest, b'$')?;
        rest = behind.get(len.checked_add(2)?..)?;
    }
    Some(bytes.len() - rest.len())
}

/// Returns the arguments of a request with these first bytes, truncated as in Redis.
pub fn shown_args(request: &[u8]) -> Vec<Vec<u8>> {
    let Some((count, mut rest)) = number(request, b'*') else {
        return vec![b"(not kept)".to_vec()];
    };
    let words = std::iter::from_fn(|| {
        let (len, bytes) = number(rest, b'$')?;
        rest = bytes.get(len.saturating_add(2)..).unwrap_or_default();
        Some((&bytes[..len.min(bytes.len())], len))
    });
    shown(words, count)
}

/// Returns these words, truncated like arguments in Redis.
pub fn shown_words<'w>(words: impl ExactSizeIterator<Item = &'w [u8]>) -> Vec<Vec<u8>> {
    let count = words.len();
    shown(words.map(|word| (word, word.len())), count)
}

/// Does the same for `count` words, each as far as it is available, and with its whole length.
fn shown<'w>(words: impl Iterator<Item = (&'w [u8], usize)>, count: usize) -> Vec<Vec<u8>> {
    let shown = if count > ARGS_MAX { ARGS_MAX - 1 } else { count };
    let mut args = Vec::with_capacity(shown + 1);
    for (word, len) in words.take(shown) {
        let mut arg = word[..ARG_LEN_MAX.min(word.len())].to_vec();
        if len > ARG_LEN_MAX {
            arg.extend_from_slice(format!("... ({} more bytes)", len - ARG_LEN_MAX).as_bytes());
        }
        args.push(arg);
    }
    if count > args.len() {
        args.push(format!("... ({} more arguments)", count - args.len()).into_bytes());
    }
    args
}

/// Returns the number in a line that begins with `kind`, and what follows.
fn number(bytes: &[u8], kind: u8) -> Option<(usize, &[u8])> {
    let line = bytes.strip_prefix(&[kind])?;
    let end = line.windows(2).position(|pair| pair == b"\r\n")?;
    Some((usize::try_from(parse_integer(&line[..end])?).ok()?, &line[end + 2..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(args: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        keyway_resp::reply::array(&mut out, args.len());
        args.iter().for_each(|arg| keyway_resp::reply::bulk(&mut out, arg));
        out
    }

    #[test]
    fn a_transaction_is_known_by_its_first_command_that_is_not_fast() {
        let of =
            |lines: &[&[&[u8]]]| lines.iter().flat_map(|line| request(line)).collect::<Vec<_>>();
        let slow = of(&[&[b"MULTI"], &[b"GET", b"k"], &[b"KEYS", b"*"], &[b"EXEC"]]);
        assert_eq!(slow_part(&slow), request(&[b"KEYS", b"*"]));
        let fast = of(&[&[b"MULTI"], &[b"GET", b"k"]]);
        assert_eq!(slow_part(&fast), fast);
        assert_eq!(slow_part(&slow[..30]), &slow[..30], "cut off");
        assert_eq!(slow_part(b"*1\r\n$4\r\nKEYS\r\n"), b"*1\r\n$4\r\nKEYS\r\n");
    }

    #[test]
    fn arguments_are_cut_as_redis_cuts_them() {
        assert_eq!(shown_args(&request(&[b"get", b"k"])), [b"get", &b"k"[..]]);
        let long = shown_args(&request(&[b"set", &[b'x'; 130]]));
        assert!(long[1].ends_with(b"xx... (2 more bytes)") && long[1].len() == 128 + 18);
        let many = shown_args(&request(&[&b"a"[..]; 40]));
        assert_eq!((many.len(), &many[31][..]), (32, &b"... (9 more arguments)"[..]));
        assert_eq!(shown_args(&request(&[&b"a"[..]; 32])).len(), 32);
    }

    #[test]
    fn words_are_cut_as_the_arguments_of_a_request_are() {
        let long = [b'x'; 300];
        let words: Vec<&[u8]> = [&b"gets"[..], &long].into_iter().chain([&b"k"[..]; 40]).collect();
        assert_eq!(shown_words(words.iter().copied()), shown_args(&request(&words)));
        assert_eq!(shown_words([&b"flush_all"[..]].into_iter()), [b"flush_all"]);
    }

    #[test]
    fn what_is_timed_depends_on_what_is_slow() {
        let from = |time| SlowLog::timed(time, 9, || Time(7)).timed_from();
        assert_eq!(from(Duration::from_millis(10)), SlowLog::TIMED_FROM);
        assert_eq!((from(Duration::ZERO), from(Duration::from_micros(999))), (0, 0));
        assert_eq!(from(Duration::MAX), usize::MAX);
        let now = |time| SlowLog::timed(time, 9, || Time(7)).now();
        assert_eq!((now(Duration::ZERO), now(Duration::MAX)), (Some(Time(7)), None));
        let of_servers = SlowLog::new(Duration::ZERO, 9);
        assert_eq!((of_servers.timed_from(), of_servers.now()), (usize::MAX, None));
    }

    #[test]
    fn a_request_cut_anywhere_is_shown_as_far_as_it_is_known() {
        let whole = request(&[b"set", b"key", b"value"]);
        for len in 0..whole.len() {
            let shown = shown_args(&whole[..len]);
            assert!(!shown.is_empty() && shown.len() <= 4, "{len}: {shown:?}");
        }
        assert_eq!(shown_args(b""), [b"(not kept)"]);
        assert_eq!(shown_args(b"*-1\r\n"), [b"(not kept)"]);
    }

    #[test]
    fn the_latest_are_kept_under_ids_that_are_not_used_again() {
        let log = SlowLog::new(Duration::ZERO, 2);
        let entry = SlowEntry {
            id: 0,
            unix_seconds: 1,
            micros: 5,
            args: vec![b"get".to_vec()],
            addr: String::new(),
            name: String::new(),
            trace: 7,
            server: "alpha".to_owned(),
            queue_micros: 1,
            receive_micros: 2,
            write_micros: None,
        };
        (0..3).for_each(|_| _ = log.add(entry.clone()));
        let ids = |log: &SlowLog| log.latest(9).iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!((ids(&log), log.len()), (vec![2, 1], 2));
        log.note_written(1, 11);
        [0, 3, 99].into_iter().for_each(|id| log.note_written(id, 99));
        let told = log.latest(9);
        assert_eq!((told[0].write_micros, told[1].write_micros), (None, Some(11)));
        assert_eq!((told[0].total_micros(), told[1].total_micros()), (8, 19));
        log.clear();
        assert!(log.is_empty());
        log.note_written(1, 11);
        assert_eq!(log.add(entry), 3);
        assert_eq!(ids(&log), [3]);
    }
}
