use keyway_command::Verb;

/// The kind of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubscriptionKind {
    /// A channel by its name.
    Channel,
    /// Every channel whose name matches a glob pattern.
    Pattern,
    /// A shard channel: a separate namespace, without patterns.
    Shard,
}

impl SubscriptionKind {
    /// Every kind. A kind's index here is its number.
    pub const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];

    /// Returns what a command changes: the kind, and whether it subscribes. Returns `None` for
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

    /// Returns the word of the command, and of its confirmation.
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

    /// Returns the first word of a message by such a subscription.
    pub fn message_word(self) -> &'static str {
        match self {
            Self::Channel => "message",
            Self::Pattern => "pmessage",
            Self::Shard => "smessage",
        }
    }
}
