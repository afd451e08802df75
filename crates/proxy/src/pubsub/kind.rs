use keyway_command::Verb;

/// What a client can subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubscriptionKind {
    /// A channel by its name.
    Channel,
    /// Every channel whose name matches a glob pattern.
    Pattern,
    /// A shard channel: a name space of its own, without patterns.
    Shard,
}

impl SubscriptionKind {
    /// Every kind; a kind's position here is its number.
    pub const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];

    /// What a command changes: the kind, and whether it subscribes; `None` for
    /// every other command.
    pub fn of(verb: Verb) -> Option<(Self, bool)> {
        match verb {
            Verb::Subscribe => Some((Self::Channel, true)),
            Verb::Unsubscribe => Some((Self::Channel, false)),
            Verb::Psubscribe => Some((Self::Pattern, true)),
            Verb::Punsubscribe => Some((Self::Pattern, false)),
            Verb::Ssubscribe => Some((Self::Shard, true)),
            Verb::Sunsubscribe => Some((Self::Shard, false)),
            _ => None,
        }
    }

    /// The word of the command, and of its confirmation.
    pub fn word(self, subscribes: bool) -> &'static str {
        match (self, subscribes) {
            (Self::Channel, true) => "subscribe",
            (Self::Channel, false) => "unsubscribe",
            (Self::Pattern, true) => "psubscribe",
            (Self::Pattern, false) => "punsubscribe",
            (Self::Shard, true) => "ssubscribe",
            (Self::Shard, false) => "sunsubscribe",
        }
    }

    /// The word in front of a message that comes by such a subscription.
    pub fn message_word(self) -> &'static str {
        match self {
            Self::Channel => "message",
            Self::Pattern => "pmessage",
            Self::Shard => "smessage",
        }
    }
}
