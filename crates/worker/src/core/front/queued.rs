//! The part of a transaction that concerns the session alone, whether servers or a store have the
//! keys: MULTI and DISCARD, and the commands that wait for EXEC.

use crate::core::request::RequestContext;
use crate::core::{Connections, Plane};
use keyway_base::Key;
use keyway_command::Verb;
use keyway_proxy::{Digest, QueueFault, Session, Transaction};
use keyway_resp::reply;

/// The part of a transaction that is handled at the server of its keys.
pub(in crate::core) enum ForKeys {
    Exec,
    Watch,
}

impl Plane {
    /// Answers the part of a transaction that concerns the session alone, on a pool or a store.
    /// Returns what is left to do at the keys.
    pub(in crate::core) fn begin_or_drop(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
    ) -> Option<ForKeys> {
        let stateful = incoming.session.stateful.as_ref();
        let is_open = stateful.is_some_and(|stateful| stateful.transaction.is_some());
        let wrong = match (incoming.request.command.verb, is_open) {
            (Verb::Exec, true) => return Some(ForKeys::Exec),
            (Verb::Watch, false) => return Some(ForKeys::Watch),
            (Verb::Exec, false) => "ERR EXEC without MULTI",
            (Verb::Discard, false) => "ERR DISCARD without MULTI",
            (Verb::Multi, true) => "ERR MULTI calls can not be nested",
            (Verb::Watch, true) => "ERR WATCH inside MULTI is not allowed",
            (Verb::Multi, false) => {
                let stateful = incoming.session.stateful.get_or_insert_default();
                stateful.transaction = Some(Transaction::new(&self.plan.transactions));
                self.answer_locally(incoming, |out| reply::simple(out, "OK"));
                return None;
            }
            _ => {
                self.end_transaction(links, incoming.key, incoming.session);
                self.answer_locally(incoming, |out| reply::simple(out, "OK"));
                return None;
            }
        };
        self.refuse(incoming.session, incoming.busy, |out| reply::error(out, wrong));
        None
    }

    /// Drops the queued commands and the watch.
    pub(in crate::core) fn end_transaction(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        session: &mut Session,
    ) {
        let Some(stateful) = &mut session.stateful else { return };
        stateful.transaction = None;
        if let Some(watched) = stateful.watched.take() {
            self.unwatch_keys(session.pool, *watched);
        }
        let Some(stateful) = &mut session.stateful else { return };
        if let Some(index) = stateful.watch.take().and_then(|watch| watch.link) {
            self.unwatch(links, key, index);
        }
        session.tidy();
    }

    /// Keeps a command for `EXEC`, with the script that it calls by its digest.
    pub(in crate::core) fn keep_queued(
        &mut self,
        incoming: &mut RequestContext,
        script: Option<Digest>,
    ) -> Result<(), String> {
        let len_max = self.plan.limits.link_output_len_max as usize / 2;
        let transaction = incoming.session.stateful.as_mut().and_then(|it| it.transaction.as_mut());
        let Some(transaction) = transaction else { return Ok(()) };
        let queued = transaction.queue(incoming.request.args.buf(), script, len_max);
        queued.map_err(|fault| match fault {
            QueueFault::TooLong => format!(
                "ERR the transaction is too long: at most {len_max} bytes and 65,533 commands \
                 wait for EXEC"
            ),
            QueueFault::NoBudget => format!(
                "OOM the commands of all clients that wait for EXEC would take more than \
                 transactions_len_max ({} bytes); run the transaction again when others have ended",
                self.plan.transactions.len_max()
            ),
        })
    }

    pub(in crate::core) fn refuse_queued(&mut self, incoming: &mut RequestContext, text: &str) {
        if let Some(stateful) = &mut incoming.session.stateful {
            stateful.refuse();
        }
        self.refuse(incoming.session, incoming.busy, |out| reply::error(out, text));
    }
}
