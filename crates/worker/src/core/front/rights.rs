//! Clients whose users change.
//!
//! A client that is logged in has the rights of its user from its next request on. What it has
//! begun before that, and is no longer allowed, ends at once: nothing else would ever check it
//! again.

use crate::core::Plane;
use keyway_command::Verb;
use keyway_proxy::local::{Unblock, UnblockReason};
use keyway_proxy::pubsub::{SubscriptionKind, Subscriptions};
use keyway_proxy::{Identity, Session};
use keyway_users::{User, Users};
use std::sync::Arc;

/// Why a connection cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Its user was removed.
    User,
    /// Its subscriptions, monitoring or tracking are no longer allowed for its user.
    Rights,
    /// The database that it has selected was removed.
    Database,
}

impl Loss {
    /// Returns its text in the log.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Loss::User => "client disconnected: a reload has removed its user",
            Loss::Rights => {
                "client disconnected: it has subscribed, watches or caches, and a reload has taken \
                 from its user the right to"
            }
            Loss::Database => {
                "client disconnected: a reload has taken the database away that it had selected"
            }
        }
    }
}

impl Plane {
    /// Returns whether a client logged in as a user that a reload has changed since.
    pub(in crate::core) fn has_old_rights(&self, session: &Session) -> bool {
        let users = &self.plan.listeners[usize::from(session.listener)].users;
        let Some(user) = &session.identity.user else { return users.newcomer().is_some() };
        let is_now = |user: &Arc<User>| {
            users.get(user.name().as_bytes()).is_some_and(|now| Arc::ptr_eq(now, user))
        };
        !is_now(user)
    }

    /// Gives a client the current rights of its user. Returns why its connection must end, if it
    /// must.
    pub(in crate::core) fn renew_rights(&mut self, session: &mut Session) -> Option<Loss> {
        let plan = Arc::clone(&self.plan);
        let users = &plan.listeners[usize::from(session.listener)].users;
        let was_in = session.identity.authenticated;
        let before = session.identity.user.clone().filter(|_| was_in);
        let now = before.as_ref().and_then(|user| users.get(user.name().as_bytes()));
        if before.is_some() && now.is_none() {
            return Some(Loss::User);
        }
        let still = now.filter(|user| user.is_on());
        let is_same = before.as_deref() == still.map(|user| &**user);
        renew(&mut session.identity, still, users);
        let name = session.identity.shared_user_name();
        plan.clients.update(session.identity.id, |entry| entry.user = name);
        if is_same {
            return None;
        }
        if let Some(stateful) = &mut session.stateful {
            // Queued commands were checked with the earlier rights.
            stateful.refuse();
        }
        let before = before?;
        let user = session.identity.user.clone().filter(|_| still.is_some());
        let keeps_all = user.as_ref().is_some_and(|user| user.may_all_of(&before));
        if !keeps_all && session.is_blocked() {
            let (id, reason) = (session.identity.id, UnblockReason::Denied);
            self.clients.unblocks.push(Unblock { id, reason });
        }
        let is_cut = session.is_monitor && !user.as_ref().is_some_and(|it| it.may(Verb::Monitor));
        let subscriptions = session.subscriptions.as_deref();
        let is_deaf = subscriptions.is_some_and(|them| !may_hear_all(user.as_deref(), them));
        let caches =
            session.tracking.is_some() || self.store.tracking.is_tracker(session.identity.id);
        (is_cut || is_deaf || caches && !keeps_all).then_some(Loss::Rights)
    }
}

/// Sets the user with which it has logged in, or none.
fn renew(identity: &mut Identity, still: Option<&Arc<User>>, users: &Users) {
    match still {
        Some(user) => identity.admit(user, users),
        None => identity.begin(users),
    }
}

/// Returns whether a user may receive everything to which one of its clients has subscribed, or is
/// about to.
fn may_hear_all(user: Option<&User>, subscriptions: &Subscriptions) -> bool {
    let may_hear = |kind: SubscriptionKind, name: &[u8]| {
        let verb = match kind {
            SubscriptionKind::Channel => Verb::Subscribe,
            SubscriptionKind::Pattern => Verb::Psubscribe,
            SubscriptionKind::Shard => Verb::Ssubscribe,
        };
        let is_pattern = kind == SubscriptionKind::Pattern;
        user.is_some_and(|user| user.may_hear(verb, name, is_pattern))
    };
    let names = |kind| subscriptions.names(kind).map(move |name| (kind, name));
    let pending = subscriptions.pending.iter();
    let pending = pending.flat_map(|it| it.names().map(|(name, _)| (it.kind, name)));
    SubscriptionKind::ALL
        .into_iter()
        .flat_map(names)
        .chain(pending)
        .all(|(kind, name)| may_hear(kind, name))
}
