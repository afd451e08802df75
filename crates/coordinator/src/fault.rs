use std::fmt;

/// Why an operation of the coordinator failed, as data: the kind decides what the caller does, the
/// text tells the operator. No text has a credential or a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    kind: FaultKind,
    place: String,
    tried: &'static str,
    what: String,
}

/// What the caller can do about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// No endpoint answered in time. Nothing was changed. Try again later.
    Unreachable,
    /// The request of a transaction was sent and its answer did not come. The transaction may have
    /// been executed, may be executed later, or not at all. Read the keys to find out.
    Unknown,
    /// The credentials are wrong, or do not allow this. An operator has to change them.
    Denied,
    /// The session of a key has ended. Begin another one.
    SessionLost,
    /// The backend answers with an older state, or is another cluster: it was restored from a
    /// backup or wiped. The coordinator refuses everything until it is opened anew.
    RolledBack,
    /// The request or the answer is above a bound.
    TooLarge,
    /// Other processes changed the state, or held its lock, during every try. Nothing was changed.
    Busy,
    /// The backend has no room. Nothing was changed.
    Full,
    /// Stored or received bytes are not what this version writes.
    Damaged,
    /// The caller gave something that no backend accepts.
    Invalid,
}

impl FaultKind {
    /// Returns what to do, for the end of the text.
    const fn hint(self) -> &'static str {
        match self {
            FaultKind::Unreachable => "check that the coordinator runs and can be reached",
            FaultKind::Unknown => "read the keys to find out whether it was executed",
            FaultKind::Denied => "check the user, its password and its permissions",
            FaultKind::SessionLost => "begin another session",
            FaultKind::RolledBack => {
                "find out why; to accept this state, restart this control node"
            }
            FaultKind::TooLarge => "split it",
            FaultKind::Busy => "try again",
            FaultKind::Full => "free some room",
            FaultKind::Damaged => "restore it from a backup, or use an empty place",
            FaultKind::Invalid => "correct the call",
        }
    }
}

impl Fault {
    /// `place` is the endpoint or the path, `tried` the operation, `what` the fault itself.
    pub(crate) fn new(
        kind: FaultKind,
        place: impl Into<String>,
        tried: &'static str,
        what: impl Into<String>,
    ) -> Fault {
        Fault { kind, place: place.into(), tried, what: what.into() }
    }

    /// A call that no backend accepts.
    pub(crate) fn invalid(what: impl Into<String>) -> Fault {
        Fault::new(FaultKind::Invalid, "coordinator", "request", what)
    }

    /// The session of a transaction or of a renewal is over.
    pub(crate) fn session_lost(place: impl Into<String>, tried: &'static str) -> Fault {
        Fault::new(FaultKind::SessionLost, place, tried, "the session has ended")
    }

    /// The same with another kind.
    pub(crate) fn with_kind(self, kind: FaultKind) -> Fault {
        Fault { kind, ..self }
    }

    /// Returns the kind.
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// Returns the endpoint or the path that the fault is about.
    pub fn place(&self) -> &str {
        &self.place
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { kind, place, tried, what } = self;
        write!(f, "{place}: {tried}: {what}; {}", kind.hint())
    }
}

impl std::error::Error for Fault {}
