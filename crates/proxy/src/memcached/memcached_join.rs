//! A request of a memcached client whose reply is not simply a server's bytes: the request goes to
//! several servers, the two sides use different protocols, or the client wants no reply on success.

use super::{redis, stats};
use keyway_base::{ByteRange, Fault};
use keyway_memcache::{
    Answer, Asker, Dialect, ErrorKind, Expect, Head, Item, Outcome, ReplyLimits, ReplyParsed,
    Request, Verb, Wire, parse_reply, text_item_len, translate_reply, write_end, write_reply,
};
use std::collections::BTreeSet;
use std::ops::Range;

/// The rule by which the reply is merged from those of the servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// One server was asked.
    #[default]
    One,
    /// Items of several servers, in the order of the keys.
    Items,
    /// Every server got the same request and must agree.
    All,
    /// Statistics, added up.
    Sums,
    /// The statistics of each server under its name.
    Each,
}

/// A request that was sent to one or several servers.
#[derive(Debug, Default)]
pub struct MemcachedJoin {
    /// Set if its misses are looked up in an old pool before it is answered: the bytes of the
    /// request, to send it again.
    pub watched: Option<Vec<u8>>,
    /// True if a delete has removed the item elsewhere. The item then existed, whatever the server
    /// answers.
    pub is_deleted: bool,
    head: Head,
    rule: Rule,
    meta: Vec<u8>,
    /// The bytes from the first key to the last.
    line: Vec<u8>,
    /// The ranges of the keys in `line`.
    keys: Vec<ByteRange>,
    /// The fragment of each key, if there are several.
    owners: Vec<u16>,
    fragments: Vec<Fragment>,
    waiting: u16,
    bytes: Vec<u8>,
    /// Servers that are out of use, with their states, for statistics.
    out: Vec<(u16, &'static str)>,
}

#[derive(Clone, Debug)]
struct Fragment {
    backend: u16,
    wire: Wire,
    expect: Expect,
    /// The question, for a server of Redis.
    question: Option<redis::Question>,
    outcome: Result<Range<usize>, Fault>,
}

impl MemcachedJoin {
    /// Resets the join for `request`, parsed from `bytes`.
    pub fn restart(&mut self, request: &Request, bytes: &[u8], rule: Rule) {
        self.watched = None;
        self.is_deleted = false;
        self.head = request.head;
        self.rule = rule;
        self.meta.clear();
        self.meta.extend_from_slice(request.meta.of(bytes));
        self.restart_keys(request, bytes);
        self.owners.clear();
        self.fragments.clear();
        self.waiting = 0;
        self.bytes.clear();
        self.out.clear();
    }

    fn restart_keys(&mut self, request: &Request, bytes: &[u8]) {
        self.line.clear();
        self.keys.clear();
        let (bytes, ranges) = request.key_ranges(bytes);
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return };
        self.line.extend_from_slice(&bytes[first.start as usize..last.end as usize]);
        let moved = |range: &ByteRange| ByteRange {
            start: range.start - first.start,
            end: range.end - first.start,
        };
        self.keys.extend(ranges.iter().map(moved));
    }

    /// Notes a server that is not asked, and its state.
    pub fn add_out(&mut self, backend: u16, state: &'static str) {
        self.out.push((backend, state));
    }

    /// Adds a server that will answer. Returns the index of its fragment.
    pub fn add_fragment(&mut self, backend: u16, wire: Wire) -> u16 {
        let fragment = self.fragments.len() as u16;
        let outcome = Ok(0..0);
        let (expect, question) = (Expect::One, None);
        self.fragments.push(Fragment { backend, wire, expect, question, outcome });
        self.waiting += 1;
        fragment
    }

    /// Returns the number of servers that will answer.
    pub fn fragments(&self) -> usize {
        self.fragments.len()
    }

    /// A server was not asked, since its share of the request is wrong in its
    /// protocol. Returns whether it was the last to be waited for.
    pub fn on_refused(&mut self, fragment: u16, text: &str) -> bool {
        if let Some(fragment) = self.fragments.get_mut(usize::from(fragment)) {
            (fragment.wire, fragment.expect, fragment.question) = (Wire::Text, Expect::One, None);
        }
        self.on_reply(fragment, format!("CLIENT_ERROR {text}\r\n").as_bytes())
    }

    /// Notes how the reply to a fragment ends.
    pub fn set_expect(&mut self, fragment: u16, expect: Expect) {
        self.fragments[usize::from(fragment)].expect = expect;
    }

    /// Notes the question to a server of Redis.
    pub fn set_question(&mut self, fragment: u16, question: redis::Question) {
        self.fragments[usize::from(fragment)].question = Some(question);
    }

    /// Notes the fragment of each key.
    pub fn set_owners(&mut self, fragments: &[u16]) {
        self.owners.clear();
        self.owners.extend_from_slice(fragments);
    }

    /// Handles a server's complete reply. Returns whether it was the last one.
    pub fn on_reply(&mut self, fragment: u16, reply: &[u8]) -> bool {
        let start = self.bytes.len();
        match self.fragments.get(usize::from(fragment)).and_then(|fragment| fragment.question) {
            None => self.bytes.extend_from_slice(reply),
            Some(question) => self.read_redis(fragment, question, reply),
        }
        self.settle(fragment, Ok(start..self.bytes.len()))
    }

    /// Converts a reply of Redis to memcached's protocol.
    fn read_redis(&mut self, fragment: u16, question: redis::Question, reply: &[u8]) {
        let mut bytes = std::mem::take(&mut self.bytes);
        let is_own = |index: &usize| self.owners.get(*index).is_none_or(|one| *one == fragment);
        let keys = (0..self.keys.len()).filter(is_own).map(|index| self.key(index));
        redis::read(&mut bytes, question, &self.head, keys, reply);
        self.bytes = bytes;
    }

    /// Notes that a server does not answer. Returns whether it was the last missing answer.
    pub fn on_fault(&mut self, fragment: u16, fault: Fault) -> bool {
        self.settle(fragment, Err(fault))
    }

    fn settle(&mut self, fragment: u16, outcome: Result<Range<usize>, Fault>) -> bool {
        let Some(fragment) = self.fragments.get_mut(usize::from(fragment)) else { return false };
        fragment.outcome = outcome;
        self.waiting = self.waiting.saturating_sub(1);
        self.waiting == 0
    }

    /// Returns the first fault of a server, if there was any.
    pub fn fault(&self) -> Option<Fault> {
        self.fragments.iter().find_map(|fragment| fragment.outcome.as_ref().err().copied())
    }

    /// Returns its keys.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.keys.len()).map(|index| self.key(index))
    }

    /// Returns for each key whether there is no item in the replies. Returns `None` if they do not
    /// consist of items, but contain an error.
    pub fn misses(&self) -> Option<Vec<bool>> {
        const LIMITS: ReplyLimits = ReplyLimits { reply_len_max: u32::MAX };
        let mut hits = BTreeSet::new();
        let is_single = self.keys.len() == 1;
        for index in 0..self.fragments.len() {
            let Answer { bytes: mut rest, wire, .. } = self.answer(index)?;
            while !rest.is_empty() {
                let Ok(ReplyParsed::Ready { len, reply }) = parse_reply(rest, wire, &LIMITS) else {
                    return None;
                };
                rest = &rest[len..];
                match reply.outcome {
                    Outcome::Error { .. } => return None,
                    // A single key is not always named, and without `v` there is no value.
                    Outcome::Hit(_) | Outcome::Done(_) if is_single => {
                        hits.insert(self.key(0));
                    }
                    Outcome::Hit(item) => {
                        hits.insert(item.key);
                    }
                    _ => {}
                }
            }
        }
        Some(self.keys().map(|key| !hits.contains(key)).collect())
    }

    fn key(&self, index: usize) -> &[u8] {
        self.keys.get(index).map_or(b"", |range| range.of(&self.line))
    }

    fn asker(&self) -> Asker<'_> {
        Asker { head: &self.head, key: self.key(0), meta: &self.meta }
    }

    /// Appends the reply. `name` returns a server's name, `describe` what failed there, as for
    /// [`super::write_failure`].
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        name: impl Fn(u16) -> String,
        describe: impl Fn(u16) -> String,
    ) {
        match self.rule {
            Rule::Sums => return self.write_sums(out, name),
            Rule::Each => return self.write_each(out, &name, &describe),
            _ => {}
        }
        let failed = self.fragments.iter().find(|fragment| fragment.outcome.is_err());
        if let Some(Fragment { backend, outcome: Err(fault), .. }) = failed {
            return super::write_failure(out, &self.asker(), *fault, &describe(*backend));
        }
        let before = out.len();
        let outcome = match self.rule {
            Rule::Items => self.write_items(out),
            Rule::All => self.write_agreement(out),
            _ => self.write_one(out),
        };
        if let Err(fragment) = outcome {
            out.truncate(before);
            let text = format!(
                "backend {} answered something that is no reply to this",
                name(self.fragments[fragment].backend)
            );
            let error = Outcome::Error { kind: ErrorKind::Server, text: text.as_bytes() };
            write_reply(out, &self.asker(), &error);
        }
    }

    fn answer(&self, index: usize) -> Option<Answer<'_>> {
        let Fragment { wire, expect, outcome, .. } = self.fragments.get(index)?;
        let range = outcome.as_ref().ok()?;
        Some(Answer { bytes: &self.bytes[range.clone()], wire: *wire, expect: *expect })
    }

    fn write_one(&self, out: &mut Vec<u8>) -> Result<(), usize> {
        let Some(answer) = self.answer(0) else { return Err(0) };
        const LIMITS: ReplyLimits = ReplyLimits { reply_len_max: u32::MAX };
        if self.is_deleted
            && let Ok(ReplyParsed::Ready { reply, .. }) =
                parse_reply(answer.bytes, answer.wire, &LIMITS)
            && reply.outcome == Outcome::NotFound
        {
            write_reply(out, &self.asker(), &Outcome::Done(Item::default()));
            return Ok(());
        }
        translate_reply(out, &self.asker(), &answer).map_err(|_| 0)
    }

    /// Writes the reply of the first server that did not do what it should, or else of any.
    fn write_agreement(&self, out: &mut Vec<u8>) -> Result<(), usize> {
        let answers =
            || (0..self.fragments.len()).filter_map(|index| Some((index, self.answer(index)?)));
        let refused = answers().find(|(_, answer)| super::is_error(answer.bytes, answer.wire));
        let Some((index, answer)) = refused.or_else(|| answers().next()) else { return Err(0) };
        translate_reply(out, &self.asker(), &answer).map_err(|_| index)
    }

    /// Writes items in the order of the keys. An error of any server is the reply.
    fn write_items(&self, out: &mut Vec<u8>) -> Result<(), usize> {
        const LIMITS: ReplyLimits = ReplyLimits { reply_len_max: u32::MAX };
        let mut rests: Vec<Answer<'_>> = Vec::with_capacity(self.fragments.len());
        for index in 0..self.fragments.len() {
            let answer = self.answer(index).ok_or(index)?;
            if super::is_error(last_line(&answer), answer.wire) {
                return translate_reply(out, &self.asker(), &answer).map_err(|_| index);
            }
            rests.push(answer);
        }
        for index in 0..self.keys.len() {
            let key = self.key(index);
            let owner = usize::from(self.owners[index]);
            let answer = &mut rests[owner];
            if answer.wire == Wire::Text
                && let Some(len) = text_item_len(answer.bytes, key)
            {
                out.extend_from_slice(&answer.bytes[..len]);
                answer.bytes = &answer.bytes[len..];
                continue;
            }
            let Ok(ReplyParsed::Ready { len, reply }) =
                parse_reply(answer.bytes, answer.wire, &LIMITS)
            else {
                return Err(owner);
            };
            match reply.outcome {
                Outcome::Hit(item) if item.key == key => {
                    if answer.wire == Wire::Text && !item.key_base64 {
                        out.extend_from_slice(&answer.bytes[..len]);
                    } else {
                        let asker = Asker { head: &self.head, key, meta: b"" };
                        write_reply(out, &asker, &reply.outcome);
                    }
                    answer.bytes = &answer.bytes[len..];
                }
                Outcome::Hit(_) | Outcome::End | Outcome::Noop => {}
                // A server that was asked for each key reports this miss.
                Outcome::NotFound => answer.bytes = &answer.bytes[len..],
                _ => return Err(owner),
            }
        }
        for (index, answer) in rests.iter().enumerate() {
            let rest = parse_reply(answer.bytes, answer.wire, &LIMITS);
            if let Ok(ReplyParsed::Ready { reply, .. }) = rest
                && matches!(reply.outcome, Outcome::Hit(_))
            {
                return Err(index);
            }
        }
        write_end(out, &self.head);
        Ok(())
    }

    fn write_sums(&self, out: &mut Vec<u8>, name: impl Fn(u16) -> String) {
        let answers = self
            .fragments
            .iter()
            .enumerate()
            .map(|(index, fragment)| (name(fragment.backend), self.answer(index)));
        let out_of_use = self.out.iter().map(|(_, state)| *state);
        for (name, value) in stats::sums(answers, out_of_use) {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            write_reply(out, &self.asker(), &Outcome::Stat { name, value });
        }
        write_end(out, &self.head);
    }

    fn write_each(
        &self,
        out: &mut Vec<u8>,
        name: &impl Fn(u16) -> String,
        describe: &impl Fn(u16) -> String,
    ) {
        let mut answers = (0..self.fragments.len()).map(|index| self.answer(index));
        if answers.all(|answer| answer.is_some_and(|answer| stats::is_unknown(&answer))) {
            return write_reply(out, &self.asker(), &Outcome::NotFound);
        }
        let mut answers = (0..self.fragments.len()).map(|index| self.answer(index));
        if let Some(word) = self.settled_by()
            && answers.all(|answer| answer.is_some_and(|answer| stats::is_done(&answer)))
        {
            return write_reply(out, &self.asker(), &Outcome::Text(word));
        }
        for (index, fragment) in self.fragments.iter().enumerate() {
            let label = name(fragment.backend);
            let mut tell = |key: &str, value: &[u8]| {
                let name = format!("{label}:{key}");
                let stat = Outcome::Stat { name: name.as_bytes(), value };
                write_reply(out, &self.asker(), &stat);
            };
            match (self.answer(index), &fragment.outcome) {
                (Some(answer), _) => stats::each(&answer, |key, value| tell(key, value)),
                (None, Err(fault)) => {
                    let text =
                        crate::fault_reply::text_for_memcached(*fault, &describe(fragment.backend));
                    tell("error", text.as_bytes());
                }
                (None, Ok(_)) => {}
            }
        }
        for (backend, state) in &self.out {
            let key = format!("{}:state", name(*backend));
            let stat = Outcome::Stat { name: key.as_bytes(), value: state.as_bytes() };
            write_reply(out, &self.asker(), &stat);
        }
        write_end(out, &self.head);
    }

    /// Returns the reply for a text client whose `stats` changes something, such as `stats reset`.
    fn settled_by(&self) -> Option<&'static [u8]> {
        if self.head.dialect == Dialect::Binary {
            return None;
        }
        match (self.key(0), self.key(1)) {
            (b"reset", _) => Some(b"RESET"),
            (b"detail", b"on" | b"off") => Some(b"OK"),
            _ => None,
        }
    }

    /// Returns the bytes of memory held.
    fn held(&self) -> usize {
        self.bytes.capacity()
            + self.line.capacity()
            + self.keys.capacity() * size_of::<ByteRange>()
            + self.owners.capacity() * 2
            + self.meta.capacity()
            + self.fragments.capacity() * size_of::<Fragment>()
    }

    /// Returns whether it is about statistics.
    pub fn is_report(&self) -> bool {
        self.head.verb == Verb::Stats
    }
}

/// Returns the part that shows whether a list ended well: in text, an error is its last line.
fn last_line<'a>(answer: &Answer<'a>) -> &'a [u8] {
    if answer.wire == Wire::Binary || answer.expect != Expect::List {
        return answer.bytes;
    }
    let bytes = answer.bytes.strip_suffix(b"\r\n").unwrap_or(answer.bytes);
    let start = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    &answer.bytes[start..]
}

/// Unused joins, for the next requests that need one.
#[derive(Debug, Default)]
#[allow(clippy::vec_box, reason = "the boxes are what is reused")]
pub struct MemcachedJoinPool {
    free: Vec<Box<MemcachedJoin>>,
}

/// Number of unused joins that are kept.
const POOL_LEN_MAX: usize = 128;

/// Largest number of bytes that a kept join may hold.
const KEPT_MAX: usize = 16 << 10;

impl MemcachedJoinPool {
    /// Returns one, which must be restarted.
    pub fn take(&mut self) -> Box<MemcachedJoin> {
        self.free.pop().unwrap_or_default()
    }

    /// Takes back a join that was answered.
    pub fn give(&mut self, memcached_join: Box<MemcachedJoin>) {
        if self.free.len() < POOL_LEN_MAX && memcached_join.held() <= KEPT_MAX {
            self.free.push(memcached_join);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::{BackendFault, Limits, Sent};
    use keyway_memcache::{ParseLimits, Parsed, parse_request};

    fn memcached_join(bytes: &[u8], rule: Rule, owners: &[u16]) -> MemcachedJoin {
        let mut request = Request::default();
        let limits = ParseLimits::of(&Limits::default(), 1 << 20);
        let parsed = parse_request(bytes, Wire::of(bytes[0]), &limits, &mut request);
        assert!(matches!(parsed, Parsed::Ready { consumed } if consumed == bytes.len()));
        let mut memcached_join = MemcachedJoin::default();
        memcached_join.restart(&request, bytes, rule);
        for backend in 0..=owners.iter().copied().max().unwrap_or(0) {
            let fragment = memcached_join.add_fragment(backend, Wire::Text);
            memcached_join.set_expect(fragment, expect(rule));
        }
        memcached_join.set_owners(owners);
        memcached_join
    }

    fn expect(rule: Rule) -> Expect {
        match rule {
            Rule::Items | Rule::Sums | Rule::Each => Expect::List,
            _ => Expect::One,
        }
    }

    fn written(memcached_join: &MemcachedJoin) -> String {
        let mut out = Vec::new();
        memcached_join.write(
            &mut out,
            |backend| format!("s{backend}"),
            |backend| format!("s{backend}"),
        );
        out.escape_ascii().to_string()
    }

    #[test]
    fn items_come_in_the_order_of_the_keys_whoever_answers_first() {
        let mut memcached_join = memcached_join(b"get a b c d\r\n", Rule::Items, &[0, 1, 0, 1]);
        assert!(!memcached_join.on_reply(1, b"VALUE b 0 1\r\nB\r\nVALUE d 7 1\r\nD\r\nEND\r\n"));
        assert!(memcached_join.on_reply(0, b"VALUE c 0 3\r\nEND\r\nEND\r\n"));
        assert_eq!(
            written(&memcached_join),
            r"VALUE b 0 1\r\nB\r\nVALUE c 0 3\r\nEND\r\nVALUE d 7 1\r\nD\r\nEND\r\n"
        );
    }

    #[test]
    fn what_is_in_no_reply_is_missed() {
        let mut memcached_join = memcached_join(b"get a b c d\r\n", Rule::Items, &[0, 1, 0, 1]);
        memcached_join.on_reply(1, b"VALUE b 0 1\r\nB\r\nEND\r\n");
        memcached_join.on_reply(0, b"VALUE c 0 0\r\n\r\nEND\r\n");
        assert_eq!(memcached_join.misses(), Some(vec![true, false, false, true]));
        let single = |request: &[u8], reply: &[u8]| {
            let mut memcached_join = super::tests::memcached_join(request, Rule::One, &[]);
            memcached_join.on_reply(0, reply);
            memcached_join.misses()
        };
        assert_eq!(single(b"mg a t\r\n", b"HD t5\r\n"), Some(vec![false]));
        assert_eq!(single(b"mg a v\r\n", b"EN\r\n"), Some(vec![true]));
        assert_eq!(single(b"mg a v\r\n", b"SERVER_ERROR x\r\n"), None);
    }

    #[test]
    fn what_was_deleted_elsewhere_was_there() {
        let mut memcached_join = memcached_join(b"delete a\r\n", Rule::One, &[]);
        memcached_join.is_deleted = true;
        memcached_join.on_reply(0, b"NOT_FOUND\r\n");
        assert_eq!(written(&memcached_join), r"DELETED\r\n");
    }

    #[test]
    fn statistics_that_no_server_knows_are_refused_as_a_server_does() {
        let mut none = memcached_join(b"stats nonsense\r\n", Rule::Each, &[0, 1]);
        none.on_reply(0, b"ERROR\r\n");
        none.on_reply(1, b"ERROR\r\n");
        assert_eq!(written(&none), r"ERROR\r\n");
        let mut one = memcached_join(b"stats recent\r\n", Rule::Each, &[0, 1]);
        one.on_reply(0, b"ERROR\r\n");
        one.on_reply(1, b"STAT a 1\r\nEND\r\n");
        assert!(written(&one).ends_with(r"STAT s1:a 1\r\nEND\r\n"));
    }

    #[test]
    fn a_key_asked_for_twice_is_told_twice() {
        let mut memcached_join = memcached_join(b"get a b a\r\n", Rule::Items, &[0, 1, 0]);
        memcached_join.on_reply(0, b"VALUE a 0 1\r\nA\r\nVALUE a 0 1\r\nA\r\nEND\r\n");
        memcached_join.on_reply(1, b"END\r\n");
        assert_eq!(written(&memcached_join), r"VALUE a 0 1\r\nA\r\nVALUE a 0 1\r\nA\r\nEND\r\n");
    }

    #[test]
    fn a_server_that_fails_is_named_and_nothing_is_returned() {
        let mut memcached_join = memcached_join(b"get a b\r\n", Rule::Items, &[0, 1]);
        memcached_join.on_reply(0, b"VALUE a 0 1\r\nA\r\nEND\r\n");
        let fault = Fault::Backend { fault: BackendFault::Timeout, sent: Sent::Maybe };
        assert!(memcached_join.on_fault(1, fault));
        assert_eq!(
            written(&memcached_join),
            r"SERVER_ERROR backend s1 did not answer in time; the request may have been executed\r\n"
        );
        assert_eq!(memcached_join.fault(), Some(fault));
    }

    #[test]
    fn an_error_of_one_server_is_the_reply() {
        let mut memcached_join = memcached_join(b"get a b\r\n", Rule::Items, &[0, 1]);
        memcached_join.on_reply(0, b"VALUE a 0 1\r\nA\r\nEND\r\n");
        memcached_join.on_reply(1, b"VALUE b 0 1\r\nB\r\nSERVER_ERROR busy\r\n");
        assert_eq!(written(&memcached_join), r"SERVER_ERROR busy\r\n");
    }

    #[test]
    fn what_nobody_asked_for_is_no_reply() {
        for other in ["VALUE x 0 1\r\nX\r\nEND\r\n", "STORED\r\n"] {
            let mut memcached_join = memcached_join(b"get a b\r\n", Rule::Items, &[0, 1]);
            memcached_join.on_reply(0, b"END\r\n");
            memcached_join.on_reply(1, other.as_bytes());
            assert!(
                written(&memcached_join).starts_with("SERVER_ERROR backend s1 answered something")
            );
        }
    }

    #[test]
    fn all_must_agree_and_silence_is_kept() {
        let mut flush = memcached_join(b"flush_all\r\n", Rule::All, &[0, 1]);
        flush.on_reply(0, b"OK\r\n");
        flush.on_reply(1, b"OK\r\n");
        assert_eq!(written(&flush), r"OK\r\n");
        flush.on_reply(1, b"CLIENT_ERROR no\r\n");
        assert_eq!(written(&flush), r"CLIENT_ERROR no\r\n");
        let mut quiet = memcached_join(b"set a 0 0 1 noreply\r\nA\r\n", Rule::One, &[0]);
        assert!(quiet.on_reply(0, b"STORED\r\n"));
        assert_eq!(written(&quiet), "");
    }

    #[test]
    fn statistics_are_added_up_or_told_by_server() {
        let replies = [
            "STAT pid 7\r\nSTAT curr_items 2\r\nSTAT version 1.6.1\r\nEND\r\n",
            "STAT pid 8\r\nSTAT curr_items 3\r\nSTAT version 1.6.1\r\nEND\r\n",
        ];
        let mut sums = memcached_join(b"stats\r\n", Rule::Sums, &[0, 1]);
        (0..2).for_each(|index| {
            sums.on_reply(index, replies[usize::from(index)].as_bytes());
        });
        let told = written(&sums);
        assert!(told.contains(r"STAT curr_items 5\r\n") && !told.contains("pid"), "{told}");
        assert!(told.ends_with(r"END\r\n"));
        let mut each = memcached_join(b"stats servers\r\n", Rule::Each, &[0, 1]);
        each.on_reply(0, replies[0].as_bytes());
        each.on_fault(1, Fault::Backend { fault: BackendFault::Connect, sent: Sent::No });
        let told = written(&each);
        assert!(told.contains(r"STAT s0:pid 7\r\n"), "{told}");
        assert!(told.contains("STAT s1:error ERR backend s1 cannot be reached"), "{told}");
    }
}
