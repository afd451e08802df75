//! The handshake: user, protocol and database.
//!
//! A link with RESP3 begins with `HELLO 3`. If a server refuses it in any way, it may still accept
//! the commands of RESP2. Then its replies are translated. `HELLO` is sent again on every new
//! connection, because a server may be upgraded.

use super::{Link, LinkOptions, LinkState};
use keyway_base::Time;
use keyway_resp::{Framer, Kind, Protocol, reply};

/// The user to which a password without a name belongs.
const USER: &[u8] = b"default";

/// The requests that follow the reply to `HELLO`.
#[derive(Debug)]
pub(super) struct Greeting {
    /// For a server that does not know `HELLO`: its requests, and their number.
    auth: (Vec<u8>, u8),
    /// For every server: requests, and their number.
    selects: (Vec<u8>, u8),
}

/// The requests for tracking, which a link sends after its handshake and before any other request.
/// A server that does not accept it, or that does not support RESP3 where that is required, is not
/// used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announcement {
    /// Requests in their wire form. Each is answered with `OK`.
    pub requests: Vec<u8>,
    /// Number of requests.
    pub count: u8,
}

impl Link {
    /// Sets what is sent on the next connection.
    pub fn announce(&mut self, announcement: Announcement) {
        self.announcement = Some(announcement);
    }

    fn announced(&self) -> (Vec<u8>, u8) {
        self.announcement.as_ref().map_or_else(Default::default, |announcement| {
            (announcement.requests.clone(), announcement.count)
        })
    }

    /// Creates a link for clients that use `protocol`.
    pub fn new(protocol: Protocol) -> Link {
        Link { protocol, ..Link::default() }
    }

    /// Returns the protocol of its replies, whatever the server uses.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Notes that the connection is established, and prepares the handshake.
    pub fn on_connected(&mut self, options: &LinkOptions, now: Time) {
        let deadline = now + options.connect_timeout;
        if let Some(memcached) = &options.memcached {
            return self.on_memcached_connected(memcached, options, deadline, now);
        }
        let greeting = Greeting { auth: auth(options), selects: selects(options) };
        self.trace.slower_than = options.slower_than;
        self.progress = now;
        self.answered = false;
        self.translates = self.protocol == Protocol::Resp3;
        let needs_resp3 = self.announcement.is_some();
        if self.translates && (needs_resp3 || !self.was_lost_greeting) {
            write_hello(options.password.as_deref(), self.handshake.buf());
            self.framer = Framer::new(Protocol::Resp3);
            self.greeting = Some(Box::new(greeting));
            self.state = LinkState::Handshaking { left: 1, deadline };
        } else {
            self.framer = Framer::default();
            self.introduce([greeting.auth, greeting.selects, self.announced()], deadline);
        }
    }

    /// Sends these requests of the handshake, if there are any.
    fn introduce<const N: usize>(&mut self, parts: [(Vec<u8>, u8); N], deadline: Time) {
        let mut left = 0;
        for (bytes, count) in parts {
            self.handshake.buf().extend_from_slice(&bytes);
            left += count;
        }
        self.state = match left {
            0 => LinkState::Ready,
            left => LinkState::Handshaking { left, deadline },
        };
    }

    /// Handles the reply to `HELLO`. Returns whether the connection may be used.
    pub(super) fn on_greeted(&mut self, greeting: Greeting, kind: Kind, deadline: Time) -> bool {
        if kind == Kind::Map {
            self.translates = false;
            self.introduce([greeting.selects, self.announced()], deadline);
        } else if self.announcement.is_some() {
            return false;
        } else {
            self.framer = Framer::default();
            self.introduce([greeting.auth, greeting.selects], deadline);
        }
        true
    }
}

fn write_hello(password: Option<&str>, out: &mut Vec<u8>) {
    reply::array(out, if password.is_some() { 5 } else { 2 });
    reply::bulk(out, b"HELLO");
    reply::bulk(out, b"3");
    if let Some(password) = password {
        reply::bulk(out, b"AUTH");
        reply::bulk(out, USER);
        reply::bulk(out, password.as_bytes());
    }
}

fn auth(options: &LinkOptions) -> (Vec<u8>, u8) {
    let mut out = Vec::new();
    let Some(password) = &options.password else { return (out, 0) };
    reply::array(&mut out, 2);
    reply::bulk(&mut out, b"AUTH");
    reply::bulk(&mut out, password.as_bytes());
    (out, 1)
}

fn selects(options: &LinkOptions) -> (Vec<u8>, u8) {
    let (mut out, mut count) = (Vec::new(), 0);
    let own = options.database;
    let last = own + options.databases.saturating_sub(1);
    let selects = [(last > own, last), (last > own || own != 0, own)];
    for (_, database) in selects.into_iter().filter(|(is_needed, _)| *is_needed) {
        reply::array(&mut out, 2);
        reply::bulk(&mut out, b"SELECT");
        reply::bulk(&mut out, database.to_string().as_bytes());
        count += 1;
    }
    (out, count)
}

#[cfg(test)]
mod tests {
    use super::super::Translation;
    use super::*;
    use crate::link::tests;
    use crate::{Internal, Owner};
    use keyway_base::{BackendFault, Key, Limits};
    use keyway_command::Counted;

    fn options(password: Option<&str>) -> LinkOptions {
        LinkOptions { password: password.map(str::to_owned), database: 2, ..tests::options() }
    }

    fn connected(link: &mut Link, password: Option<&str>) {
        link.on_connecting(&options(password), Time(0));
        link.on_connected(&options(password), Time(0));
    }

    fn link(password: Option<&str>) -> Link {
        let mut link = Link::new(Protocol::Resp3);
        connected(&mut link, password);
        link
    }

    /// Returns what the link sends now, with blanks between the arguments.
    fn sent(link: &mut Link) -> String {
        let bytes = link.unsent().to_vec();
        link.advance(bytes.len());
        let text = String::from_utf8(bytes).unwrap();
        let is_word = |line: &&str| !line.starts_with(['$', '*']) && !line.is_empty();
        text.split("\r\n").filter(is_word).collect::<Vec<_>>().join(" ")
    }

    /// Returns the replies that the link delivers, or why it must be closed.
    fn hear(link: &mut Link, bytes: &str) -> Result<Vec<String>, BackendFault> {
        let mut got = Vec::new();
        link.handle_input(bytes.as_bytes(), &Limits::default(), Time(0), |_, kind, reply| {
            assert_eq!(Kind::of(reply), Some(kind));
            got.push(String::from_utf8(reply.to_vec()).unwrap());
        })?;
        Ok(got)
    }

    fn ask(link: &mut Link, translation: Translation) {
        let owner = Owner::Session { session: Key::NONE, sequence: 0 };
        link.request_buf().extend_from_slice(b"*1\r\n$3\r\nASK\r\n");
        link.enqueue(owner, Counted::OWN, 13, Time(0));
        link.set_translation(translation);
    }

    const UNKNOWN: &str = "-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n";

    #[test]
    fn a_server_that_speaks_resp3_is_greeted_and_then_told_the_database() {
        let mut link = link(Some("secret"));
        assert_eq!(sent(&mut link), "HELLO 3 AUTH default secret");
        assert_eq!(hear(&mut link, "%1\r\n+proto\r\n:3\r\n"), Ok(vec![]));
        assert_eq!(sent(&mut link), "SELECT 2");
        assert!(matches!(link.state(), LinkState::Handshaking { left: 1, .. }));
        hear(&mut link, "+OK\r\n").unwrap();
        assert_eq!(link.state(), LinkState::Ready);
        ask(&mut link, Translation::Map);
        assert_eq!(hear(&mut link, "%0\r\n"), Ok(vec!["%0\r\n".to_owned()]));
    }

    #[test]
    fn what_agrees_before_it_was_asked_ends_the_connection() {
        for said in ["+OK\r\n", "%1\r\n+proto\r\n:3\r\n", "*0\r\n"] {
            let mut link = link(Some("secret"));
            assert_eq!(hear(&mut link, said), Err(BackendFault::Protocol), "{said}");
        }
        let mut link = Link::default();
        connected(&mut link, Some("secret"));
        assert_eq!(hear(&mut link, "+OK\r\n"), Err(BackendFault::Protocol));
        // This is half of the last question.
        let mut link = Link::default();
        connected(&mut link, Some("secret"));
        link.advance(link.unsent().len() - 1);
        assert_eq!(hear(&mut link, "+OK\r\n"), Ok(vec![]));
        assert_eq!(hear(&mut link, "+OK\r\n"), Err(BackendFault::Protocol));
        // A server that accepts no client says so at once.
        let mut link = Link::default();
        connected(&mut link, Some("secret"));
        assert_eq!(hear(&mut link, "-DENIED not you\r\n"), Err(BackendFault::Handshake));
        assert_eq!(link.handshake_refusal(), b"-DENIED not you");
    }

    #[test]
    fn a_server_that_does_not_is_spoken_to_in_resp2_and_translated() {
        for said in [UNKNOWN, "-NOPROTO sorry\r\n", "-NOAUTH HELLO must be called\r\n", "*0\r\n"] {
            let mut link = link(Some("secret"));
            sent(&mut link);
            assert_eq!(hear(&mut link, said), Ok(vec![]), "{said}");
            assert_eq!(sent(&mut link), "AUTH secret SELECT 2");
            hear(&mut link, "+OK\r\n+OK\r\n").unwrap();
            assert_eq!(link.state(), LinkState::Ready);
            ask(&mut link, Translation::Map);
            ask(&mut link, Translation::Nulls);
            let got = hear(&mut link, "*2\r\n+a\r\n$-1\r\n*-1\r\n");
            assert_eq!(got.unwrap(), ["%1\r\n+a\r\n_\r\n", "_\r\n"], "{said}");
            ask(&mut link, Translation::Nulls);
            let fault = hear(&mut link, "%0\r\n");
            assert_eq!(fault, Err(BackendFault::Protocol), "RESP3 was not agreed on");
        }
    }

    #[test]
    fn a_wrong_password_is_refused_in_the_words_of_either_version() {
        let mut link = link(Some("wrong"));
        sent(&mut link);
        hear(&mut link, "-WRONGPASS invalid\r\n").unwrap();
        assert_eq!(sent(&mut link), "AUTH wrong SELECT 2");
        assert_eq!(hear(&mut link, "-WRONGPASS invalid\r\n"), Err(BackendFault::Handshake));
        assert_eq!(link.handshake_refusal(), b"-WRONGPASS invalid");
    }

    #[test]
    fn a_server_that_is_loading_is_not_taken_for_an_old_one() {
        let mut link = link(None);
        assert_eq!(sent(&mut link), "HELLO 3");
        assert_eq!(hear(&mut link, "-LOADING soon\r\n"), Err(BackendFault::NotReady));
        link.on_lost(false, |_| ());
        connected(&mut link, None);
        assert_eq!(sent(&mut link), "HELLO 3");
    }

    #[test]
    fn after_one_that_closes_at_the_greeting_the_next_connection_does_without() {
        let mut link = link(None);
        assert_eq!(sent(&mut link), "HELLO 3");
        link.on_lost(false, |_| ());
        connected(&mut link, None);
        assert_eq!(sent(&mut link), "SELECT 2");
        hear(&mut link, "+OK\r\n").unwrap();
        ask(&mut link, Translation::Nulls);
        assert_eq!(hear(&mut link, "$-1\r\n").unwrap(), ["_\r\n"]);
        link.on_lost(false, |_| ());
        connected(&mut link, None);
        assert_eq!(sent(&mut link), "HELLO 3", "it may know it by now");
        // A server that never received the greeting says nothing by closing.
        link.on_lost(false, |_| ());
        connected(&mut link, None);
        link.on_lost(false, |_| ());
        connected(&mut link, None);
        assert_eq!(sent(&mut link), "HELLO 3");
    }

    #[test]
    fn a_push_is_no_reply() {
        let mut link = link(None);
        sent(&mut link);
        hear(&mut link, ">1\r\n+x\r\n%0\r\n").unwrap();
        sent(&mut link);
        hear(&mut link, "+OK\r\n").unwrap();
        ask(&mut link, Translation::Nulls);
        let bytes = b">2\r\n+invalidate\r\n_\r\n:1\r\n>1\r\n+x\r\n";
        let mut owners = Vec::new();
        link.handle_input(bytes, &Limits::default(), Time(0), |exchange, kind, _| {
            owners.push((exchange.owner, kind));
        })
        .unwrap();
        let unasked = (Owner::Internal(Internal::Unasked), Kind::Push);
        assert_eq!((owners[0], owners[1].1, owners[2]), (unasked, Kind::Integer, unasked));
        assert_eq!(link.in_flight(), 0);
    }

    #[test]
    fn a_refused_select_answers_in_place_of_what_is_translated() {
        let mut link = link(None);
        sent(&mut link);
        hear(&mut link, UNKNOWN).unwrap();
        sent(&mut link);
        hear(&mut link, "+OK\r\n").unwrap();
        link.select(5, &options(None), Time(0));
        ask(&mut link, Translation::Map);
        let got = hear(&mut link, "-ERR DB index is out of range\r\n*0\r\n").unwrap();
        assert_eq!(got.len(), 2);
        assert!(got[1].starts_with("-ERR DB index is out of range (said to SELECT"), "{got:?}");
    }
}
