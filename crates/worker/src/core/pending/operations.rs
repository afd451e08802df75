//! One slab for all requests that take several exchanges, and what is the same for all of them: who
//! is answered, how they get replies and faults of servers, and how they end.

use crate::core::ConnectionKey;
use crate::core::request::ReplyIndex;
use keyway_base::{Key, Slab};
use keyway_proxy::memcached::{MemcachedJoin, WarmUpRead};
use keyway_proxy::route_policy::RoutedRequest;
use keyway_proxy::{Join, MultiStep, Operation, OperationKind, Owner, ReplyTo, Session};

/// A step that a reply has requested, to be done when no link is borrowed.
pub(in crate::core) enum Due {
    /// The next step of an operation.
    Next(Key<Operation>),
    /// Scripts that were loaded through this connection are missing on its server.
    Scripts(ConnectionKey),
    /// A load through this connection was refused for now.
    Loads(ConnectionKey),
}

/// The operations of a worker.
#[derive(Default)]
pub(super) struct Operations {
    pub(super) slab: Slab<Operation>,
    /// Number of operations of each kind, by [`OfKind::INDEX`].
    pub(super) counts: [usize; KINDS],
}

/// Number of variants of [`OperationKind`].
const KINDS: usize = 5;

/// A type that a variant of [`OperationKind`] holds.
pub(in crate::core) trait OfKind: Sized {
    /// Its index in [`Operations::counts`].
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
    /// Adds an operation. Its key identifies it until it has ended.
    #[inline]
    pub(in crate::core) fn begin<T: OfKind>(
        &mut self,
        reply_to: ReplyTo,
        this: Box<T>,
    ) -> Key<Operation> {
        self.operations.counts[T::INDEX] += 1;
        self.operations.slab.insert_with(|_| Operation { reply_to, kind: T::pack(this) })
    }

    /// Returns an operation of this kind, unless it has ended.
    #[inline]
    pub(in crate::core) fn get<T: OfKind>(&self, key: Key<Operation>) -> Option<&T> {
        T::of(&self.operations.slab.get(key)?.kind)
    }

    /// Returns an operation of this kind mutably, unless it has ended.
    #[inline]
    pub(in crate::core) fn get_mut<T: OfKind>(&mut self, key: Key<Operation>) -> Option<&mut T> {
        T::of_mut(&mut self.operations.slab.get_mut(key)?.kind)
    }

    /// Returns the same with the destination of its reply.
    #[inline]
    pub(in crate::core) fn entry_mut<T: OfKind>(
        &mut self,
        key: Key<Operation>,
    ) -> Option<(ReplyTo, &mut T)> {
        let Operation { reply_to, kind } = self.operations.slab.get_mut(key)?;
        Some((*reply_to, T::of_mut(kind)?))
    }

    /// Removes an operation of this kind, which has ended or will begin again.
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

    /// Returns the number of operations of this kind.
    #[inline]
    pub(in crate::core) fn count<T: OfKind>(&self) -> usize {
        self.operations.counts[T::INDEX]
    }

    /// Returns the operations of this kind, with the destinations of their replies.
    pub(in crate::core) fn all<T: OfKind + 'static>(&self) -> impl Iterator<Item = (ReplyTo, &T)> {
        let all = self.operations.slab.iter();
        all.filter_map(|(_, operation)| Some((operation.reply_to, T::of(&operation.kind)?)))
    }

    /// Returns the destination of an operation's reply.
    pub(in crate::core) fn reply_to(&self, key: Key<Operation>) -> Option<ReplyTo> {
        Some(self.operations.slab.get(key)?.reply_to)
    }

    /// Returns the session that an operation answers, or that waits for its end.
    pub(in crate::core) fn session_of(&self, key: Key<Operation>) -> Option<Key<Session>> {
        Some(self.reply_to(key)?.session)
    }

    /// Returns whether an operation of this kind waits for a reply.
    pub(in crate::core) fn is_part_of<T: OfKind>(&self, owner: Owner) -> bool {
        let Owner::Operation { operation, .. } = owner else { return false };
        self.get::<T>(operation).is_some()
    }

    /// Returns the session that an operation answers, and the index of its reply there. Returns
    /// `None` if the client asked for no reply, or if the replies of servers only prepare for its
    /// request.
    pub(in crate::core) fn reply_index(&self, key: Key<Operation>) -> Option<ReplyIndex> {
        let Operation { reply_to, kind } = self.operations.slab.get(key)?;
        match kind {
            OperationKind::WarmUpRead(_) => None,
            _ => Some(ReplyIndex { session: reply_to.session, reply: reply_to.reply? }),
        }
    }

    /// Returns the number of operations.
    pub(in crate::core) fn operations(&self) -> usize {
        self.operations.slab.len()
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
        assert_eq!(pending.reply_index(join), Some(ReplyIndex { session, reply: 3 }));
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
