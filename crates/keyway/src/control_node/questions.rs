//! The questions and orders of the admin listener.

use super::admin::{self, Ask, Question, Tell};
use super::{Running, passing, show};
use crate::bus::figures;
use keyway_channel::clock;
use keyway_control::{ApplyRefusal, PassedRequest, Selection};
use keyway_fleet::{ApplyFault, OrderId};

impl Running {
    /// Answers a question of the admin listener, or begins what it orders.
    pub(super) fn on_ask(&mut self, ask: Ask) {
        let Ask { question, tell } = ask;
        // The asking thread may have given up.
        match question {
            Question::Metrics => {
                let view = self.leader.view(clock());
                let fleet = show::figures(&view, (self.elections, self.faults), self.rollouts);
                let (audit_entry, audit_is_tampered) = self.audit.figures();
                let (events_kept, events_dropped) = self.events.counts();
                let fleet = keyway_metrics::FleetFigures {
                    groups: show::group_figures(&self.leader.group_views(clock())),
                    failovers: self.failovers,
                    audit_entry,
                    audit_is_tampered,
                    events_kept,
                    events_dropped,
                    ..fleet
                };
                let bus = figures(self.driver.node(), &self.failures);
                let _ = tell.try_send(admin::Answer::Metrics(Box::new(bus), Box::new(fleet)));
            }
            Question::Fleet => {
                let status = show::status(&self.leader.view(clock()));
                let _ = tell.try_send(admin::Answer::Fleet(Box::new(status)));
            }
            Question::Documents => {
                let documents = self.leader.documents();
                let _ = tell.try_send(admin::Answer::Documents(documents));
            }
            Question::Rollout => {
                let view = self.leader.view(clock()).rollout;
                let status = view.map(|view| Box::new(show::rollout(&view)));
                let _ = tell.try_send(admin::Answer::Rollout(status));
            }
            Question::Groups => {
                let views = self.leader.group_views(clock());
                let _ = tell.try_send(admin::Answer::Groups(views));
            }
            Question::Forget(member, at, by) => {
                let outcome = self.leader.forget_member(member, (at, by), clock());
                let _ = tell.try_send(admin::Answer::Forgotten(outcome));
            }
            Question::Slots => {
                let views = match self.leader.leads() {
                    true => Ok(self.leader.slots_views(clock())),
                    false => Err(self.not_leading().to_string()),
                };
                let _ = tell.try_send(admin::Answer::Slots(views));
            }
            Question::Move(mut order, outcome) => {
                order.id = self.number(outcome);
                self.leader.order_slots(order, clock());
            }
            Question::Failover(mut order, outcome) => {
                order.id = self.number(outcome);
                self.leader.failover(order, clock());
            }
            Question::Audit => {
                let log = Box::new(self.leader.audit());
                let _ = tell.try_send(admin::Answer::Audit(log));
            }
            Question::Apply(mut order, outcome) => {
                order.id = self.number(outcome);
                self.leader.apply(order, clock());
            }
            Question::Steer(mut order, outcome) => {
                order.id = self.number(outcome);
                self.leader.steer(order, clock());
            }
            Question::Pass(selection, request, answers) => {
                let outcome = self.pass_on(&selection, &request, answers);
                let _ = tell.try_send(admin::Answer::Passed(outcome));
            }
        }
        self.carry_out();
    }

    /// Asks members. Each of them obeys the leader alone.
    fn pass_on(
        &mut self,
        selection: &Selection,
        request: &PassedRequest,
        tell: passing::Tell,
    ) -> Result<(), ApplyRefusal> {
        let now = clock();
        if !self.leader.leads() {
            return Err(ApplyRefusal::Unavailable(self.not_leading().to_string()));
        }
        let view = self.leader.view(now);
        let targets =
            passing::targets(&view, selection).map_err(|what| ApplyRefusal::Invalid(vec![what]))?;
        let (words, within) = (request.encode(), passing::within(request));
        let node = self.driver.node();
        self.passing.begin(&targets, tell, |id| {
            node.command(id, &words, within, now).map_err(|fault| fault.to_string())
        });
        Ok(())
    }

    fn not_leading(&self) -> ApplyFault {
        ApplyFault::NotLeading(self.leader.view(clock()).leader.map(|leader| leader.fact))
    }

    /// Numbers an order, whose outcome goes there.
    fn number(&mut self, outcome: Tell) -> OrderId {
        self.next_order += 1;
        let id = OrderId(self.next_order);
        self.orders.insert(id, outcome);
        id
    }
}
