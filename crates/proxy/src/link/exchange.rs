use super::Translation;
use crate::{Operation, Session};
use keyway_base::{Key, Time};
use keyway_command::{Class, Counted};
use keyway_memcache::Expect;

/// Requests of the worker's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Internal {
    /// `SELECT`, sent before a request for another database than the last.
    Select,
    /// `PING`, sent to find out whether an ejected backend answers again.
    Probe,
    /// `FLUSHALL` or `FLUSHDB`, sent before a backend is used again.
    Flush,
    /// What the marker says of a server of memcached in use.
    Look,
    /// A step in which such a server comes back.
    Return,
    /// `SCRIPT LOAD` or `FUNCTION LOAD`, sent before a request that needs it.
    Load,
    /// `MULTI` and `EXEC`, sent to a server that refused the former.
    Multi,
    /// `CLIENT ID`, sent to know how to unblock the client of a private link.
    ClientId,
    /// `CLUSTER SLOTS` or its like: the question of this number.
    Cluster(u32),
    /// `CLUSTER NODES`, to know whether a server is one of the cluster.
    Names,
    /// `INFO replication`.
    Replication,
    /// `READONLY` or `READWRITE`, sent before a request that needs it.
    Mode,
    /// Nothing: what comes is a push, on a link that is for one client.
    Push,
    /// Nothing: what comes is a push that nobody has asked for.
    Unasked,
}

/// Who waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A client, and which of its replies.
    Session {
        /// The session; stale once the client is gone.
        session: Key<Session>,
        /// Index of the reply in its [`crate::ReplyOrder`].
        sequence: u32,
    },
    /// A request that takes several exchanges.
    Operation {
        /// The request; stale once it was answered.
        operation: Key<Operation>,
        /// Which part of it: a fragment of a join, an item copy of a warm-up read.
        part: u32,
    },
    /// The worker itself.
    Internal(Internal),
    /// A client that asked for no reply (`CLIENT REPLY OFF` or `SKIP`): only that
    /// there was one counts. [`Key::NONE`] when that counts for nobody.
    Unheard(Key<Session>),
    /// One of two servers that were sent the same read: the first that answers is
    /// heard.
    Hedged {
        /// Who waits; stale once the other has answered.
        hedge: Key<Hedge>,
        /// It is the one that was sent later.
        is_second: bool,
    },
    /// Nobody any more: the reply is late, and skipped.
    None,
}

/// Who waits for a read that two servers were sent.
#[derive(Clone, Copy, Debug)]
pub struct Hedge {
    /// The owner it had as long as one was.
    pub owner: Owner,
    /// When the request was parsed.
    pub started: Time,
    /// One of the two has failed: what the other says is told whatever it is.
    pub has_failed: bool,
}

/// One request on its way to a backend and back.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Who waits for the reply.
    pub owner: Owner,
    /// When the request was parsed.
    pub started: Time,
    /// Bytes of its request.
    pub(crate) len: u32,
    /// Time that the request waited on other links, in milliseconds; [`Exchange::OVER`] when its
    /// time is up.
    pub(crate) waited: u32,
    /// The class and the command that metrics count the request under.
    pub counted: Counted,
    /// The server took long for it.
    pub is_slow: bool,
    /// How often a server has sent it elsewhere.
    pub redirections: u8,
    /// The place of the server that did so last, or [`Exchange::NOBODY`].
    pub sent_on_by: u16,
    /// Another server may be sent it as well: a read that was sent to one only.
    pub(crate) may_repeat: bool,
    /// What a reply in RESP2 is in RESP3.
    pub(crate) translation: Translation,
    /// How the reply of a server of memcached ends.
    pub(crate) expect: Expect,
    /// Replies that come before the one its owner waits for: those to `MULTI`
    /// and to the commands of a transaction, which goes out whole.
    pub(crate) replies_before: u16,
    /// How many these are when the next is that to `MULTI`; 0 when none is.
    pub(crate) transaction: u16,
}

impl Exchange {
    /// No server has sent it elsewhere.
    pub const NOBODY: u16 = u16::MAX;

    /// The value of `waited` once its time is up.
    pub(super) const OVER: u32 = u32::MAX;

    /// The time when its client asked. Its timeout counts from then, on whichever link it is.
    #[inline]
    pub fn asked(&self) -> Time {
        Time(self.started.0.saturating_sub(u64::from(self.waited) * 1_000_000))
    }

    /// Counts its time from now on.
    pub fn begin_anew(&mut self, now: Time) {
        (self.started, self.waited) = (now, 0);
    }

    /// Counts its time from `since`, which is before `now`.
    pub fn count_from(&mut self, since: Time, now: Time) {
        self.begin_anew(since);
        (self.waited, self.started) = (self.waited_until(now), now);
    }

    /// The value of [`Exchange::waited`] when it moves to another link at `now`.
    pub(super) fn waited_until(&self, now: Time) -> u32 {
        let waited = now.since(self.asked()).as_millis();
        u32::try_from(waited).map_or(Self::OVER - 1, |waited| waited.min(Self::OVER - 1))
    }

    /// Returns whether the exchange may be given up: somebody waits for its reply. The worker's own
    /// requests that prepare the connection for later ones, such as SELECT, are not given up,
    /// because their replies still matter.
    pub(super) fn is_timed(&self) -> bool {
        let is_heard = matches!(
            self.owner,
            Owner::Internal(
                Internal::Select | Internal::Load | Internal::ClientId | Internal::Mode
            )
        );
        !is_heard && self.owner != Owner::None
    }

    /// Returns whether the worker asks the server something that no request behind it relies on.
    pub(super) fn is_question(&self) -> bool {
        matches!(
            self.owner,
            Owner::Internal(
                Internal::Probe | Internal::Cluster(_) | Internal::Names | Internal::Replication
            )
        )
    }

    /// Whether what answers it may be in a client's words: it runs a script or a
    /// function, or loads some.
    #[inline]
    pub fn is_of_scripts(&self) -> bool {
        self.counted.class() == Class::Script
    }

    /// Whether it is `EXEC` with all that goes before it.
    pub fn is_transaction(&self) -> bool {
        self.transaction > 0
    }

    /// What a push is handed over with.
    pub(crate) const PUSH: Exchange = Self::pushed(Internal::Push);

    /// The same for one that nobody has asked for.
    pub(crate) const UNASKED: Exchange = Self::pushed(Internal::Unasked);

    const fn pushed(what: Internal) -> Exchange {
        Exchange {
            owner: Owner::Internal(what),
            started: Time(0),
            len: 0,
            waited: 0,
            counted: Counted::OWN,
            is_slow: false,
            redirections: 0,
            sent_on_by: Self::NOBODY,
            may_repeat: false,
            translation: Translation::Nulls,
            expect: Expect::One,
            replies_before: 0,
            transaction: 0,
        }
    }
}
