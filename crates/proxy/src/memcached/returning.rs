//! Empties a server of memcached that returns: a state machine of one proxy's questions and the
//! server's answers.
//!
//! ```text
//!  marker? ──────────────── newer ───────────────────────────► clean (by another)
//!     │ older or none                                             ▲
//!     ▼                                                           │
//!  [pause] ► marker? ────── newer ────────────────────────────────┤
//!     ▲         │ none: items? ── 0 ──► place ─ stored ─► clean (was empty)
//!     │         ▼                          └─ there is one ─► [pause]
//!     │       lock ── somebody has it ──► [pause]                 │
//!     │         ▼                                                 │
//!     │     marker? ─────── newer ──► unlock ─────────────────────┘
//!     │         ├── gone since ─────► unlock ──► [pause]
//!     │         ▼
//!     │       flush, place ─ stored ──► clean (emptied)
//!     └───────────┴─ there is one
//! ```
//! A server is not emptied at its first answer. The pause gives requests that were sent before and
//! are still in its sockets time to be executed first, and gives another proxy time to store the
//! marker after its flush.

use super::{Answer, Question};
use keyway_base::Time;
use keyway_topology::{Generation, Remembered};
use std::time::Duration;

/// Time between two reads of the marker. If it were shorter, more of the requests to a stalled
/// server might be executed after it was emptied.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest total time. It ends well before the claim on the server's return passes to another
/// worker, so that a server in use is never emptied.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a server is clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleaned {
    /// It was empty.
    Empty,
    /// This proxy emptied it.
    Flushed,
    /// Its marker shows that another proxy has handled it.
    ByAnother,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this question.
    Ask(Question),
    /// Wait until [`Returning::due`].
    Wait,
    /// Use the server. Its generation is this one.
    Use(Cleaned, Generation),
    /// Give up for now.
    GiveUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The marker was read. `is_first`: there was no pause yet.
    Looking {
        is_first: bool,
    },
    Pausing {
        until: Time,
    },
    Counting,
    /// The marker of a server that was found empty is being stored.
    Placing,
    Locking {
        had_marker: bool,
    },
    Checking {
        had_marker: bool,
    },
    /// The lock is being released. With `then`, the server is used afterwards.
    Unlocking {
        then: Option<Generation>,
    },
    Flushing,
    PlacingBehind,
}

/// One return of one server.
#[derive(Clone, Copy, Debug)]
pub struct Returning {
    remembered: Remembered,
    /// The generation that begins if this proxy begins one.
    own: Generation,
    give_up_at: Time,
    state: State,
}

impl Returning {
    /// Creates the state machine. The first question is [`Question::Marker`]. `own` is the
    /// generation that begins if this proxy begins one.
    pub fn new(remembered: Remembered, own: Generation, now: Time) -> Returning {
        let state = State::Looking { is_first: true };
        Returning { remembered, own, give_up_at: now + PATIENCE, state }
    }

    /// Returns whether the server was told to empty itself, and has not answered yet.
    pub fn is_emptying(&self) -> bool {
        self.state == State::Flushing
    }

    /// Returns when [`Returning::handle_timeout`] has to act.
    pub fn due(&self) -> Option<Time> {
        match self.state {
            State::Pausing { until } => Some(until),
            _ => None,
        }
    }

    /// Handles the end of a pause. `unix_ms` is the time since 1970.
    pub fn handle_timeout(&mut self, now: Time, unix_ms: u64) -> Next {
        match self.state {
            _ if now >= self.give_up_at => Next::GiveUp,
            State::Pausing { until } if now >= until => {
                self.own.began_ms = unix_ms;
                self.ask(State::Looking { is_first: false }, Question::Marker)
            }
            _ => Next::Wait,
        }
    }

    /// Handles the server's answer to the last question.
    pub fn handle_answer(&mut self, answer: Answer, now: Time) -> Next {
        if answer == Answer::Refused || now >= self.give_up_at {
            return Next::GiveUp;
        }
        match (self.state, answer) {
            (State::Looking { is_first }, Answer::Marker(_) | Answer::Absent) => {
                self.on_marker(answer, is_first, now)
            }
            (State::Counting, Answer::Items(0)) => {
                self.ask(State::Placing, Question::Place(self.own))
            }
            (State::Counting, Answer::Items(_)) => {
                self.ask(State::Locking { had_marker: false }, Question::Lock)
            }
            (State::Placing, Answer::Done) => Next::Use(Cleaned::Empty, self.own),
            (State::PlacingBehind, Answer::Done) => Next::Use(Cleaned::Flushed, self.own),
            (State::Placing | State::PlacingBehind, Answer::NotStored) => self.pause(now),
            (State::Locking { .. }, Answer::NotStored) => self.pause(now),
            (State::Locking { had_marker }, Answer::Done) => {
                self.ask(State::Checking { had_marker }, Question::Marker)
            }
            (State::Checking { had_marker }, Answer::Marker(_) | Answer::Absent) => {
                self.on_checked(answer, had_marker)
            }
            (State::Unlocking { then: Some(found) }, _) => Next::Use(Cleaned::ByAnother, found),
            (State::Unlocking { then: None }, _) => self.pause(now),
            (State::Flushing, Answer::Done) => {
                self.ask(State::PlacingBehind, Question::Place(self.own))
            }
            _ => Next::GiveUp,
        }
    }

    fn on_marker(&mut self, answer: Answer, is_first: bool, now: Time) -> Next {
        if let Some(found) = self.newer(answer) {
            return Next::Use(Cleaned::ByAnother, found);
        }
        match answer {
            _ if is_first => self.pause(now),
            Answer::Absent => self.ask(State::Counting, Question::Items),
            _ => self.ask(State::Locking { had_marker: true }, Question::Lock),
        }
    }

    /// Checks whether the lock, which this proxy has, is still needed.
    fn on_checked(&mut self, answer: Answer, had_marker: bool) -> Next {
        let newer = self.newer(answer);
        let is_gone = had_marker && answer == Answer::Absent;
        if newer.is_some() || is_gone {
            return self.ask(State::Unlocking { then: newer }, Question::Unlock);
        }
        // The marker is stored only after the server has confirmed that it is empty. A server that
        // refuses to be emptied gets none.
        self.ask(State::Flushing, Question::Flush)
    }

    /// Returns the marker, if it shows that the server is clean.
    fn newer(&self, answer: Answer) -> Option<Generation> {
        let Answer::Marker(found) = answer else { return None };
        found.filter(|&found| self.remembered.is_followed_by(found))
    }

    fn ask(&mut self, state: State, question: Question) -> Next {
        self.state = state;
        Next::Ask(question)
    }

    fn pause(&mut self, now: Time) -> Next {
        self.state = State::Pausing { until: now + PAUSE };
        Next::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_topology::Seen;
    use proptest::prelude::*;

    /// The marker state of a server.
    #[derive(Default)]
    struct Server {
        marker: Option<Generation>,
        is_locked: bool,
        items: u64,
        flushes: u32,
    }

    impl Server {
        fn answer(&mut self, question: Question) -> Answer {
            let stored = |was: bool| if was { Answer::NotStored } else { Answer::Done };
            match question {
                Question::Marker => {
                    self.marker.map_or(Answer::Absent, |marker| Answer::Marker(Some(marker)))
                }
                Question::Items => Answer::Items(self.items),
                Question::Lock => stored(std::mem::replace(&mut self.is_locked, true)),
                Question::Unlock => {
                    let was = std::mem::take(&mut self.is_locked);
                    if was { Answer::Done } else { Answer::Absent }
                }
                Question::Flush => {
                    *self = Server { flushes: self.flushes + 1, ..Server::default() };
                    Answer::Done
                }
                Question::Place(own) => {
                    let was = self.marker.is_some();
                    self.marker.get_or_insert(own);
                    stored(was)
                }
            }
        }
    }

    /// A proxy whose questions are answered one at a time.
    struct Proxy {
        machine: Returning,
        queue: Vec<Question>,
        outcome: Option<Next>,
    }

    impl Proxy {
        fn new(seen: Seen, id: u64) -> Proxy {
            let remembered = Remembered { seen, ejected_ms: 100 };
            let own = Generation { id, began_ms: 200 };
            let machine = Returning::new(remembered, own, Time(0));
            Proxy { machine, queue: vec![Question::Marker], outcome: None }
        }

        fn take(&mut self, next: Next) {
            match next {
                Next::Ask(question) => self.queue.push(question),
                Next::Wait => {}
                over => self.outcome = Some(over),
            }
        }

        /// Performs one answer, or the end of a pause.
        fn step(&mut self, server: &mut Server, now: Time) {
            if self.outcome.is_some() {
                return;
            }
            let next = if self.queue.is_empty() {
                self.machine.handle_timeout(now, 200 + now.as_millis())
            } else {
                let answer = server.answer(self.queue.remove(0));
                self.machine.handle_answer(answer, now)
            };
            self.take(next);
        }

        /// Runs until it is over. The server's answers take a millisecond each.
        fn run(mut self, server: &mut Server) -> Option<Cleaned> {
            for millis in 0..1_000 {
                self.step(server, Time(millis * 1_000_000));
            }
            match self.outcome {
                Some(Next::Use(how, generation)) => {
                    assert_eq!(server.marker, Some(generation));
                    Some(how)
                }
                _ => None,
            }
        }
    }

    const OLD: Generation = Generation { id: 5, began_ms: 10 };

    #[test]
    fn a_server_that_kept_its_data_is_emptied_by_the_first_proxy_only() {
        let mut server = Server { marker: Some(OLD), items: 9, ..Server::default() };
        assert_eq!(Proxy::new(Seen::Id(5), 6).run(&mut server), Some(Cleaned::Flushed));
        assert_eq!(Proxy::new(Seen::Id(5), 7).run(&mut server), Some(Cleaned::ByAnother));
        assert_eq!(server.flushes, 1);
        assert!(!server.is_locked);
    }

    #[test]
    fn an_empty_server_gets_the_marker_and_no_flush() {
        let mut server = Server::default();
        assert_eq!(Proxy::new(Seen::Id(5), 6).run(&mut server), Some(Cleaned::Empty));
        assert_eq!(Proxy::new(Seen::Id(5), 7).run(&mut server), Some(Cleaned::ByAnother));
        assert_eq!(server.flushes, 0);
    }

    #[test]
    fn without_a_marker_what_holds_items_is_emptied() {
        for seen in [Seen::Nothing, Seen::Absence, Seen::Id(5)] {
            let mut server = Server { items: 1, ..Server::default() };
            assert_eq!(Proxy::new(seen, 6).run(&mut server), Some(Cleaned::Flushed));
        }
    }

    #[test]
    fn who_knows_no_generation_trusts_none() {
        let marker = Generation { id: 5, began_ms: 1_000 };
        let mut server = Server { marker: Some(marker), items: 9, ..Server::default() };
        assert_eq!(Proxy::new(Seen::Nothing, 6).run(&mut server), Some(Cleaned::Flushed));
    }

    #[test]
    fn a_generation_from_before_the_ejection_is_not_enough() {
        let mut server = Server { marker: Some(OLD), items: 9, ..Server::default() };
        assert_eq!(Proxy::new(Seen::Id(4), 6).run(&mut server), Some(Cleaned::Flushed));
    }

    #[test]
    fn a_lock_that_is_not_given_back_ends_the_attempt() {
        let mut server =
            Server { marker: Some(OLD), items: 9, is_locked: true, ..Server::default() };
        let mut proxy = Proxy::new(Seen::Id(5), 6);
        for tenth in 0..301 {
            for _ in 0..4 {
                proxy.step(&mut server, Time(tenth * 100_000_000));
            }
        }
        assert_eq!((proxy.outcome, server.flushes), (Some(Next::GiveUp), 0));
    }

    #[test]
    fn a_refusal_ends_the_attempt() {
        let mut machine = Proxy::new(Seen::Absence, 6).machine;
        assert_eq!(machine.handle_answer(Answer::Refused, Time(0)), Next::GiveUp);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Proxies get their answers in any order. All use the server in the end, none before it
        /// was emptied, and it is emptied once.
        #[test]
        fn several_proxies_empty_a_server_once(
            order in prop::collection::vec(0usize..4, 0..400),
            kept in any::<bool>(),
            knows in prop::collection::vec(any::<bool>(), 4),
        ) {
            let marker = kept.then_some(OLD);
            let mut server = Server { marker, items: 9, ..Server::default() };
            let seen = if kept { Seen::Id(5) } else { Seen::Absence };
            let ignorant = knows.iter().filter(|knows| !**knows).count() as u32;
            let mut proxies: Vec<Proxy> = knows.iter().zip(6..).map(|(&knows, id)| {
                Proxy::new(if knows { seen } else { Seen::Nothing }, id)
            }).collect();
            let round = (0..8_000).map(|nth| nth % 4);
            for (nth, index) in order.into_iter().chain(round).enumerate() {
                let now = Time(nth as u64 * 1_000_000);
                let proxy = &mut proxies[index];
                let is_flush = proxy.queue.first() == Some(&Question::Flush);
                proxy.step(&mut server, now);
                if is_flush {
                    proxy.step(&mut server, now);
                }
                if let Some(over) = proxy.outcome {
                    prop_assert!(matches!(over, Next::Use(..)), "{over:?}");
                    prop_assert!(server.flushes > 0);
                }
            }
            prop_assert!(proxies.iter().all(|proxy| proxy.outcome.is_some()));
            // A proxy that knows no generation has to empty it again.
            let expected = ignorant + u32::from(ignorant < 4);
            prop_assert!((1..=expected.max(1)).contains(&server.flushes), "{}", server.flushes);
            if ignorant == 0 {
                prop_assert_eq!(server.flushes, 1);
            }
        }
    }
}
