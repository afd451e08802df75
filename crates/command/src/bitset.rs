//! The three sets of words that describe a command. The bits have the order in which Redis 7 prints
//! the words, so that a set that is printed bit by bit equals the server's own reply.

macro_rules! bitset {
    ($(#[$doc:meta])* $set:ident { $($(#[$bit_doc:meta])* $bit:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $set(u32);

        impl $set {
            /// Every word of this kind, in the order of the bits.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            bitset!(@bits 0, $($(#[$bit_doc])* $bit,)*);

            /// The empty set.
            pub const NONE: Self = Self(0);

            /// Returns the union of two sets.
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Returns whether every word of `other` is in this set.
            #[inline]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns the number of words in the set.
            pub const fn len(self) -> usize {
                self.0.count_ones() as usize
            }

            /// Returns whether the set is empty.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Returns the words of the set in Redis's spelling and order.
            pub fn words(self) -> impl Iterator<Item = &'static str> {
                Self::WORDS.iter().enumerate().filter(move |(bit, _)| self.0 >> bit & 1 == 1).map(|(_, word)| *word)
            }

            /// Returns the set of the one word `word`, in any case.
            pub fn parse(word: &[u8]) -> Option<Self> {
                let bit = Self::WORDS.iter().position(|known| word.eq_ignore_ascii_case(known.as_bytes()))?;
                Some(Self(1 << bit))
            }
        }

        impl std::fmt::Debug for $set {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.debug_set().entries(self.words()).finish()
            }
        }
    };
    (@bits $at:expr, $(#[$doc:meta])* $bit:ident, $($rest:tt)*) => {
        $(#[$doc])*
        pub const $bit: Self = Self(1 << ($at));
        bitset!(@bits $at + 1, $($rest)*);
    };
    (@bits $at:expr,) => {};
}

bitset! {
    /// What a command does and when a server accepts it: the flags of
    /// `COMMAND INFO`.
    Flags {
        /// May change the data set.
        WRITE = "write",
        /// Never changes the data set.
        READONLY = "readonly",
        /// Refused by a server that is out of memory.
        DENYOOM = "denyoom",
        /// Defined by a module.
        MODULE = "module",
        /// For operators.
        ADMIN = "admin",
        /// Publishes or subscribes.
        PUBSUB = "pubsub",
        /// Not allowed in scripts.
        NOSCRIPT = "noscript",
        /// May keep the connection waiting.
        BLOCKING = "blocking",
        /// Allowed while the server loads its data.
        LOADING = "loading",
        /// Allowed on a replica with stale data.
        STALE = "stale",
        /// Not shown by MONITOR.
        SKIP_MONITOR = "skip_monitor",
        /// Not kept in the slow log.
        SKIP_SLOWLOG = "skip_slowlog",
        /// Allowed in an importing slot without ASKING.
        ASKING = "asking",
        /// Constant or logarithmic time.
        FAST = "fast",
        /// Allowed before authentication.
        NO_AUTH = "no_auth",
        /// Replicated although it is no write.
        MAY_REPLICATE = "may_replicate",
        /// May be sent without any key.
        NO_MANDATORY_KEYS = "no_mandatory_keys",
        /// Refused while a replica loads new data and still serves the old data.
        NO_ASYNC_LOADING = "no_async_loading",
        /// Not allowed in a transaction.
        NO_MULTI = "no_multi",
        /// The first key, last key and step do not find every key.
        MOVABLEKEYS = "movablekeys",
        /// Allowed while a script runs too long.
        ALLOW_BUSY = "allow_busy",
    }
}

bitset! {
    /// The ACL categories of a command, without their `@`.
    Categories {
        /// Uses keys of any type.
        KEYSPACE = "keyspace",
        /// Reads keys.
        READ = "read",
        /// Changes keys.
        WRITE = "write",
        /// Sets.
        SET = "set",
        /// Sorted sets.
        SORTEDSET = "sortedset",
        /// Lists.
        LIST = "list",
        /// Hashes.
        HASH = "hash",
        /// Strings.
        STRING = "string",
        /// Bitmaps.
        BITMAP = "bitmap",
        /// HyperLogLogs.
        HYPERLOGLOG = "hyperloglog",
        /// Geospatial indexes.
        GEO = "geo",
        /// Streams.
        STREAM = "stream",
        /// Publishing and subscribing.
        PUBSUB = "pubsub",
        /// For operators.
        ADMIN = "admin",
        /// Constant or logarithmic time.
        FAST = "fast",
        /// Everything that is not fast.
        SLOW = "slow",
        /// May keep the connection waiting.
        BLOCKING = "blocking",
        /// Can harm a server if anyone may use it.
        DANGEROUS = "dangerous",
        /// About the connection itself.
        CONNECTION = "connection",
        /// Transactions.
        TRANSACTION = "transaction",
        /// Scripts and functions.
        SCRIPTING = "scripting",
    }
}

bitset! {
    /// What a command does with the keys that a key spec finds.
    KeyFlags {
        /// Reads the value, changes nothing.
        RO = "RO",
        /// Reads and changes the value.
        RW = "RW",
        /// Overwrites the value without regard to the old one.
        OW = "OW",
        /// Removes the key.
        RM = "RM",
        /// The reply or another key contains something of the value.
        ACCESS = "access",
        /// Changes data of the value.
        UPDATE = "update",
        /// Adds data to the value, and changes none.
        INSERT = "insert",
        /// Removes data of the value.
        DELETE = "delete",
        /// It is not a key, but is routed like one (a shard channel).
        NOT_KEY = "not_key",
        /// The spec may miss keys.
        INCOMPLETE = "incomplete",
        /// The other flags depend on the arguments.
        VARIABLE_FLAGS = "variable_flags",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_prints_its_words_in_the_order_of_redis() {
        let set = Flags::FAST.with(Flags::READONLY);
        assert_eq!(set.words().collect::<Vec<_>>(), ["readonly", "fast"]);
        assert_eq!(format!("{set:?}"), r#"{"readonly", "fast"}"#);
    }

    #[test]
    fn every_word_parses_to_its_own_bit() {
        for word in Categories::WORDS {
            let set = Categories::parse(word.to_ascii_uppercase().as_bytes()).unwrap();
            assert_eq!(set.words().collect::<Vec<_>>(), [*word]);
        }
        assert_eq!(Categories::parse(b"reads"), None);
    }
}
