//! Effects of another store, executed on this one.

use crate::commands::{self, FLAGS_COMMAND};
use crate::items::{Kind, Meta};
use crate::store::{Context, ShardIndices, Store, Turn};
use keyway_command::{Args, Refusal, Request, Verb};
use keyway_resp::reply;
use std::sync::atomic::Ordering;

impl Store {
    /// Executes a command of the stream of effects of another store, or of a log of this one,
    /// and appends its reply to `out`. SELECT, MULTI and EXEC are the caller's: `context` has
    /// the database, and what is between MULTI and EXEC is executed with the shards of all
    /// its commands held, see [`Store::hold`].
    ///
    /// Time does not pass for an effect. No key expires by it, however late it comes, and a
    /// time that has passed is set as it is. Nothing is evicted for it and no quota refuses
    /// it: the other store has decided that before. Effects are told in turn.
    ///
    /// A replica has them held by [`crate::Footprint::of_effects`].
    ///
    /// # Errors
    /// When there is no such command: the stream is of another kind of server.
    pub fn apply(
        &self,
        args: Args<'_>,
        context: Context,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        if !self.has_database(context, out) {
            return Ok(());
        }
        let turn = Turn::of_effect(context);
        if args.get(0).is_some_and(|name| name.eq_ignore_ascii_case(FLAGS_COMMAND)) {
            self.apply_flags(args, turn, out);
            return Ok(());
        }
        let request = Request::resolve(args)?;
        commands::execute(self, &request, turn, None, out);
        if matches!(request.command.verb, Verb::Flushall | Verb::Flushdb | Verb::Swapdb) {
            // Clients are to be told that all their keys have changed.
            self.flushes.is_done.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns whether [`Store::apply`] knows the command.
    pub fn applies(&self, args: Args<'_>) -> bool {
        args.get(0).is_some_and(|name| name.eq_ignore_ascii_case(FLAGS_COMMAND))
            || Request::resolve(args).is_ok_and(|request| self.serves(request.command.verb))
    }

    /// Gives a string the flags and marks of a memcached client.
    #[cold]
    fn apply_flags(&self, args: Args<'_>, turn: Turn, out: &mut Vec<u8>) {
        let number = |index: usize| std::str::from_utf8(args.get(index)?).ok()?.parse::<u32>().ok();
        let (Some(key), Some(flags), Some(marks)) = (args.get(1), number(2), number(3)) else {
            return reply::error(out, "ERR wrong arguments for 'keyway.flags' command");
        };
        let mut shards = ShardIndices::new();
        shards.push(self.locate(key).1 as u32);
        let _telling = self.effects.is_on().then(|| self.begin_telling(shards));
        self.with_key(turn, key, |mut entry| {
            let Some(item) = entry.look().filter(|item| item.encoding().kind() == Kind::Text)
            else {
                return;
            };
            let (meta, marks) = (item.meta(), marks as u8 & (Meta::STALE | Meta::SENT));
            // Marks are kept with a number only.
            let cas = if marks != 0 { entry.next_cas() } else { meta.cas };
            entry.set_meta(&Meta { flags, marks, cas, ..meta });
        });
        if self.effects.is_on() {
            let words = (0..args.len()).map(|index| args.get(index).unwrap_or_default());
            self.effects.with_unit(|unit| unit.push(turn.database, words));
        }
        reply::simple(out, "OK");
    }
}
