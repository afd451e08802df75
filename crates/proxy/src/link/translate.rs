//! Translates replies of a server that supports only RESP2 to RESP3.
//!
//! An array or a bulk of RESP2 may be a map, a set or a number in RESP3. This depends on the
//! command, and not on the bytes. Nulls are translated wherever they are. Errors stay unchanged.

use keyway_command::{Args, Request, Verb};
use keyway_resp::{Framing, Protocol, frame_reply, head_number, parse_integer};

/// The translation of the reply to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Translation {
    /// Only its nulls are translated.
    #[default]
    Nulls,
    /// Alternating fields and values become a map.
    Map,
    /// An array becomes a set.
    Set,
    /// A bulk becomes a double.
    Double,
    /// Every bulk of an array becomes a double.
    Doubles,
    /// Alternating members and scores become pairs.
    ScoredMembers,
    /// Alternating fields and values become pairs.
    FieldsAndValues,
    /// One member and its score.
    ScoredMember,
    /// A key, a member and its score.
    ScoredMemberOfKey,
    /// A key, and pairs of members and scores.
    ScoredMembersOfKey,
    /// Names, each with what belongs to it, become a map.
    Streams,
    /// The map of a stream, which contains groups and consumers as maps.
    Stream,
    /// An array of maps.
    Maps,
    /// Positions, each with two doubles.
    Positions,
    /// Members followed by a position.
    MembersAt1,
    /// Members followed by something else and a position.
    MembersAt2,
    /// Members followed by two other things and a position.
    MembersAt3,
}

/// The form of an element of a RESP2 reply in RESP3.
enum Shape {
    /// The same, except for its nulls.
    Same,
    /// A bulk becomes a double.
    Double,
    /// An array becomes a set.
    Set,
    /// An array in which every element has a shape.
    Each(&'static Shape),
    /// An array whose elements have shapes of their own. Further elements have none.
    Tuple(&'static [Shape]),
    /// Alternating keys and values become a map. Values of some keys have shapes.
    Map(&'static [(&'static [u8], Shape)]),
    /// Arrays of two elements become a map.
    MapOfPairs,
    /// Alternating elements become arrays of two. The second has a shape.
    Pairs(&'static Shape),
}

const SCORED: Shape = Shape::Tuple(&[Shape::Same, Shape::Double]);
const POSITION: Shape = Shape::Each(&Shape::Double);
const PLAIN_MAP: Shape = Shape::Map(&[]);
const GROUP: Shape = Shape::Map(&[(b"consumers", Shape::Each(&PLAIN_MAP))]);

impl Translation {
    /// Every translation.
    pub const ALL: [Translation; 17] = {
        use Translation::*;
        [
            Nulls,
            Map,
            Set,
            Double,
            Doubles,
            ScoredMembers,
            FieldsAndValues,
            ScoredMember,
            ScoredMemberOfKey,
            ScoredMembersOfKey,
            Streams,
            Stream,
            Maps,
            Positions,
            MembersAt1,
            MembersAt2,
            MembersAt3,
        ]
    };

    /// Returns how the reply to `request` must be translated.
    pub fn of(request: &Request) -> Translation {
        use Translation::*;
        let args = &request.args;
        let has = |from: usize, word: &str| has_word(args, from, word);
        let if_has = |from: usize, word: &str, translation: Translation| {
            if has(from, word) { translation } else { Nulls }
        };
        match request.command.verb {
            Verb::Hgetall => Map,
            Verb::Smembers | Verb::Sdiff | Verb::Sinter | Verb::Sunion => Set,
            Verb::Spop if args.len() > 2 => Set,
            Verb::Zscore | Verb::Zincrby => Double,
            Verb::Zadd if is_increment(args) => Double,
            Verb::Zmscore => Doubles,
            Verb::Zrange | Verb::Zrevrange | Verb::Zrangebyscore | Verb::Zrevrangebyscore => {
                if_has(4, "withscores", ScoredMembers)
            }
            Verb::Zrandmember => if_has(3, "withscores", ScoredMembers),
            Verb::Zdiff | Verb::Zinter | Verb::Zunion => {
                let keys = args.get(1).and_then(parse_integer).unwrap_or(0);
                let behind = usize::try_from(keys).unwrap_or(0).saturating_add(2);
                if_has(behind, "withscores", ScoredMembers)
            }
            Verb::Zpopmin | Verb::Zpopmax if args.len() > 2 => ScoredMembers,
            Verb::Zpopmin | Verb::Zpopmax => ScoredMember,
            Verb::Bzpopmin | Verb::Bzpopmax => ScoredMemberOfKey,
            Verb::Zmpop | Verb::Bzmpop => ScoredMembersOfKey,
            Verb::Hrandfield => if_has(3, "withvalues", FieldsAndValues),
            Verb::Xread | Verb::Xreadgroup => Streams,
            Verb::XinfoStream => Stream,
            Verb::XinfoGroups | Verb::XinfoConsumers => Maps,
            Verb::Lcs => if_has(3, "idx", Map),
            Verb::Geopos => Positions,
            Verb::Georadius
            | Verb::GeoradiusRo
            | Verb::Georadiusbymember
            | Verb::GeoradiusbymemberRo
            | Verb::Geosearch => {
                match (has(2, "withcoord"), has(2, "withdist"), has(2, "withhash")) {
                    (false, _, _) => Nulls,
                    (true, false, false) => MembersAt1,
                    (true, true, true) => MembersAt3,
                    (true, _, _) => MembersAt2,
                }
            }
            _ => Nulls,
        }
    }

    fn shape(self) -> Shape {
        match self {
            Translation::Nulls => Shape::Same,
            Translation::Map => PLAIN_MAP,
            Translation::Set => Shape::Set,
            Translation::Double => Shape::Double,
            Translation::Doubles => POSITION,
            Translation::ScoredMembers => Shape::Pairs(&Shape::Double),
            Translation::FieldsAndValues => Shape::Pairs(&Shape::Same),
            Translation::ScoredMember => SCORED,
            Translation::ScoredMemberOfKey => {
                Shape::Tuple(&[Shape::Same, Shape::Same, Shape::Double])
            }
            Translation::ScoredMembersOfKey => Shape::Tuple(&[Shape::Same, Shape::Each(&SCORED)]),
            Translation::Streams => Shape::MapOfPairs,
            Translation::Stream => Shape::Map(&[(b"groups", Shape::Each(&GROUP))]),
            Translation::Maps => Shape::Each(&PLAIN_MAP),
            Translation::Positions => Shape::Each(&POSITION),
            Translation::MembersAt1 => Shape::Each(&Shape::Tuple(&[Shape::Same, POSITION])),
            Translation::MembersAt2 => {
                Shape::Each(&Shape::Tuple(&[Shape::Same, Shape::Same, POSITION]))
            }
            Translation::MembersAt3 => {
                Shape::Each(&Shape::Tuple(&[Shape::Same, Shape::Same, Shape::Same, POSITION]))
            }
        }
    }

    /// Appends the RESP3 form of `reply`, which must be one complete RESP2 reply.
    pub fn translate(self, reply: &[u8], out: &mut Vec<u8>) {
        let mut reader = Reader { rest: reply };
        reader.element(&self.shape(), out);
    }
}

/// Returns whether ZADD increments: INCR is among the options before the first score.
fn is_increment(args: &Args) -> bool {
    let is = |arg: &[u8], word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
    let mut options = args
        .from(2)
        .take_while(|arg| ["nx", "xx", "gt", "lt", "ch", "incr"].iter().any(|word| is(arg, word)));
    options.any(|arg| is(arg, "incr"))
}

/// Returns whether an argument from `from` on equals `word`, in any case.
fn has_word(args: &Args, from: usize, word: &str) -> bool {
    from < args.len() && args.from(from).any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
}

/// Returns whether a bulk may be on the line of a double.
fn is_number(digits: &[u8]) -> bool {
    !digits.is_empty() && digits.iter().all(u8::is_ascii_graphic)
}

/// Reads one reply from its start to its end. The reply was already framed, so what does not fit
/// its shape is copied unchanged.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns the number on the line with which the next element begins.
    fn number(&self) -> i64 {
        head_number(self.rest).unwrap_or(0)
    }

    /// Takes the head of the next element if it is an array that is not null.
    fn array(&mut self) -> Option<usize> {
        let count = self.number();
        if self.rest.first() != Some(&b'*') || count < 0 {
            return None;
        }
        self.line();
        usize::try_from(count).ok()
    }

    fn line(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|&byte| byte == b'\n');
        self.take(end.map_or(self.rest.len(), |end| end + 1))
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Takes the bytes of the next element if it is a bulk that is not null.
    fn bulk(&mut self) -> Option<&'a [u8]> {
        let len = self.number();
        if self.rest.first() != Some(&b'$') || len < 0 {
            return None;
        }
        self.line();
        let bytes = self.take(len as usize);
        self.take(2);
        Some(bytes)
    }

    fn element(&mut self, shape: &Shape, out: &mut Vec<u8>) {
        let to = Protocol::Resp3;
        match shape {
            Shape::Same => return self.same(out),
            Shape::Double => {
                let before = self.rest;
                match self.bulk() {
                    Some(digits) if is_number(digits) => to.double(out, digits),
                    Some(_) => out.extend_from_slice(&before[..before.len() - self.rest.len()]),
                    None => self.same(out),
                }
                return;
            }
            _ => {}
        }
        let Some(count) = self.array() else { return self.same(out) };
        match shape {
            Shape::Set => {
                to.set(out, count);
                (0..count).for_each(|_| self.same(out));
            }
            Shape::Map(fields) if count % 2 == 0 => {
                to.map(out, count / 2);
                (0..count / 2).for_each(|_| self.field(fields, out));
            }
            Shape::MapOfPairs => {
                to.map(out, count);
                (0..count).for_each(|_| self.pair(out));
            }
            Shape::Pairs(second) if count % 2 == 0 => {
                keyway_resp::reply::array(out, count / 2);
                for _ in 0..count / 2 {
                    keyway_resp::reply::array(out, 2);
                    self.same(out);
                    self.element(second, out);
                }
            }
            Shape::Each(each) => {
                keyway_resp::reply::array(out, count);
                (0..count).for_each(|_| self.element(each, out));
            }
            Shape::Tuple(shapes) => {
                keyway_resp::reply::array(out, count);
                (0..count).for_each(|at| self.element(shapes.get(at).unwrap_or(&Shape::Same), out));
            }
            Shape::Map(_) | Shape::Pairs(_) | Shape::Same | Shape::Double => {
                keyway_resp::reply::array(out, count);
                (0..count).for_each(|_| self.same(out));
            }
        }
    }

    /// Writes a field of a map and its value.
    fn field(&mut self, shapes: &'static [(&'static [u8], Shape)], out: &mut Vec<u8>) {
        let before = self.rest;
        let name = self.bulk();
        let shape = shapes.iter().find(|(known, _)| name == Some(*known));
        self.rest = before;
        self.same(out);
        self.element(shape.map_or(&Shape::Same, |(_, shape)| shape), out);
    }

    /// Writes an array of two elements as a field and its value. Anything else becomes the value of
    /// a null, so that the count stays right.
    fn pair(&mut self, out: &mut Vec<u8>) {
        let before = self.rest;
        if self.array() == Some(2) {
            self.same(out);
        } else {
            self.rest = before;
            Protocol::Resp3.null(out);
        }
        self.same(out);
    }

    /// Writes the next element with everything inside, and translates its nulls.
    fn same(&mut self, out: &mut Vec<u8>) {
        let mut left: u64 = 1;
        while left > 0 && !self.rest.is_empty() {
            left -= 1;
            match (self.rest[0], self.number()) {
                (b'$' | b'*', -1) => {
                    self.line();
                    Protocol::Resp3.null(out);
                }
                (b'*', count) => {
                    left += u64::try_from(count).unwrap_or(0);
                    out.extend_from_slice(self.line());
                }
                _ => match frame_reply(self.rest, u32::MAX, 1) {
                    Ok(Framing::Ready { len, .. }) => out.extend_from_slice(self.take(len)),
                    _ => return,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::ByteRange;
    use keyway_resp::Framer;
    use keyway_testkit::{Client, RedisServer, Value};
    use proptest::prelude::*;

    fn translation_of(line: &str) -> Translation {
        let (mut buf, mut ranges) = (Vec::new(), Vec::new());
        for word in line.split(' ') {
            ranges.push(ByteRange::new(buf.len(), buf.len() + word.len()));
            buf.extend_from_slice(word.as_bytes());
        }
        let request = Request::resolve(Args::new(&buf, &ranges));
        Translation::of(&request.unwrap_or_else(|_| panic!("{line} is a request")))
    }

    fn translated(translation: Translation, reply: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        translation.translate(reply, &mut out);
        out
    }

    const FILL: &str = "
        HSET h f 1 g 2
        HSET one f 1
        SADD s a
        SADD s2 a
        ZADD z 1 a 2.5 b inf c -1e30 d
        ZADD z2 3 a
        ZADD z3 1 incr
        XADD x 1-1 f v g w
        XADD x 2-1 f v
        XGROUP CREATE x group 0
        XREADGROUP GROUP group consumer COUNT 1 STREAMS x >
        GEOADD geo 13.361389 38.115556 Palermo
        RPUSH l a b a
        SET text one
        SET other two
    ";

    /// Commands whose RESP2 replies differ from those in RESP3, and some whose replies do not. They
    /// change nothing, or are idempotent.
    const ASKED: &str = "
        HGETALL h
        HGETALL none
        HMGET h f none g
        HGET h none
        HRANDFIELD one 1
        HRANDFIELD one -3 WITHVALUES
        HRANDFIELD none 3 WITHVALUES
        HRANDFIELD h 5 WITHVALUES
        HKEYS h
        SMEMBERS s
        SMEMBERS none
        SINTER s s2
        SUNION s s2
        SDIFF s none
        SRANDMEMBER s
        SRANDMEMBER s 1
        SRANDMEMBER s 9
        SRANDMEMBER s -2
        SRANDMEMBER none
        SPOP none
        SPOP none 2
        SMISMEMBER s a b
        SSCAN s 0
        ZSCORE z b
        ZSCORE z c
        ZSCORE z d
        ZSCORE z none
        ZMSCORE z a none c
        ZINCRBY z 0 b
        ZADD z INCR 0 b
        ZADD z NX INCR 5 b
        ZADD z XX 1 a
        ZADD z3 CH 1 incr
        ZRANGE z 0 -1
        ZRANGE z 0 -1 WITHSCORES
        ZRANGE z 0 -1 withscores
        ZRANGE none 0 -1 WITHSCORES
        ZREVRANGE z 0 -1 WITHSCORES
        ZRANGEBYSCORE z -inf inf WITHSCORES LIMIT 0 2
        ZREVRANGEBYSCORE z inf -inf WITHSCORES
        ZRANDMEMBER z2 2 WITHSCORES
        ZRANDMEMBER z2 -2 WITHSCORES
        ZRANDMEMBER none
        ZUNION 2 z z2 WITHSCORES
        ZUNION 2 z z2
        ZINTER 2 z z2 WEIGHTS 2 3 WITHSCORES
        ZDIFF 2 z z2 WITHSCORES
        ZPOPMIN none
        ZPOPMIN none 2
        ZRANK z none
        ZSCAN z 0
        ZMPOP 1 none MIN
        BZPOPMIN none 0.01
        XRANGE x - +
        XREAD STREAMS x 0
        XREAD STREAMS x 9
        XREADGROUP GROUP group consumer STREAMS x 0
        XINFO GROUPS x
        XINFO STREAM x
        XPENDING x group
        XADD none NOMKSTREAM * f v
        GEOPOS geo Palermo none
        GEODIST geo Palermo none
        GEODIST geo Palermo Palermo
        GEOHASH geo Palermo none
        GEOSEARCH geo FROMMEMBER Palermo BYRADIUS 1 km
        GEOSEARCH geo FROMMEMBER Palermo BYRADIUS 1 km WITHCOORD
        GEOSEARCH geo FROMMEMBER Palermo BYRADIUS 1 km WITHDIST
        GEOSEARCH geo FROMMEMBER Palermo BYRADIUS 1 km WITHCOORD WITHDIST
        GEOSEARCH geo FROMMEMBER Palermo BYRADIUS 1 km WITHHASH WITHCOORD WITHDIST
        GEORADIUS geo 13 38 200 km WITHHASH WITHCOORD
        GEORADIUSBYMEMBER geo Palermo 1 km WITHCOORD
        LCS text other IDX
        LCS text other
        LPOS l none
        LPOS l a RANK 2
        LPOP none
        LPOP none 2
        LMPOP 1 none LEFT
        BLPOP none 0.01
        GET none
        MGET text none
        SORT l ALPHA GET # GET none*
        TYPE none
        OBJECT ENCODING none
        DUMP none
        EVAL return{1,false,'a',{false}} 0
        ZADD text 1 a
    ";

    /// Commands that remove something. Each side gets its own copy of the data.
    const TAKEN: &str = "
        SPOP s 5
        SPOP s2
        ZPOPMAX z
        ZPOPMIN z 1
        ZMPOP 1 z MAX COUNT 2
        BZPOPMIN z2 0
        XREADGROUP GROUP group consumer STREAMS x >
    ";

    fn lines(text: &str) -> impl Iterator<Item = &str> {
        text.lines().map(str::trim).filter(|line| !line.is_empty())
    }

    fn client(server: &RedisServer, version: &str) -> Client {
        let mut client = server.client();
        assert!(!client.command(&["HELLO", version]).is_error());
        client
    }

    fn raw(client: &mut Client, line: &str) -> Vec<u8> {
        client.send(&keyway_testkit::encode(&line.split(' ').collect::<Vec<_>>()));
        client.raw_reply()
    }

    fn compare(old: &mut Client, new: &mut Client, line: &str) {
        let resp2 = raw(old, line);
        let ours = translated(translation_of(line), &resp2);
        let theirs = raw(new, line);
        assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string(), "{line}");
    }

    #[test]
    fn replies_are_translated_to_what_the_server_itself_says_in_resp3() {
        let (one, other) = (RedisServer::start(), RedisServer::start());
        for server in [&one, &other] {
            let mut client = server.client();
            lines(FILL).for_each(|line| assert!(!client.words(line).is_error(), "{line}"));
        }
        let (mut old, mut new) = (client(&one, "2"), client(&one, "3"));
        lines(ASKED).for_each(|line| compare(&mut old, &mut new, line));
        let mut new = client(&other, "3");
        lines(TAKEN).for_each(|line| compare(&mut old, &mut new, line));
    }

    #[test]
    fn what_tells_times_has_the_shape_that_the_server_gives_it() {
        let server = RedisServer::start();
        let (mut old, mut new) = (client(&server, "2"), client(&server, "3"));
        lines(FILL).for_each(|line| drop(old.words(line)));
        let heads = |bytes: &[u8]| -> Vec<String> {
            let text = String::from_utf8_lossy(bytes).into_owned();
            text.lines()
                .filter(|line| line.starts_with(['%', '*', '~']))
                .map(str::to_owned)
                .collect()
        };
        // The idle times of two replies may differ.
        for line in ["XINFO STREAM x FULL", "XPENDING x group - + 10"] {
            let ours = translated(translation_of(line), &raw(&mut old, line));
            let theirs = raw(&mut new, line);
            assert_eq!(heads(&ours), heads(&theirs), "{line}");
        }
    }

    #[test]
    fn what_does_not_fit_its_shape_is_handed_on() {
        for (translation, reply, expected) in [
            (Translation::Map, "*3\r\n+a\r\n$-1\r\n:1\r\n", "*3\r\n+a\r\n_\r\n:1\r\n"),
            (Translation::Map, "-ERR no\r\n", "-ERR no\r\n"),
            (Translation::Set, ":1\r\n", ":1\r\n"),
            (Translation::Double, "$3\r\na\r\n\r\n", "$3\r\na\r\n\r\n"),
            (Translation::Double, "*1\r\n*-1\r\n", "*1\r\n_\r\n"),
            (
                Translation::Streams,
                "*2\r\n:1\r\n*1\r\n:2\r\n",
                "%2\r\n_\r\n:1\r\n_\r\n*1\r\n:2\r\n",
            ),
            (Translation::ScoredMembers, "*1\r\n+a\r\n", "*1\r\n+a\r\n"),
            // A length is the one that the framer read, in whatever form.
            (Translation::Doubles, "*01\r\n$02\r\n10\r\n", "*1\r\n,10\r\n"),
            (Translation::Nulls, "*1\r\n$-01\r\n", "*1\r\n_\r\n"),
        ] {
            let ours = translated(translation, reply.as_bytes());
            assert_eq!(String::from_utf8(ours).unwrap(), expected, "{translation:?} {reply:?}");
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            Just(Value::NilArray),
            any::<i64>().prop_map(Value::Integer),
            proptest::collection::vec(any::<u8>(), 0..6).prop_map(Value::Bulk),
            Just(Value::simple("OK")),
            Just(Value::Error(b"ERR".to_vec())),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            proptest::collection::vec(inner, 0..5).prop_map(Value::Array)
        })
    }

    fn write(value: &Value, out: &mut Vec<u8>) {
        use keyway_resp::reply;
        match value {
            Value::Nil => reply::null(out),
            Value::NilArray => reply::null_array(out),
            Value::Integer(number) => reply::integer(out, *number),
            Value::Bulk(bytes) => reply::bulk(out, bytes),
            Value::Array(items) => {
                reply::array(out, items.len());
                items.iter().for_each(|item| write(item, out));
            }
            Value::Error(_) => reply::error(out, "ERR"),
            _ => reply::simple(out, "OK"),
        }
    }

    proptest! {
        #[test]
        fn every_reply_becomes_exactly_one_reply(
            value in any_value(),
            translation in proptest::sample::select(Translation::ALL.to_vec()),
        ) {
            let mut reply = Vec::new();
            write(&value, &mut reply);
            let out = translated(translation, &reply);
            let framed = Framer::new(Protocol::Resp3).frame(&out, u32::MAX, 16);
            let is_one = matches!(framed, Ok(Framing::Ready { len, .. }) if len == out.len());
            prop_assert!(is_one, "{value:?}: {}", out.escape_ascii());
            prop_assert!(!out.windows(5).any(|bytes| bytes == b"\n$-1\r" || bytes == b"\n*-1\r"));
        }
    }

    #[test]
    fn what_a_request_asks_for_tells_the_shape_of_its_reply() {
        for (line, translation) in [
            ("SPOP s", Translation::Nulls),
            ("SPOP s 2", Translation::Set),
            ("ZADD z 1 a", Translation::Nulls),
            ("ZADD z ch 1 incr", Translation::Nulls),
            ("ZADD z ch incr 1 a", Translation::Double),
            ("ZADD z INCR 1 a", Translation::Double),
            ("ZPOPMIN z", Translation::ScoredMember),
            ("ZPOPMAX z 1", Translation::ScoredMembers),
            ("ZRANGE z 0 1", Translation::Nulls),
            ("ZRANGE z 0 1 WithScores", Translation::ScoredMembers),
        ] {
            assert_eq!(translation_of(line), translation, "{line}");
        }
    }

    #[test]
    fn nulls_and_maps_are_translated_wherever_they_lie() {
        for (translation, reply, expected) in [
            (
                Translation::Nulls,
                "*2\r\n$-1\r\n*2\r\n:1\r\n*-1\r\n",
                "*2\r\n_\r\n*2\r\n:1\r\n_\r\n",
            ),
            (Translation::Nulls, "*0\r\n", "*0\r\n"),
            (
                Translation::Maps,
                "*2\r\n*2\r\n$1\r\na\r\n:1\r\n*4\r\n$1\r\nb\r\n:2\r\n$1\r\nc\r\n$-1\r\n",
                "*2\r\n%1\r\n$1\r\na\r\n:1\r\n%2\r\n$1\r\nb\r\n:2\r\n$1\r\nc\r\n_\r\n",
            ),
        ] {
            let got = translated(translation, reply.as_bytes());
            assert_eq!(String::from_utf8_lossy(&got), expected);
        }
    }
}
