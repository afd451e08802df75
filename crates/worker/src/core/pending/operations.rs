//! One slab for all requests that take several exchanges, and what is the same for all of them:
//! who is answered, how replies and faults of servers come to them, and how they end.

use crate::core::pools::servers::given::Given;
use crate::core::{ConnectionKey, Core, Plane};
use keyway_base::{Fault, Key, Slab};
use keyway_command::Request;
use keyway_proxy::memcached::{MemcachedJoin, WarmUpRead};
use keyway_proxy::route_policy::RoutedRequest;
use keyway_proxy::{Busy, Join, MultiStep, Operation, OperationKind, Owner, ReplyTo, Session};
use keyway_resp::Kind;

/// What a reply has asked for, to be done when no link is borrowed.
pub(in crate::core) enum Due {
    /// The next step of an operation.
    Next(Key<Operation>),
    /// Scripts that were loaded through this connection are not there.
    Scripts(ConnectionKey),
    /// What was to be loaded through this connection was refused for now.
    Loads(ConnectionKey),
}

/// The operations of a worker.
#[derive(Default)]
pub(in crate::core::pending) struct Operations {
    slab: Slab<Operation>,
    /// How many there are of each kind, by [`OfKind::INDEX`].
    counts: [usize; KINDS],
}

/// Number of variants of [`OperationKind`].
const KINDS: usize = 5;

/// A type that a variant of [`OperationKind`] holds.
pub(in crate::core) trait OfKind: Sized {
    /// Its place in [`Operations::counts`].
    const INDEX: usize;
    fn pack(this: Box<Self>) -> OperationKind;
    fn unpack(kind: OperationKind) -> Option<Box<Self>>;
    fn of(kind: &OperationKind) -> Option<&Self>;
    fn of_mut(kind: &mut OperationKind) -> Option<&mut Self>;
}

macro_rules! kinds {
    ($($index:literal: $kind:ident),*) => {$(
        impl OfKind for $kind {
            const INDEX: usize = $index;

            #[inline]
            fn pack(this: Box<Self>) -> OperationKind {
                OperationKind::$kind(this)
            }

            #[inline]
            fn unpack(kind: OperationKind) -> Option<Box<Self>> {
                match kind {
                    OperationKind::$kind(this) => Some(this),
                    _ => None,
                }
            }

            #[inline]
            fn of(kind: &OperationKind) -> Option<&Self> {
                match kind {
                    OperationKind::$kind(this) => Some(this),
                    _ => None,
                }
            }

            #[inline]
            fn of_mut(kind: &mut OperationKind) -> Option<&mut Self> {
                match kind {
                    OperationKind::$kind(this) => Some(this),
                    _ => None,
                }
            }
        }
    )*};
}

kinds!(0: Join, 1: MultiStep, 2: MemcachedJoin, 3: WarmUpRead, 4: RoutedRequest);

impl super::State {
    /// Adds an operation. Its key names it until it has ended.
    #[inline]
    pub(in crate::core) fn begin<T: OfKind>(
        &mut self,
        reply_to: ReplyTo,
        this: Box<T>,
    ) -> Key<Operation> {
        self.operations.counts[T::INDEX] += 1;
        self.operations.slab.insert(Operation { reply_to, kind: T::pack(this) })
    }

    /// An operation of this kind, unless it has ended.
    #[inline]
    pub(in crate::core) fn get<T: OfKind>(&self, key: Key<Operation>) -> Option<&T> {
        T::of(&self.operations.slab.get(key)?.kind)
    }

    /// The same, to be changed.
    #[inline]
    pub(in crate::core) fn get_mut<T: OfKind>(&mut self, key: Key<Operation>) -> Option<&mut T> {
        T::of_mut(&mut self.operations.slab.get_mut(key)?.kind)
    }

    /// The same, with whose reply it becomes.
    #[inline]
    pub(in crate::core) fn entry_mut<T: OfKind>(
        &mut self,
        key: Key<Operation>,
    ) -> Option<(ReplyTo, &mut T)> {
        let Operation { reply_to, kind } = self.operations.slab.get_mut(key)?;
        Some((*reply_to, T::of_mut(kind)?))
    }

    /// Takes out an operation of this kind, which has ended or is to begin anew.
    #[inline]
    pub(in crate::core) fn end<T: OfKind>(
        &mut self,
        key: Key<Operation>,
    ) -> Option<(ReplyTo, Box<T>)> {
        let Operation { reply_to, kind } = self.operations.slab.remove(key)?;
        let this = T::unpack(kind);
        debug_assert!(this.is_some(), "a key names an operation of one kind");
        self.operations.counts[T::INDEX] -= 1;
        Some((reply_to, this?))
    }

    /// Number of operations of this kind.
    #[inline]
    pub(in crate::core) fn count<T: OfKind>(&self) -> usize {
        self.operations.counts[T::INDEX]
    }

    /// Operations of this kind, with whose reply they become.
    pub(in crate::core) fn all<T: OfKind + 'static>(&self) -> impl Iterator<Item = (ReplyTo, &T)> {
        let all = self.operations.slab.iter();
        all.filter_map(|(_, operation)| Some((operation.reply_to, T::of(&operation.kind)?)))
    }

    /// Whose reply an operation becomes.
    pub(in crate::core) fn reply_to(&self, key: Key<Operation>) -> Option<ReplyTo> {
        Some(self.operations.slab.get(key)?.reply_to)
    }

    /// The session that an operation answers, or that waits for its end.
    pub(in crate::core) fn session_of(&self, key: Key<Operation>) -> Option<Key<Session>> {
        Some(self.reply_to(key)?.session)
    }

    /// Whether a reply is waited for by an operation of this kind.
    pub(in crate::core) fn is_part_of<T: OfKind>(&self, owner: Owner) -> bool {
        let Owner::Operation { operation, .. } = owner else { return false };
        self.get::<T>(operation).is_some()
    }

    /// The session that an operation answers, and the index of its reply there; `None` when the
    /// client asked for no reply, or when the replies of servers only prepare for its request.
    pub(in crate::core) fn reply_index(&self, key: Key<Operation>) -> Option<(Key<Session>, u32)> {
        let Operation { reply_to, kind } = self.operations.slab.get(key)?;
        match kind {
            OperationKind::WarmUpRead(_) => None,
            _ => Some((reply_to.session, reply_to.reply?)),
        }
    }

    /// Number of operations.
    pub(in crate::core) fn operations(&self) -> usize {
        self.operations.slab.len()
    }
}

impl Core {
    /// Takes the next steps of the operations that have one; once a turn, before the links' output
    /// is sent.
    pub(crate) fn continue_operations(&mut self) {
        let mut due = std::mem::take(&mut self.plane.pending.due);
        for due in due.drain(..) {
            match due {
                Due::Next(key) => self.continue_operation(key),
                Due::Scripts(key) => {
                    let _ = self.links.get_mut(key).map(|it| it.given.forget_scripts());
                }
                Due::Loads(key) => {
                    let _ = self.links.get_mut(key).map(|it| it.given = Given::default());
                }
            }
        }
        if self.plane.pending.due.is_empty() {
            self.plane.pending.due = due;
        }
    }

    fn continue_operation(&mut self, key: Key<Operation>) {
        let Core { sessions, links, plane } = self;
        let Some(operation) = plane.pending.operations.slab.get(key) else { return };
        match operation.kind {
            // A server that a WAIT asks is lost: whatever the others say, it fails.
            OperationKind::Join(_) => plane.end_wait(sessions, links, key),
            OperationKind::MultiStep(_) => plane.ask_again(sessions, links, key),
            OperationKind::WarmUpRead(_) => plane.continue_warm_up_read(sessions, links, key),
            OperationKind::MemcachedJoin(_) | OperationKind::RoutedRequest(_) => {}
        }
    }

    /// Whether an operation waits for [`Core::continue_operations`].
    #[inline]
    pub(crate) fn has_operations_due(&self) -> bool {
        !self.plane.pending.due.is_empty()
    }
}

impl Plane {
    /// Reserves the reply of a request that is about to be sent.
    #[inline]
    pub(in crate::core) fn reply_to_request(
        &self,
        (key, session): (Key<Session>, &mut Session),
        busy: &mut Busy,
        request: &Request,
    ) -> ReplyTo {
        let is_unheard = Self::is_silent(session);
        session.unheard += u32::from(is_unheard);
        Self::end_skip(session);
        ReplyTo {
            session: key,
            reply: if is_unheard { None } else { Some(busy.order.reserve()) },
            started: self.clock.now,
            counted: request.command.counted(),
            pool: session.pool,
        }
    }

    /// Hands an operation a server's reply to a part of it.
    #[inline]
    pub(in crate::core) fn on_operation_reply(
        &mut self,
        sessions: &mut Slab<Session>,
        (key, part): (Key<Operation>, u32),
        kind: Kind,
        reply: &[u8],
    ) {
        let Some(operation) = self.pending.operations.slab.get_mut(key) else { return };
        match &mut operation.kind {
            OperationKind::Join(join) => {
                if join.on_reply(part as u16, kind, reply) {
                    self.finish_join(sessions, key);
                }
            }
            OperationKind::MultiStep(multi_step) => {
                let next = multi_step.on_reply(kind, reply);
                self.after_multi_step_reply(sessions, key, (kind, reply), next);
            }
            OperationKind::MemcachedJoin(memcached_join) => {
                if memcached_join.on_reply(part as u16, reply) {
                    self.finish_memcached_join(sessions, key);
                }
            }
            OperationKind::WarmUpRead(_) => self.on_item_copy_outcome(key, part, Ok(reply)),
            OperationKind::RoutedRequest(_) => debug_assert!(false, "it asks by sub-requests"),
        }
    }

    /// A server does not answer its part of an operation.
    #[cold]
    pub(in crate::core) fn on_operation_fault(
        &mut self,
        sessions: &mut Slab<Session>,
        server: (u16, u16),
        (key, part): (Key<Operation>, u32),
        fault: Fault,
    ) {
        let Some(operation) = self.pending.operations.slab.get_mut(key) else { return };
        match &mut operation.kind {
            OperationKind::Join(join) => {
                if join.on_fault(part as u16, fault) {
                    self.finish_join(sessions, key);
                } else if join.is_waiting {
                    self.pending.add_due(Due::Next(key));
                }
            }
            OperationKind::MultiStep(_) => {
                self.on_multi_step_fault(sessions, server, key, fault);
            }
            OperationKind::MemcachedJoin(memcached_join) => {
                if memcached_join.on_fault(part as u16, fault) {
                    self.finish_memcached_join(sessions, key);
                }
            }
            OperationKind::WarmUpRead(_) => self.on_item_copy_outcome(key, part, Err(fault)),
            OperationKind::RoutedRequest(_) => debug_assert!(false, "it asks by sub-requests"),
        }
    }

    /// Answers the client of an operation that has ended. Returns whether there was one to answer.
    #[inline]
    pub(in crate::core) fn answer_operation(
        &mut self,
        sessions: &mut Slab<Session>,
        to: ReplyTo,
        fault: Option<Fault>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let Some(reply) = to.reply else {
            self.end_unheard(sessions, to.session);
            return false;
        };
        let Some(session) = sessions.get_mut(to.session) else { return false };
        if let Some(fault) = fault {
            session.note_fault(fault);
        }
        self.complete(to.session, session, reply, write);
        true
    }

    /// The same for one that ends while its session is being parsed.
    pub(in crate::core) fn answer_operation_now(
        &self,
        (session, busy): (&mut Session, &mut Busy),
        to: ReplyTo,
        fault: Option<Fault>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let Some(reply) = to.reply else {
            session.unheard -= 1;
            return false;
        };
        if let Some(fault) = fault {
            session.note_fault(fault);
        }
        let errors = &self.plan.pools[usize::from(session.pool)].errors;
        busy.order.complete(reply, &mut busy.output, |out| errors.watch(out, write));
        true
    }

    /// Answers the client of an operation that has not ended.
    pub(in crate::core) fn answer_unended<T: OfKind>(
        &mut self,
        sessions: &mut Slab<Session>,
        key: Key<Operation>,
        fault: Option<Fault>,
        write: impl FnOnce(&T, &mut Vec<u8>),
    ) -> bool {
        // An answer changes no operation.
        let slab = std::mem::take(&mut self.pending.operations.slab);
        let found = slab.get(key).and_then(|it| Some((it.reply_to, T::of(&it.kind)?)));
        let is_answered = found.is_some_and(|(to, this)| {
            self.answer_operation(sessions, to, fault, |out| write(this, out))
        });
        self.pending.operations.slab = slab;
        is_answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::pending::State;
    use keyway_base::Time;
    use keyway_command::Counted;

    #[test]
    fn a_key_names_an_operation_of_one_kind_until_that_has_ended() {
        let session = Key::from_bits(7);
        let (started, counted) = (Time(5), Counted::OWN);
        let to = ReplyTo { session, reply: Some(3), started, counted, pool: 2 };
        let mut pending = State::default();
        let join = pending.begin(to, Box::<Join>::default());
        let memcached = pending.begin(to, Box::<MemcachedJoin>::default());
        let unheard = pending.begin(ReplyTo { reply: None, ..to }, Box::<Join>::default());
        assert_eq!((pending.count::<Join>(), pending.count::<MemcachedJoin>()), (2, 1));
        assert!(pending.get::<Join>(join).is_some() && pending.get::<Join>(memcached).is_none());
        assert_eq!(pending.reply_index(join), Some((session, 3)));
        assert_eq!(pending.reply_index(unheard), None);
        assert_eq!(pending.session_of(unheard), Some(session));
        for key in [join, unheard] {
            assert!(pending.end::<Join>(key).is_some());
            assert!(pending.end::<Join>(key).is_none(), "it has ended");
            assert_eq!((pending.session_of(key), pending.reply_index(key)), (None, None));
        }
        assert_eq!((pending.operations(), pending.count::<Join>()), (1, 0));
        assert_eq!(pending.all::<MemcachedJoin>().count(), 1);
    }
}
