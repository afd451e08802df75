//! Requests that a control node passes on to members, and the answers that it waits for.
//!
//! ```text
//!   admin listener ──► begin ──► a command of the bus to each member that is on it
//!        ▲                                │
//!        └── answers of all ◄── on_result, on_failed ◄── the bus ends every command in time
//! ```

use keyway_bus::{NodeId, Reason};
use keyway_control::{ANSWERS_LEN_MAX, MemberAnswer, MemberReply, PassedRequest, Selection};
use keyway_fleet::FleetView;
use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// Longest wait for the answers to a question. A member needs milliseconds.
pub const READ_WITHIN: Duration = Duration::from_secs(5);

/// Longest wait for the outcome of a change. It is longer than a reload waits for workers.
pub const CHANGE_WITHIN: Duration = Duration::from_secs(35);

/// Most members that an error names.
const TOLD_MAX: usize = 5;

/// Status of a result whose items are the answer to a request.
pub const ANSWERED: u16 = 0;

/// Status of a result whose item is the reason why there is no answer.
pub const NOT_ANSWERED: u16 = 1;

/// Where answers go.
pub type Tell = SyncSender<Vec<MemberAnswer>>;

/// Requests that wait for answers.
#[derive(Debug, Default)]
pub struct Passing {
    open: BTreeMap<u64, Open>,
    /// Length of all answers to these that have come, in bytes.
    len: usize,
    next: u64,
    /// Commands of the bus.
    sent: BTreeMap<u64, Sent>,
}

/// A command of the bus: its member, its request, and the member's index in that.
#[derive(Clone, Copy, Debug)]
struct Sent {
    to: NodeId,
    request: u64,
    index: usize,
}

/// A request that waits for answers.
#[derive(Debug)]
struct Open {
    answers: Vec<MemberAnswer>,
    /// Number of members that have neither answered nor failed.
    left: usize,
    tell: Tell,
}

/// A member that is asked.
pub struct Target {
    id: NodeId,
    /// True if it is on the bus.
    is_there: bool,
}

/// Returns the members that a request selects, in the order of their ids.
///
/// # Errors
/// Returns the names that are those of no member.
pub fn targets(view: &FleetView, selection: &Selection) -> Result<Vec<Target>, String> {
    let names: Vec<String> = view.members.iter().map(|member| member.id.to_string()).collect();
    let unknown: Vec<&str> =
        selection.ids.iter().filter(|id| !names.contains(id)).map(String::as_str).collect();
    if !unknown.is_empty() {
        let told = unknown.iter().take(TOLD_MAX).copied().collect::<Vec<_>>().join(", ");
        return Err(format!("no member is called {told}: keyway ctl fleet has their ids"));
    }
    let is_of = |(member, name): &(&keyway_fleet::MemberView, &String)| {
        (selection.ids.is_empty() || selection.ids.contains(name))
            && selection.zone.is_none_or(|zone| zone == member.id.zone())
    };
    let found = view.members.iter().zip(&names).filter(is_of);
    let found: Vec<Target> = found
        .map(|(member, _)| Target { id: member.id, is_there: member.silent_for.is_none() })
        .collect();
    match (found.is_empty(), selection.zone) {
        (false, _) => Ok(found),
        (true, Some(zone)) => Err(format!("zone {zone} has no such member")),
        (true, None) => Err("the fleet has no members yet".to_owned()),
    }
}

/// Returns how long members may take to answer a request.
pub fn within(request: &PassedRequest) -> Duration {
    if request.is_change() { CHANGE_WITHIN } else { READ_WITHIN }
}

impl Passing {
    /// Begins a request. `send` sends it to a member, and returns the number of the command or the
    /// reason why it is not sent.
    pub fn begin(
        &mut self,
        targets: &[Target],
        tell: Tell,
        mut send: impl FnMut(NodeId) -> Result<u64, String>,
    ) {
        self.next += 1;
        let number = self.next;
        let mut open = Open { answers: Vec::new(), left: 0, tell };
        for (index, target) in targets.iter().enumerate() {
            let sent = match target.is_there {
                true => send(target.id),
                false => Err("it is not on the bus".to_owned()),
            };
            let outcome = sent.map(|seq| {
                open.left += 1;
                self.sent.insert(seq, Sent { to: target.id, request: number, index });
                MemberReply::default()
            });
            let (id, zone) = (target.id.to_string(), target.id.zone());
            open.answers.push(MemberAnswer { id, zone, outcome });
        }
        self.open.insert(number, open);
        self.end_if_whole(number);
    }

    /// Takes a result of the bus, which may be of no request.
    pub fn on_result(&mut self, seq: u64, status: u16, items: Vec<Vec<u8>>) {
        let refused = |why: &Vec<u8>| keyway_base::printable(why);
        let outcome = match status {
            ANSWERED => MemberReply::decode(items)
                .ok_or_else(|| "its answer cannot be read: is it of another version?".to_owned()),
            _ => Err(items.first().map_or_else(|| "it refuses".to_owned(), refused)),
        };
        self.on_outcome(seq, outcome);
    }

    /// Takes the failure of a message or a command, which may be of no request.
    pub fn on_failed(&mut self, seq: u64, reason: Reason, may_have_arrived: bool) {
        let may = if may_have_arrived { "; it may be done all the same" } else { "" };
        self.on_outcome(seq, Err(format!("{reason}{may}")));
    }

    /// Takes that a member has left the bus: its answers do not come.
    pub fn on_left(&mut self, id: NodeId) {
        let of = self.sent.iter().filter(|(_, sent)| sent.to == id).map(|(seq, _)| *seq);
        for seq in of.collect::<Vec<_>>() {
            let why = "it has left the bus; it may be done all the same";
            self.on_outcome(seq, Err(why.to_owned()));
        }
    }

    fn on_outcome(&mut self, seq: u64, outcome: Result<MemberReply, String>) {
        let Some(Sent { request: number, index, .. }) = self.sent.remove(&seq) else { return };
        if let Some(open) = self.open.get_mut(&number) {
            open.left = open.left.saturating_sub(1);
            let len = outcome.as_ref().map_or(0, |reply| reply.body.len());
            if let Some(answer) = open.answers.get_mut(index) {
                answer.outcome = match self.len + len > ANSWERS_LEN_MAX {
                    true => Err("the answers are too long together: ask fewer members".to_owned()),
                    false => {
                        self.len += len;
                        outcome
                    }
                };
            }
        }
        self.end_if_whole(number);
    }

    fn end_if_whole(&mut self, number: u64) {
        if self.open.get(&number).is_some_and(|open| open.left == 0)
            && let Some(open) = self.open.remove(&number)
        {
            let came = open.answers.iter().filter_map(|one| one.outcome.as_ref().ok());
            self.len = self.len.saturating_sub(came.map(|reply| reply.body.len()).sum());
            // The thread that asked may have given up.
            let _ = open.tell.try_send(open.answers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    fn targets(there: &[bool]) -> Vec<Target> {
        let id = |at: usize| format!("z1.proxy.0.{}", at + 1).parse::<NodeId>();
        let one =
            |(at, is_there): (usize, &bool)| Some(Target { id: id(at).ok()?, is_there: *is_there });
        there.iter().enumerate().filter_map(one).collect()
    }

    fn reply(len: usize) -> Vec<Vec<u8>> {
        let (content_type, body) = ("text/plain".to_owned(), vec![b'x'; len]);
        MemberReply { status: 200, content_type, body }.encode().to_vec()
    }

    #[test]
    fn every_member_has_one_outcome_and_nothing_is_left() {
        let mut passing = Passing::default();
        let (tell, told) = sync_channel(1);
        let mut seq = 10;
        let there = targets(&[true, false, true, true, true]);
        assert_eq!(there.len(), 5);
        passing.begin(&there, tell, |_| {
            seq += 1;
            if seq == 14 { Err("no room".to_owned()) } else { Ok(seq) }
        });
        passing.on_result(12, ANSWERED, reply(3));
        // A second answer is nobody's, and neither is one to a command that was never sent.
        passing.on_result(12, ANSWERED, reply(9));
        passing.on_failed(99, Reason::Timeout, true);
        assert!(told.try_recv().is_err(), "two are awaited");
        passing.on_result(11, NOT_ANSWERED, vec![b"busy".to_vec()]);
        passing.on_failed(13, Reason::Timeout, true);
        let answers = told.try_recv().expect("all have an outcome");
        let bodies: Vec<_> =
            answers.iter().map(|one| one.outcome.as_ref().map(|it| it.body.len())).collect();
        assert_eq!(bodies[2], Ok(3));
        assert_eq!(bodies[0], Err(&"busy".to_owned()));
        assert_eq!(bodies[1], Err(&"it is not on the bus".to_owned()));
        assert_eq!(bodies[4], Err(&"no room".to_owned()));
        assert!(bodies[3].is_err_and(|why| why.contains("may be done")));
        assert!(passing.open.is_empty() && passing.sent.is_empty());
    }

    #[test]
    fn a_member_that_leaves_is_not_waited_for() {
        let mut passing = Passing::default();
        let (tell, told) = sync_channel(1);
        let there = targets(&[true, true]);
        let mut seq = 0;
        passing.begin(&there, tell, |_| {
            seq += 1;
            Ok(seq)
        });
        passing.on_result(2, ANSWERED, reply(1));
        passing.on_left(there[1].id);
        assert!(told.try_recv().is_err(), "it has answered before");
        passing.on_left(there[0].id);
        let answers = told.try_recv().expect("nobody is awaited");
        assert!(answers[0].outcome.is_err() && answers[1].outcome.is_ok());
        assert!(passing.sent.is_empty());
    }

    #[test]
    fn answers_that_are_too_long_together_are_left_out() {
        let mut passing = Passing::default();
        let (tell, told) = sync_channel(1);
        let there = targets(&[true; 20]);
        let mut seq = 0;
        passing.begin(&there, tell, |_| {
            seq += 1;
            Ok(seq)
        });
        for seq in 1..=20 {
            passing.on_result(seq, ANSWERED, reply(4 << 20));
        }
        let answers = told.try_recv().expect("all have answered");
        assert_eq!(answers.iter().filter(|one| one.outcome.is_ok()).count(), 16);
        assert_eq!(passing.len, 0, "the next request has all of the room");
    }

    #[test]
    fn a_request_for_nobody_on_the_bus_is_answered_at_once() {
        let mut passing = Passing::default();
        let (tell, told) = sync_channel(1);
        passing.begin(&targets(&[false]), tell, |_| Ok(1));
        assert!(told.try_recv().expect("at once")[0].outcome.is_err());
        assert!(passing.open.is_empty());
    }
}
