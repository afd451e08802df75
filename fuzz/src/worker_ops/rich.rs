//! Whatever a connection can be put into: transactions, watches, waits,
//! subscriptions, another protocol, tracking, monitoring, silence. Clients in
//! these states are held to nothing but that they are sent whole replies; the
//! laws about them are the simulator's. What counts here is that no order of
//! them, and nothing a server says in between, breaks the worker or disturbs
//! the clients that are held to more.

use crate::Choices;
use keyway_resp::reply;

/// Requests in no order in particular; `K` is a key or a channel.
const LINES: [&str; 62] = [
    "MULTI",
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH K",
    "WATCH K K",
    "UNWATCH",
    "GET K",
    "SET K v",
    "INCR K",
    "MGET K K K",
    "DEL K K",
    "BLPOP K 0",
    "BLPOP K K 0.5",
    "BLMPOP 0.1 1 K LEFT",
    "XREAD BLOCK 100 STREAMS K $",
    "BRPOPLPUSH K K 1",
    "WAIT 1 100",
    "WAIT 0 0",
    "SUBSCRIBE K",
    "SUBSCRIBE K K K",
    "PSUBSCRIBE k*",
    "SSUBSCRIBE K",
    "UNSUBSCRIBE",
    "UNSUBSCRIBE K",
    "PUNSUBSCRIBE",
    "SUNSUBSCRIBE K",
    "PUBLISH K text",
    "SPUBLISH K text",
    "PUBSUB CHANNELS",
    "PUBSUB NUMSUB K K",
    "PUBSUB NUMPAT",
    "HELLO",
    "HELLO 2",
    "HELLO 3",
    "HELLO 3 SETNAME name",
    "HELLO 3 AUTH default secret",
    "CLIENT TRACKING ON",
    "CLIENT TRACKING OFF",
    "CLIENT TRACKING ON BCAST PREFIX k",
    "CLIENT TRACKING ON OPTIN",
    "CLIENT TRACKING ON OPTOUT NOLOOP",
    "CLIENT TRACKING ON REDIRECT 2",
    "CLIENT CACHING YES",
    "CLIENT CACHING NO",
    "CLIENT TRACKINGINFO",
    "CLIENT GETREDIR",
    "CLIENT UNBLOCK 2",
    "CLIENT UNBLOCK 1 ERROR",
    "CLIENT PAUSE 50 WRITE",
    "CLIENT UNPAUSE",
    "CLIENT REPLY OFF",
    "CLIENT REPLY SKIP",
    "CLIENT REPLY ON",
    "MONITOR",
    "RESET",
    "RESET",
    "SELECT 1",
    "DBSIZE",
    "SCAN 0",
    "PING text",
];

/// What a server may push, or say without being asked.
const PUSHES: [&str; 14] = [
    "*3\r\n$7\r\nmessage\r\n$2\r\nk0\r\n$1\r\nx\r\n",
    "*4\r\n$8\r\npmessage\r\n$2\r\nk*\r\n$2\r\nk1\r\n$1\r\nx\r\n",
    "*3\r\n$8\r\nsmessage\r\n$2\r\nk2\r\n$0\r\n\r\n",
    "*3\r\n$9\r\nsubscribe\r\n$2\r\nk0\r\n:1\r\n",
    "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n",
    ">3\r\n$7\r\nmessage\r\n$2\r\nk0\r\n$1\r\nx\r\n",
    ">3\r\n$9\r\nsubscribe\r\n$2\r\nk0\r\n:1\r\n",
    ">2\r\n$10\r\ninvalidate\r\n*1\r\n$2\r\nk0\r\n",
    ">2\r\n$10\r\ninvalidate\r\n*2\r\n$2\r\nk0\r\n$-1\r\n",
    ">2\r\n$10\r\ninvalidate\r\n_\r\n",
    ">2\r\n$10\r\ninvalidate\r\n%1\r\n+a\r\n+b\r\n",
    ">1\r\n$10\r\ninvalidate\r\n",
    ">0\r\n",
    "|1\r\n+key\r\n+value\r\n>2\r\n+a\r\n:1\r\n",
];

/// One request.
pub fn line(choices: &mut Choices) -> Vec<Vec<u8>> {
    let words = choices.pick(&LINES).split(' ');
    words
        .map(|word| match word {
            "K" => format!("k{}", choices.below(8)).into_bytes(),
            word => word.as_bytes().to_vec(),
        })
        .collect()
}

/// Something pushed; at times cut off, or in pieces with other bytes between.
pub fn push(choices: &mut Choices) -> Vec<u8> {
    let mut bytes = choices.pick(&PUSHES).as_bytes().to_vec();
    match choices.below(6) {
        0 => bytes.truncate(choices.below(bytes.len())),
        1 => bytes.extend_from_slice(choices.bytes(8)),
        _ => {}
    }
    bytes
}

/// What a server knows of one connection.
#[derive(Default)]
pub struct State {
    is_resp3: bool,
    /// Commands queued since `MULTI`.
    queued: Option<usize>,
    subscriptions: usize,
    /// It waits for what never comes, and answers nothing more.
    pub is_blocked: bool,
}

impl State {
    /// Answers what is about such states; whether it was.
    pub fn answer(&mut self, words: &[&[u8]], knows_hello: bool, out: &mut Vec<u8>) -> bool {
        let name = words[0].to_ascii_uppercase();
        match &name[..] {
            b"HELLO" if knows_hello => {
                self.is_resp3 = true;
                out.extend_from_slice(b"%1\r\n$5\r\nproto\r\n:3\r\n");
            }
            b"HELLO" => reply::error(out, "ERR unknown command 'HELLO'"),
            b"MULTI" => {
                self.queued = Some(0);
                reply::simple(out, "OK");
            }
            b"EXEC" => {
                let count = self.queued.take().expect("EXEC without MULTI sent to a server");
                reply::array(out, count);
                (0..count).for_each(|_| reply::simple(out, "OK"));
            }
            b"DISCARD" => {
                self.queued = None;
                reply::simple(out, "OK");
            }
            _ if self.queued.is_some() => {
                self.queued = self.queued.map(|count| count + 1);
                reply::simple(out, "QUEUED");
            }
            b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE" | b"UNSUBSCRIBE" | b"PUNSUBSCRIBE"
            | b"SUNSUBSCRIBE" => self.change(&name, words, out),
            b"PING" if self.subscriptions > 0 && !self.is_resp3 => {
                reply::array(out, 2);
                reply::bulk(out, b"pong");
                reply::bulk(out, b"");
            }
            b"BLPOP" | b"BRPOPLPUSH" | b"BLMPOP" | b"XREAD" => {
                self.is_blocked = words.last() == Some(&&b"0"[..]);
                if !self.is_blocked {
                    out.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"*-1\r\n" });
                }
            }
            b"WAIT" | b"PUBLISH" | b"SPUBLISH" | b"DBSIZE" => reply::integer(out, 1),
            _ => return false,
        }
        true
    }

    fn change(&mut self, name: &[u8], words: &[&[u8]], out: &mut Vec<u8>) {
        let is_end = name.windows(5).any(|part| part == b"UNSUB");
        for word in &words[1..] {
            self.subscriptions = match is_end {
                true => self.subscriptions.saturating_sub(1),
                false => self.subscriptions + 1,
            };
            out.extend_from_slice(if self.is_resp3 { b">3\r\n" } else { b"*3\r\n" });
            reply::bulk(out, &name.to_ascii_lowercase());
            reply::bulk(out, word);
            reply::integer(out, self.subscriptions as i64);
        }
    }
}
