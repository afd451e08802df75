use crate::{Categories, Flags, Handling};

/// The class under which a command is counted in metrics. There are few classes, so that they can
/// be a label, and the set is closed, so that a series for each class exists from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// Reads, on one shard.
    Read,
    /// Writes, on one shard.
    Write,
    /// Reads, on several shards (MGET, EXISTS, TOUCH).
    ReadMany,
    /// Writes, on several shards (MSET, DEL, UNLINK).
    WriteMany,
    /// Runs a script or a function.
    Script,
    /// Is about the connection: handshakes, subscriptions, transactions.
    Connection,
    /// Is for operators: statistics, configuration, replication.
    Admin,
}

impl Class {
    /// Every class, in the order of their discriminants.
    pub const ALL: [Class; 7] = [
        Class::Read,
        Class::Write,
        Class::ReadMany,
        Class::WriteMany,
        Class::Script,
        Class::Connection,
        Class::Admin,
    ];

    /// Returns whether requests of this class may change data.
    pub const fn may_write(self) -> bool {
        match self {
            Class::Read | Class::ReadMany => false,
            Class::Write | Class::WriteMany | Class::Script | Class::Connection | Class::Admin => {
                true
            }
        }
    }

    /// Returns the value of the metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Class::Read => "read",
            Class::Write => "write",
            Class::ReadMany => "read_many",
            Class::WriteMany => "write_many",
            Class::Script => "script",
            Class::Connection => "connection",
            Class::Admin => "admin",
        }
    }

    /// Returns the class of a command with these flags, categories and handling.
    pub(crate) const fn of(flags: Flags, acl: Categories, handling: Handling) -> Class {
        let split =
            matches!(handling, Handling::Split(_) | Handling::Everywhere(_) | Handling::Across(_));
        if acl.contains(Categories::SCRIPTING) {
            Class::Script
        } else if acl.contains(Categories::CONNECTION)
            || acl.contains(Categories::TRANSACTION)
            || acl.contains(Categories::PUBSUB)
        {
            Class::Connection
        } else if flags.contains(Flags::ADMIN) {
            Class::Admin
        } else if flags.contains(Flags::WRITE) {
            if split { Class::WriteMany } else { Class::Write }
        } else if flags.contains(Flags::READONLY) {
            if split { Class::ReadMany } else { Class::Read }
        } else {
            Class::Admin
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup;

    #[test]
    fn classes_stand_in_the_order_of_their_discriminants_under_labels_of_their_own() {
        for (index, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, index);
            assert_eq!(Class::ALL.iter().filter(|it| it.label() == class.label()).count(), 1);
        }
    }

    #[test]
    fn well_known_commands_are_counted_where_one_looks_for_them() {
        for (name, class) in [
            ("get", Class::Read),
            ("set", Class::Write),
            ("mget", Class::ReadMany),
            ("exists", Class::ReadMany),
            ("mset", Class::WriteMany),
            ("del", Class::WriteMany),
            ("eval", Class::Script),
            ("fcall_ro", Class::Script),
            ("ping", Class::Connection),
            ("auth", Class::Connection),
            ("multi", Class::Connection),
            ("subscribe", Class::Connection),
            ("info", Class::Admin),
            ("config", Class::Admin),
            ("zunionstore", Class::Write),
            ("sort_ro", Class::Read),
        ] {
            assert_eq!(lookup(name.as_bytes()).unwrap().class, class, "{name}");
        }
    }
}
