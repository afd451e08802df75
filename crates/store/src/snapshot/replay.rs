//! Effects that are executed again: the log of a store, behind its base.

use crate::store::{Context, HISTORY_COMMAND, NO_WORKER, Store};
use keyway_base::Clock;
use keyway_command::Args;
use keyway_rdb::replication::{CommandFault, CommandKind, CommandStep, CommandStream};
use keyway_resp::{ParseLimits, Protocol};
use std::fmt;
use std::sync::Arc;

/// Effects are the store's own: they may be as long as the store made them.
const LIMITS: ParseLimits = ParseLimits {
    args_max: u32::MAX,
    bulk_len_max: u32::MAX,
    request_len_max: u32::MAX,
    inline_len_max: 0,
};

/// The reason why effects cannot be executed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// They are no stream of commands.
    Stream(CommandFault),
    /// The last command, or transaction, is not whole.
    Incomplete {
        /// The offset in front of it.
        offset: u64,
    },
    /// A command has no database, or is none of the store.
    Command {
        /// The offset in front of it.
        offset: u64,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(fault) => write!(f, "{fault}"),
            Self::Incomplete { offset } => {
                write!(f, "the command at offset {offset} of the stream is not whole")
            }
            Self::Command { offset, name } => {
                write!(f, "offset {offset} of the stream has the unknown command \"{name}\"")
            }
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<CommandFault> for ReplayError {
    fn from(fault: CommandFault) -> Self {
        Self::Stream(fault)
    }
}

/// Executes the effects of a store again, on one that holds what it held when they began.
/// Nobody uses the store meanwhile.
pub struct Replay {
    store: Arc<Store>,
    stream: CommandStream,
    reply: Vec<u8>,
    commands: u64,
    refused: u64,
    first_refusal: Option<String>,
}

impl Replay {
    /// Begins at this offset of the stream, in front of a SELECT.
    pub fn new(store: &Arc<Store>, offset: u64) -> Self {
        Self {
            store: Arc::clone(store),
            stream: CommandStream::new(offset, None, LIMITS),
            reply: Vec::new(),
            commands: 0,
            refused: 0,
            first_refusal: None,
        }
    }

    /// Executes whole units. Commands about functions go to `beside`, with their words.
    ///
    /// # Errors
    /// [`ReplayError`]; a part of the units is executed then.
    pub fn apply(
        &mut self,
        mut units: &[u8],
        clock: Clock,
        beside: &mut dyn FnMut(&[&[u8]]),
    ) -> Result<(), ReplayError> {
        while !units.is_empty() {
            let (consumed, command) = match self.stream.read(units)? {
                CommandStep::Command { consumed, command } => (consumed, command),
                CommandStep::More { .. } => {
                    return Err(ReplayError::Incomplete { offset: self.stream.offset() });
                }
            };
            if command.kind() == CommandKind::Other {
                let failed = || ReplayError::Command {
                    offset: command.start(),
                    name: command
                        .words()
                        .next()
                        .map(|name| name.iter().take(32).copied().collect::<Vec<u8>>())
                        .map(|name| name.escape_ascii().to_string())
                        .unwrap_or_default(),
                };
                let ranges = command.ranges().ok_or_else(failed)?;
                let args = Args::new(command.raw(), ranges);
                let database = command.database().and_then(|number| u32::try_from(number).ok());
                let database = database.ok_or_else(failed)?;
                if is_named(args, b"FUNCTION") {
                    let words: Vec<&[u8]> = args.from(0).collect();
                    beside(&words);
                } else if is_named(args, HISTORY_COMMAND) {
                    let words: Vec<&[u8]> = args.from(1).collect();
                    if !self.store.history.follow(&words) {
                        return Err(failed());
                    }
                } else {
                    let (protocol, worker) = (Protocol::default(), NO_WORKER);
                    let context = Context { database, clock, protocol, worker };
                    self.reply.clear();
                    self.store.apply(args, context, &mut self.reply).map_err(|_| failed())?;
                    note_flush(&self.store, args, database, clock);
                    if self.reply.first() == Some(&b'-') {
                        self.refused += 1;
                        let (reply, error) = (self.reply.escape_ascii().to_string(), failed());
                        self.first_refusal.get_or_insert_with(|| format!("{error}: {reply}"));
                    }
                }
                self.commands += 1;
            }
            units = &units[consumed..];
        }
        match self.stream.settled() == self.stream.offset() {
            true => Ok(()),
            false => Err(ReplayError::Incomplete { offset: self.stream.settled() }),
        }
    }

    /// The offset behind the last unit.
    pub fn offset(&self) -> u64 {
        self.stream.offset()
    }

    /// Commands that were executed.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// Commands that the store has refused, and what it said to the first of them. PFADD of a
    /// string that is no sketch fails here as it did before. Any other refusal shows that the
    /// effects do not fit what the store held.
    pub fn refused(&self) -> (u64, Option<&str>) {
        (self.refused, self.first_refusal.as_deref())
    }
}

/// Returns whether a command has this name.
fn is_named(args: Args<'_>, name: &[u8]) -> bool {
    args.get(0).is_some_and(|word| word.eq_ignore_ascii_case(name))
}

/// Forgets a flush that was to come at a time that has passed: this was it.
fn note_flush(store: &Store, args: Args<'_>, database: u32, clock: Clock) {
    let (is_one, is_all) = (is_named(args, b"FLUSHDB"), is_named(args, b"FLUSHALL"));
    if !is_one && !is_all {
        return;
    }
    for (of, at) in store.flushes.all() {
        if (is_all || of == database) && at <= clock.unix_millis() {
            store.flushes.set(of, None);
        }
    }
}
