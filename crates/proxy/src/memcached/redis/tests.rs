use super::*;
use keyway_base::Limits;
use keyway_memcache::{ParseLimits, Parsed, Request, Wire, parse_request};
use proptest::prelude::*;

const TERMS: Terms = Terms { item_len_max: 1 << 20, database: 3 };

fn parsed(bytes: &[u8]) -> Request {
    let mut request = Request::default();
    let limits = ParseLimits::of(&Limits::default(), 1 << 20);
    let outcome = parse_request(bytes, Wire::of(bytes[0]), &limits, &mut request);
    assert_eq!(outcome, Parsed::Ready { consumed: bytes.len() }, "{}", bytes.escape_ascii());
    request
}

/// Returns what is sent to a server: its words between blanks, each as escaped text.
fn sent(bytes: &[u8]) -> Result<(String, Question, Expect), &'static str> {
    let request = parsed(bytes);
    let command = RedisCommand::of(&request.head, request.keys.len())?;
    let mut out = Vec::new();
    let value = request.value.of(bytes);
    let (question, expect) =
        command.write(&mut out, &request.head, request.keys(bytes), value, TERMS);
    Ok((words_of(&out), question, expect))
}

/// Returns the arguments of a request, which takes all of `bytes`.
fn words_of(mut bytes: &[u8]) -> String {
    let mut line = |mark: u8| {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n").expect("a line");
        assert_eq!(bytes[0], mark);
        let number: usize = std::str::from_utf8(&bytes[1..end]).unwrap().parse().unwrap();
        bytes = &bytes[end + 2..];
        let word = (mark == b'$').then(|| {
            let word = bytes[..number].escape_ascii().to_string();
            assert_eq!(&bytes[number..number + 2], b"\r\n");
            bytes = &bytes[number + 2..];
            word
        });
        (number, word.unwrap_or_default())
    };
    let (count, _) = line(b'*');
    let words: Vec<String> = (0..count).map(|_| line(b'$').1).collect();
    assert!(bytes.is_empty(), "more than was counted: {}", bytes.escape_ascii());
    words.join(" ").replace(&script().hex, "SHA")
}

#[test]
fn requests_are_put_in_the_words_of_redis() {
    for (said, expected) in [
        ("get k\r\n", "GET k"),
        ("gets a b c\r\n", "MGET a b c"),
        ("gat 0 k\r\n", "GETEX k PERSIST"),
        ("gat 60 k\r\n", "GETEX k EX 60"),
        ("gat -1 k\r\n", "GETEX k PXAT 1"),
        ("gat 60 a b\r\n", "EVALSHA SHA 2 a b gat EX 60"),
        ("gat 0 a b\r\n", "EVALSHA SHA 2 a b gat PERSIST "),
        ("set k 0 0 1\r\nv\r\n", "SET k v"),
        ("set k 0 2592000 1\r\nv\r\n", "SET k v EX 2592000"),
        ("set k 0 2592001 1\r\nv\r\n", "SET k v EXAT 2592001"),
        ("set k 1 -5 1\r\nv\r\n", r"SET k \xc1mc\x01\x00\x00\x00\x01v PXAT 1"),
        ("add k 0 9 1\r\nv\r\n", "SET k v NX EX 9"),
        ("replace k 0 0 1\r\nv\r\n", "SET k v XX"),
        ("append k 5 5 1\r\nv\r\n", "EVALSHA SHA 1 k append  v 1048576 "),
        ("ms k 1 MP c\r\nv\r\n", "EVALSHA SHA 1 k prepend  v 1048576 1"),
        ("cas k 0 5 1 255\r\nv\r\n", "EVALSHA SHA 1 k cas 00000000000000ff v EX 5"),
        ("cas k 0 0 1 1\r\nv\r\n", "EVALSHA SHA 1 k cas 0000000000000001 v  "),
        ("delete k\r\n", "DEL k"),
        ("md k C16\r\n", "EVALSHA SHA 1 k delete 0000000000000010"),
        ("touch k 0\r\n", "EVALSHA SHA 1 k touch"),
        ("touch k 5\r\n", "EXPIRE k 5"),
        ("touch k -5\r\n", "PEXPIREAT k 1"),
        ("incr k 5\r\n", "EVALSHA SHA 1 k incr  5  KEEPTTL   "),
        ("ma k MD D7 N30 J9\r\n", "EVALSHA SHA 1 k decr  7 9 KEEPTTL  EX 30"),
        ("ma k T60 N30\r\n", "EVALSHA SHA 1 k incr  1 0 EX 60 EX 60"),
        ("ma k T0\r\n", "EVALSHA SHA 1 k incr  1     "),
        ("mg k t v\r\n", "EVALSHA SHA 1 k look"),
        ("flush_all\r\n", "FLUSHDB"),
        ("stats\r\n", "INFO"),
    ] {
        assert_eq!(sent(said.as_bytes()).map(|sent| sent.0), Ok(expected.to_owned()), "{said}");
    }
    for refused in ["mg k h\r\n", "md k I\r\n", "me k\r\n", "flush_all 5\r\n", "stats items\r\n"] {
        let told = sent(refused.as_bytes()).expect_err(refused);
        assert!(told.starts_with("the servers are of Redis") && told.len() < 70, "{told}");
    }
}

/// Returns the client's reply when the server answers `reply`.
fn heard(said: &[u8], reply: &[u8]) -> String {
    let (_, question, _) = sent(said).expect("it is sent");
    let request = parsed(said);
    let mut out = b"before".to_vec();
    read(&mut out, question, &request.head, request.keys(said), reply);
    out.strip_prefix(b"before").expect("what was there stays").escape_ascii().to_string()
}

#[test]
fn replies_are_read_as_those_of_memcached() {
    for (said, reply, expected) in [
        ("get k\r\n", "$-1\r\n", "EN"),
        ("get k\r\n", "$1\r\nv\r\n", r"VA 1 f0\r\nv"),
        ("mg k c\r\n", "$3\r\nabc\r\n", r"VA 3 f0 c763804216667957270\r\nabc"),
        (
            "get a b c\r\n",
            "*3\r\n$1\r\nA\r\n$-1\r\n$0\r\n\r\n",
            r"VALUE a 0 1\r\nA\r\nVALUE c 0 0\r\n\r\nEND",
        ),
        ("set k 0 0 1\r\nv\r\n", "+OK\r\n", "HD"),
        ("add k 0 0 1\r\nv\r\n", "$-1\r\n", "NS"),
        ("ms k 3 c s\r\nabc\r\n", "+OK\r\n", "HD c763804216667957270 s3"),
        ("delete k\r\n", ":1\r\n", "HD"),
        ("delete k\r\n", ":0\r\n", "NF"),
        (
            "incr k 1\r\n",
            "*3\r\n$2\r\nVA\r\n$2\r\n10\r\n$16\r\n000000000000000f\r\n",
            r"VA 2 c15\r\n10",
        ),
        ("incr k 1\r\n", "*1\r\n$2\r\nNF\r\n", "NF"),
        (
            "incr k 1\r\n",
            "*1\r\n$3\r\nNAN\r\n",
            "CLIENT_ERROR cannot increment or decrement non-numeric value",
        ),
        ("append k 0 0 1\r\nv\r\n", "*1\r\n$3\r\nBIG\r\n", "NS"),
        ("mg k t\r\n", "*3\r\n$2\r\nVA\r\n$1\r\nv\r\n:1001\r\n", r"VA 1 f0 t2\r\nv"),
        ("flush_all\r\n", "+OK\r\n", "OK"),
        ("get k\r\n", "-OOM command not allowed\r\n", "SERVER_ERROR out of memory storing object"),
        ("get k\r\n", "-ERR what\r\n", "SERVER_ERROR the server of Redis said: ERR what"),
        (
            "incr k 1\r\n",
            "-ERR Error running script (call to f_1): @user_script:5: WRONGTYPE Operation\r\n",
            "SERVER_ERROR key holds another type of Redis: use Redis commands for it, or set it anew",
        ),
    ] {
        assert_eq!(heard(said.as_bytes(), reply.as_bytes()), format!(r"{expected}\r\n"), "{said}");
    }
    for (said, reply) in [
        ("get k\r\n", ":1\r\n"),
        ("get a b\r\n", "*1\r\n$1\r\nv\r\n"),
        ("set k 0 0 1\r\nv\r\n", ":1\r\n"),
        ("delete k\r\n", "+OK\r\n"),
        ("incr k 1\r\n", "*0\r\n"),
        ("incr k 1\r\n", "*1\r\n$5\r\nOTHER\r\n"),
    ] {
        let told = heard(said.as_bytes(), reply.as_bytes());
        assert!(told.starts_with("SERVER_ERROR a server of Redis answered"), "{said}: {told}");
    }
}

#[test]
fn what_a_server_says_of_itself_is_told_under_memcacheds_names() {
    let text = "# Keyspace\r\nkeyspace_hits:3\r\nkeyspace_misses:4\r\ndb0:keys=9,expires=0\r\ndb3:keys=5,expires=1\r\n";
    let told = heard(b"stats\r\n", format!("${}\r\n{text}\r\n", text.len()).as_bytes());
    for wanted in [r"STAT cmd_get 7\r\n", r"STAT curr_items 5\r\n", r"STAT bytes 0\r\n"] {
        assert!(told.contains(wanted), "{told}");
    }
    assert!(told.ends_with(r"END\r\n"));
}

proptest! {
    /// A server may answer anything.
    #[test]
    fn any_reply_is_answered_by_whole_elements(
        reply in prop::collection::vec(prop::sample::select(vec![
            "$1\r\nv\r\n", "$-1\r\n", ":1\r\n", "*2\r\n", "*-1\r\n", "+OK\r\n", "-ERR x\r\n",
            "$2\r\nVA\r\n", "$2\r\nHD\r\n", "$9\r\nv\r\n", "$x\r\n", "junk",
        ]), 0..5),
        which in 0usize..6,
    ) {
        let said = ["get k\r\n", "get a b\r\n", "incr k 1\r\n", "delete k\r\n", "stats\r\n", "touch k 0\r\n"];
        let told = heard(said[which].as_bytes(), reply.concat().as_bytes());
        prop_assert!(told.ends_with(r"\r\n"));
    }
}
