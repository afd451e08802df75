//! The groups of servers as a member sees them, and when that is reported.

use crate::groups::{RoleSeen, cut_seen};
use crate::limits::SEEN_EVERY;
use crate::{GroupSeen, ServerSeen};
use keyway_base::Time;

/// The reason to report what is seen now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportView {
    /// There is none.
    No,
    /// The leader needs a view that is not old.
    Due,
    /// A server has fallen silent, answers again or has another role, or another decision counts.
    Changed,
}

/// A member's view of its groups.
#[derive(Debug, Default)]
pub(crate) struct Seeing {
    latest: Vec<GroupSeen>,
    reported: Vec<GroupSeen>,
    next: Option<Time>,
}

impl Seeing {
    /// Takes what is seen now. Returns why it is to be reported.
    pub fn take(&mut self, groups: Vec<GroupSeen>, now: Time) -> ReportView {
        self.latest = cut_seen(groups);
        let has_any = !self.latest.is_empty() || !self.reported.is_empty();
        let is_due = has_any && self.next.is_none_or(|next| next <= now);
        let why = match is_alike(&self.latest, &self.reported) {
            false => ReportView::Changed,
            true if is_due => ReportView::Due,
            true => return ReportView::No,
        };
        self.reported.clone_from(&self.latest);
        self.next = Some(now + SEEN_EVERY);
        why
    }

    /// Returns what was seen last.
    pub fn latest(&self) -> &[GroupSeen] {
        &self.latest
    }
}

/// Returns whether two views differ in numbers alone, such as offsets.
fn is_alike(one: &[GroupSeen], other: &[GroupSeen]) -> bool {
    let is_alike = |(one, other): (&GroupSeen, &GroupSeen)| {
        one.pool == other.pool
            && one.epoch == other.epoch
            && one.servers.len() == other.servers.len()
            && one
                .servers
                .iter()
                .zip(&other.servers)
                .all(|(one, other)| essence(one) == essence(other))
    };
    one.len() == other.len() && one.iter().zip(other).all(is_alike)
}

fn essence(server: &ServerSeen) -> (&str, bool, Option<(&str, bool)>) {
    let role = server.role.as_ref().map(|role| match role {
        RoleSeen::Primary { .. } => ("", true),
        RoleSeen::Replica { of, is_linked, .. } => (of.as_str(), *is_linked),
    });
    (&server.address, server.is_reached(), role)
}
