//! Questions about a pool that are not answered yet. Each has a number that its reply carries. So a
//! late reply to an abandoned question is not taken for the reply to another.

use crate::MapSource;
use crate::core::pools::cluster::state::About;
use crate::core::pools::cluster::state::Question;
use crate::core::pools::cluster::state::Round;
use crate::core::pools::cluster::state::Told;
use crate::core::{Core, Plane};
use keyway_topology::ServerId;
use std::time::Duration;

/// Time that a server may be silent before another server is asked. With a shorter time, two
/// servers would be asked if one is only slow. With a longer time, clients would wait longer.
const SILENCE: Duration = Duration::from_millis(300);

/// Longest time of a round in which one server has answered. Later answers are not awaited. A
/// shorter timeout of the pool takes precedence.
const ROUND_MAX: Duration = Duration::from_secs(1);

/// Largest number of servers of a cluster with open questions.
const OPEN_MAX: usize = 64;

impl Core {
    /// Handles questions that are not answered, once a turn.
    pub(super) fn tend_rounds(&mut self) {
        if self.plane.cluster.rounds.is_empty() {
            return;
        }
        let now = self.plane.clock.now;
        for pool in self.plane.cluster.pools.clone() {
            let Some(round) = self.plane.cluster.rounds.get_mut(&pool) else { continue };
            let (is_over, is_due) = (now >= round.end, now >= round.next);
            if is_due {
                round.next = now + SILENCE;
            }
            match (is_over, self.plane.has_slots(pool)) {
                (true, true) => self.plane.end_unanswered(pool),
                (true, false) => self.end_group_round(pool),
                (false, true) if is_due => self.ask_another(pool),
                (false, false) if is_due && self.is_decided(pool) => self.end_group_round(pool),
                (false, _) => {}
            }
            if let Some(round) = self.plane.cluster.rounds.get(&pool) {
                let at = round.next.min(round.end);
                self.plane.note_cluster_deadline(at);
            }
        }
    }

    /// Asks another server of a cluster, because the others are silent.
    fn ask_another(&mut self, pool: u16) {
        let Some(round) = self.plane.cluster.rounds.get_mut(&pool) else { return };
        if round.open.len() >= OPEN_MAX {
            return;
        }
        let silent: Vec<u16> = round.open.iter().map(|question| question.server).collect();
        for server in silent {
            self.plane.distrust(ServerId { pool, server });
        }
        let Some(state) = self.plane.cluster_state(pool) else { return };
        if let MapSource::Slots(query) = *state.shared.source() {
            self.ask_someone(pool, query);
        }
    }
}

impl Plane {
    /// Begins a round of questions about a pool. The answers of earlier rounds are no longer
    /// awaited.
    pub(super) fn begin_round(&mut self, pool: u16) {
        let now = self.clock.now;
        let options = self.link_options(pool);
        let timeout = options.timeout.unwrap_or(options.connect_timeout);
        let (end, soon) = (now + options.connect_timeout + timeout, now + timeout.min(ROUND_MAX));
        let next = if self.has_slots(pool) { soon.min(now + SILENCE) } else { soon };
        self.note_cluster_deadline(next);
        let (open, asked, told) = (Vec::new(), Vec::new(), Told::default());
        let round = Round { open, asked, next, end, is_doubted: false, told };
        self.cluster.rounds.insert(pool, round);
    }

    /// Notes a question about a pool. Returns its number.
    pub(super) fn note_question(&mut self, pool: u16, server: u16, about: About) -> u32 {
        self.cluster.next_question = self.cluster.next_question.wrapping_add(1);
        let number = self.cluster.next_question;
        if let Some(round) = self.cluster.rounds.get_mut(&pool) {
            round.open.push(Question { number, server, about });
            round.asked.push(server);
        }
        number
    }

    /// Takes the question that a server was asked, if its answer is still awaited.
    pub(super) fn take_question(&mut self, pool: u16, server: u16, number: u32) -> Option<About> {
        self.cluster.silent.remove(&(pool, server));
        let open = &mut self.cluster.rounds.get_mut(&pool)?.open;
        let is_it = |question: &Question| (question.number, question.server) == (number, server);
        let at = open.iter().position(is_it)?;
        Some(open.remove(at).about)
    }

    /// Forgets the other questions to a server about the same group: their answers are ignored.
    pub(super) fn forget_questions(&mut self, pool: u16, server: u16, about: About) {
        if let Some(round) = self.cluster.rounds.get_mut(&pool) {
            let is_same =
                |other: &Question| other.server == server && other.about.group() == about.group();
            round.open.retain(|other| !is_same(other));
        }
    }

    /// Returns whether all servers of the round have answered, or will not.
    pub(super) fn is_round_over(&self, pool: u16) -> bool {
        self.cluster.rounds.get(&pool).is_some_and(|round| round.open.is_empty())
    }

    /// Returns the indices of the servers that were asked about a pool in this round.
    pub(super) fn asked_in_round(&self, pool: u16) -> &[u16] {
        self.cluster.rounds.get(&pool).map_or(&[], |round| &round.asked)
    }

    /// Returns whether a server was asked about a pool in this round and has not answered yet.
    pub(super) fn is_question_open(&self, pool: u16, server: u16) -> bool {
        let round = self.cluster.rounds.get(&pool);
        round.is_some_and(|round| round.open.iter().any(|question| question.server == server))
    }

    /// Returns whether a server still owes an answer to a question of an earlier round. It is not
    /// asked again until then, so that questions do not pile up.
    pub(super) fn owes_answers(&self, pool: u16, server: u16) -> bool {
        let until = self.cluster.silent.get(&(pool, server));
        until.is_some_and(|&until| self.clock.now < until)
    }

    /// Ends a round. Returns its answers.
    pub(super) fn end_round(&mut self, pool: u16) -> Option<Told> {
        let round = self.cluster.rounds.remove(&pool)?;
        let now = self.clock.now;
        self.cluster.silent.retain(|_, until| now < *until);
        let silent = round.open.iter().map(|question| ((pool, question.server), round.end));
        self.cluster.silent.extend(silent);
        Some(round.told)
    }

    /// Ends a round without a useful answer.
    pub(super) fn end_unanswered(&mut self, pool: u16) {
        self.end_round(pool);
        self.note_unanswered(pool);
    }
}
