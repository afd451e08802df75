use super::Translation;
use crate::{Operation, Session};
use keyway_base::{Key, Time};
use keyway_command::{Class, Counted};
use keyway_memcache::Expect;

/// Requests of the worker itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Internal {
    /// `SELECT`, sent before a request for another database than the last one.
    Select,
    /// `PING`, sent to find out whether an ejected backend answers again.
    Probe,
    /// `FLUSHALL` or `FLUSHDB`, sent before a backend is used again.
    Flush,
    /// A read of the marker of a server of memcached in use.
    Look,
    /// A step in which such a server returns into use.
    Return,
    /// `SCRIPT LOAD` or `FUNCTION LOAD`, sent before a request that needs it.
    Load,
    /// `MULTI` and `EXEC`, sent to a server that refused the former.
    Multi,
    /// `CLIENT ID`, sent to be able to unblock the client of a private link.
    ClientId,
    /// `CLUSTER SLOTS` or a similar question, with this number.
    Cluster(u32),
    /// `CLUSTER NODES`, to find out whether a server belongs to the cluster.
    Names,
    /// `INFO replication`.
    Replication,
    /// `READONLY` or `READWRITE`, sent before a request that needs it.
    Mode,
    /// No request: a push on a link that is for one client.
    Push,
    /// No request: a push that was not asked for.
    Unasked,
}

/// The owner of a reply, which waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A client, and which of its replies.
    Session {
        /// The session. The key is stale once the client is gone.
        session: Key<Session>,
        /// Index of the reply in its [`crate::ReplyOrder`].
        sequence: u32,
    },
    /// A request that takes several exchanges.
    Operation {
        /// The request. The key is stale once it was answered.
        operation: Key<Operation>,
        /// Index of its part: a fragment of a join, or an item copy of a warm-up read.
        part: u32,
    },
    /// The worker itself.
    Internal(Internal),
    /// A client that asked for no reply (`CLIENT REPLY OFF` or `SKIP`): only the arrival of a reply
    /// counts. [`Key::NONE`] if it counts for no client.
    Unheard(Key<Session>),
    /// One of two servers that were sent the same read. The first one to answer is used.
    Hedged {
        /// The owner of both. The key is stale once the other one has answered.
        hedge: Key<Hedge>,
        /// True if it is the one that was sent later.
        is_second: bool,
    },
    /// No owner any more: the reply is late, and skipped.
    None,
}

/// The owner of a read that was sent to two servers.
#[derive(Clone, Copy, Debug)]
pub struct Hedge {
    /// The owner that the read had on one server.
    pub owner: Owner,
    /// When the request was parsed.
    pub started: Time,
    /// True if one of the two has failed. The other one's reply is then used in any case.
    pub has_failed: bool,
}

/// One request on its way to a backend and back.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// The owner of the reply.
    pub owner: Owner,
    /// When the request was parsed.
    pub started: Time,
    /// Length of its request in bytes.
    pub(crate) len: u32,
    /// Time for which the request waited on other links, in milliseconds. [`Exchange::OVER`] if its
    /// time is up.
    pub(crate) waited: u32,
    /// The class and the command under which metrics count the request.
    pub counted: Counted,
    /// True if the server took long for it.
    pub is_slow: bool,
    /// Number of times that a server has redirected it.
    pub redirections: u8,
    /// Index of the server that redirected it last, or [`Exchange::NOBODY`].
    pub sent_on_by: u16,
    /// True if another server may be sent it as well: it is a read that was sent to one server
    /// only.
    pub(crate) may_repeat: bool,
    /// The translation of a reply in RESP2 to RESP3.
    pub(crate) translation: Translation,
    /// The end by which the reply of a server of memcached is recognised.
    pub(crate) expect: Expect,
    /// Number of replies before the one for which its owner waits: those to `MULTI` and to the
    /// commands of a transaction, which is sent whole.
    pub(crate) replies_before: u16,
    /// That number when the next reply is the one to `MULTI`. 0 if there is no transaction.
    pub(crate) transaction: u16,
}

impl Exchange {
    /// Means that no server has redirected it.
    pub const NOBODY: u16 = u16::MAX;

    /// The value of `waited` once its time is up.
    pub(super) const OVER: u32 = u32::MAX;

    /// Returns the time at which its client asked. Its timeout counts from then, on whichever link
    /// it is.
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

    /// Returns the value of [`Exchange::waited`] when it moves to another link at `now`.
    pub(super) fn waited_until(&self, now: Time) -> u32 {
        let waited = now.since(self.asked()).as_millis();
        u32::try_from(waited).map_or(Self::OVER - 1, |waited| waited.min(Self::OVER - 1))
    }

    /// Returns whether the exchange may be given up, because a client waits for its reply. The
    /// worker's own requests that prepare the connection for later ones, such as SELECT, are not
    /// given up, because their replies still matter.
    pub(super) fn is_timed(&self) -> bool {
        let is_heard = matches!(
            self.owner,
            Owner::Internal(
                Internal::Select | Internal::Load | Internal::ClientId | Internal::Mode
            )
        );
        !is_heard && self.owner != Owner::None
    }

    /// Returns whether the worker asks the server a question on which no later request relies.
    pub(super) fn is_question(&self) -> bool {
        matches!(
            self.owner,
            Owner::Internal(
                Internal::Probe | Internal::Cluster(_) | Internal::Names | Internal::Replication
            )
        )
    }

    /// Returns whether its reply may contain a client's own text: it runs or loads a script or a
    /// function.
    #[inline]
    pub fn is_of_scripts(&self) -> bool {
        self.counted.class() == Class::Script
    }

    /// Returns whether it is `EXEC` with all that precedes it.
    pub fn is_transaction(&self) -> bool {
        self.transaction > 0
    }

    /// The exchange with which a push is delivered.
    pub(crate) const PUSH: Exchange = Self::pushed(Internal::Push);

    /// The exchange with which a push that was not asked for is delivered.
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
