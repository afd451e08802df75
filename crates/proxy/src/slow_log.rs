//! The slow requests of a pool: what SLOWLOG shows.

use keyway_base::Time;
use keyway_command::{Flags, lookup};
use keyway_resp::parse_integer;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;

/// Arguments shown of one request, and bytes of each: as Redis does.
pub(crate) const ARGS_MAX: usize = 32;
/// See [`ARGS_MAX`].
pub(crate) const ARG_LEN_MAX: usize = 128;

/// One slow request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowEntry {
    /// Ascending; never used again.
    pub id: u64,
    /// When its reply came: Unix time in seconds.
    pub unix_seconds: u64,
    /// How long the server took, or the store worked, in microseconds.
    pub micros: u64,
    /// Its arguments, cut as Redis cuts them.
    pub args: Vec<Vec<u8>>,
    /// Address of the client; empty when it is gone.
    pub addr: String,
    /// The client's name; empty without one.
    pub name: String,
    /// What it is called in the log.
    pub trace: u64,
    /// What its server is called; empty where there is none.
    pub server: String,
    /// How long it waited for its turn on the connection to the server, or in its worker, in
    /// microseconds: before `micros`.
    pub queue_micros: u64,
    /// How long it took from the first bytes of the reply to its last, in microseconds: behind
    /// `micros`.
    pub receive_micros: u64,
    /// How long it took from there until the system had taken the reply for its client, in
    /// microseconds: behind `receive_micros`. `None` before, and where that is not seen.
    pub write_micros: Option<u64>,
}

impl SlowEntry {
    /// How long it took since it was parsed, in microseconds, as far as is known.
    pub fn total_micros(&self) -> u64 {
        let before = self.queue_micros + self.micros + self.receive_micros;
        before + self.write_micros.unwrap_or(0)
    }
}

/// Requests that are slow after a shorter time than this may be any: all are timed.
const ALL_TIMED_BELOW: Duration = Duration::from_millis(1);

/// The latest slow requests of one pool, shared by all workers. Locked when a
/// request was slow, and by SLOWLOG.
#[derive(Debug)]
pub struct SlowLog {
    slower_than: Duration,
    len_max: usize,
    /// Tells how long the pool itself takes for a request; `None` where servers take it.
    clock: Option<fn() -> Time>,
    /// See [`SlowLog::timed_from`].
    timed_from: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The latest first.
    entries: VecDeque<SlowEntry>,
    next_id: u64,
}

impl Default for SlowLog {
    /// A log of nothing.
    fn default() -> Self {
        Self::new(Duration::MAX, 0)
    }
}

impl SlowLog {
    /// Bytes of a request or its reply from which it is timed where not all are. Much less would
    /// read the clock for what never takes long, much more leave out what does.
    pub const TIMED_FROM: usize = 64 << 10;

    /// Whether both log the same requests, and as many of them.
    pub fn is_like(&self, other: &SlowLog) -> bool {
        (self.slower_than, self.len_max) == (other.slower_than, other.len_max)
    }

    /// A log of requests that take `slower_than` or longer (`Duration::MAX`:
    /// none); of these the latest `len_max`.
    pub fn new(slower_than: Duration, len_max: u32) -> Self {
        let (len_max, timed_from) = (len_max as usize, usize::MAX);
        Self { slower_than, len_max, clock: None, timed_from, inner: Mutex::default() }
    }

    /// The same of a pool that executes requests itself, in times of `clock`.
    pub fn timed(slower_than: Duration, len_max: u32, clock: fn() -> Time) -> Self {
        let timed_from = match slower_than {
            Duration::MAX => usize::MAX,
            short if short < ALL_TIMED_BELOW => 0,
            _ => Self::TIMED_FROM,
        };
        Self { clock: Some(clock), timed_from, ..Self::new(slower_than, len_max) }
    }

    /// Bytes of a request or reply from which it is timed, whatever it asks for: 0 when every
    /// request is, `usize::MAX` when none is.
    #[inline]
    pub fn timed_from(&self) -> usize {
        self.timed_from
    }

    /// The time, where requests are timed.
    #[inline]
    pub fn now(&self) -> Option<Time> {
        if self.timed_from == usize::MAX {
            return None;
        }
        self.clock.map(|clock| clock())
    }

    /// From which time on a request is slow; `Duration::MAX` when none is.
    pub fn slower_than(&self) -> Duration {
        self.slower_than
    }

    /// How many are kept.
    pub fn len_max(&self) -> usize {
        self.len_max
    }

    /// Adds an entry; its id is given here, and returned.
    pub fn add(&self, mut entry: SlowEntry) -> u64 {
        let mut inner = self.inner.lock();
        let id = inner.next_id;
        entry.id = id;
        inner.next_id += 1;
        inner.entries.push_front(entry);
        inner.entries.truncate(self.len_max);
        id
    }

    /// Notes that the client of the request with this id has its reply, if it is still there.
    pub fn note_written(&self, id: u64, micros: u64) {
        let mut inner = self.inner.lock();
        // The ids of those that are there follow each other.
        let position = inner.entries.front().and_then(|latest| latest.id.checked_sub(id));
        let position = position.and_then(|position| usize::try_from(position).ok());
        if let Some(entry) = position.and_then(|position| inner.entries.get_mut(position)) {
            entry.write_micros = Some(micros);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The latest `count`, the latest first.
    pub fn latest(&self, count: usize) -> Vec<SlowEntry> {
        self.inner.lock().entries.iter().take(count).cloned().collect()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.inner.lock().entries.clear();
    }
}

/// Of a transaction sent as one, the first command that Redis does not call
/// fast, or else its `MULTI`; of any other request, the request itself.
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

/// Whether a request is one that Redis calls fast; one without a name is.
pub(crate) fn is_fast(request: &[u8]) -> bool {
    let args = shown_args(request);
    lookup(&args[0]).is_none_or(|command| command.flags.contains(Flags::FAST))
}

/// Length of the whole request that `bytes` begin with, if there is one.
fn end_of(bytes: &[u8]) -> Option<usize> {
    let (count, mut rest) = number(bytes, b'*')?;
    for _ in 0..count {
        let (len, behind) = number(rest, b'$')?;
        rest = behind.get(len.checked_add(2)?..)?;
    }
    Some(bytes.len() - rest.len())
}

/// The arguments of a request of which these are the first bytes, cut as Redis
/// cuts them.
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

/// These words, cut as Redis cuts arguments.
pub fn shown_words<'w>(words: impl ExactSizeIterator<Item = &'w [u8]>) -> Vec<Vec<u8>> {
    let count = words.len();
    shown(words.map(|word| (word, word.len())), count)
}

/// The same of `count` words, each as far as it is there and with its whole length.
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

/// The number in a line that begins with `kind`, and what comes behind it.
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
