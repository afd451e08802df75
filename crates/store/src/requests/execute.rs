//! Requests, executed within the bound on memory.

use crate::commands;
use crate::store::{Context, OUT_OF_MEMORY, Reserved, Store, Transfer, Turn, args_len};
use keyway_command::{Flags, Request};
use keyway_resp::reply;

impl Store {
    /// Executes `request` to completion and appends its reply, exactly one
    /// element of the client's protocol, to `out`.
    pub fn execute(&self, request: &Request<'_>, context: Context, out: &mut Vec<u8>) {
        self.execute_with(request, context, None, out);
    }

    /// The same, without copies of long values if a transfer is there for them: those of
    /// the reply are then not among what was appended, see [`Transfer::into_zero_copy`].
    #[inline]
    pub fn execute_with(
        &self,
        request: &Request<'_>,
        context: Context,
        transfer: Option<&Transfer<'_>>,
        out: &mut Vec<u8>,
    ) {
        if !self.has_database(context, out) {
            return;
        }
        let turn = Turn::of(context);
        if !self.quotas.is_empty() {
            return self.execute_with_quotas(request, turn, transfer, out);
        }
        if self.config().memory_max == 0 || !request.command.flags.contains(Flags::DENYOOM) {
            return commands::execute(self, request, turn, transfer, out);
        }
        let Some(room) = self.room_for(request, transfer, turn) else {
            return reply::error(out, OUT_OF_MEMORY);
        };
        commands::execute(self, request, turn, transfer, out);
        drop(room);
        // This covers memory that the estimate missed, such as a table that grew.
        self.make_room(0, turn);
    }

    #[cold]
    fn execute_with_quotas(
        &self,
        request: &Request<'_>,
        turn: Turn,
        transfer: Option<&Transfer<'_>>,
        out: &mut Vec<u8>,
    ) {
        if !request.command.flags.contains(Flags::DENYOOM) {
            return self.execute_within_quotas(request, turn, transfer, out);
        }
        let Some(room) = self.room_for(request, transfer, turn) else {
            return reply::error(out, OUT_OF_MEMORY);
        };
        self.execute_within_quotas(request, turn, transfer, out);
        drop(room);
        self.make_room(0, turn);
    }

    /// Makes room for the bytes of a request. A streamed SET has its room already, unless it was
    /// refused.
    #[inline]
    fn room_for(
        &self,
        request: &Request<'_>,
        transfer: Option<&Transfer<'_>>,
        turn: Turn,
    ) -> Option<Reserved<'_>> {
        if transfer.is_some_and(Transfer::is_refused) {
            return None;
        }
        self.reserve(args_len(request), turn)
    }

    /// Returns whether there is the database that a client has selected; if not, says
    /// so.
    #[inline]
    pub(crate) fn has_database(&self, context: Context, out: &mut Vec<u8>) -> bool {
        let is_there = context.database < self.config().databases;
        if !is_there {
            reply::error(out, "ERR DB index is out of range");
        }
        is_there
    }
}
