//! REPLCONF, PSYNC, WAIT and FAILOVER on the embedded store: clients that become replicas, and
//! clients that wait for them.
//!
//! ```text
//!  REPLCONF ──► the profile of the client
//!  PSYNC ──► the client waits; at the end of the turn, once its replies are sent,
//!            its socket goes to the feed (turn/replicas.rs)
//! ```

use crate::core::Plane;
use crate::core::pools::store::introduced::Departing;
use crate::core::pools::store::state::StorePool;
use crate::core::request::{RequestContext, Step};
use crate::handouts::Handout;
use crate::replication::{Failover, ReplicaWait, Replication, RoleReply};
use keyway_command::{Args, Verb};
use keyway_proxy::Share;
use keyway_rdb::replication::{Answer, Request};
use keyway_resp::{parse_integer, reply};
use keyway_store::{Waiter, Who};
use std::sync::Arc;
use std::time::Duration;

const SYNTAX: &str = "ERR syntax error";
/// Longest time of WAIT and FAILOVER, as a bound on sums of times: a year.
const TIME_MAX: u64 = 365 * 24 * 3600 * 1000;

impl Plane {
    /// Notes what a client announces as a replica.
    pub(super) fn introduce(&mut self, asked: &mut RequestContext) -> Step {
        let words: Vec<&[u8]> = words_of(&asked.request.args);
        let client = asked.session.identity.id;
        let profile = self.store.introduced.profile(client);
        match profile.replconf(&words) {
            Ok(Answer::Ok) if profile.libraries_only() => {
                self.store.introduced.forget(client);
                let text = "ERR a snapshot of functions alone is not supported";
                self.refuse(asked.session, asked.busy, |out| reply::error(out, text));
            }
            Ok(Answer::Ok) => self.answer_locally(asked, |out| reply::simple(out, "OK")),
            // Only replicas say this, and nobody answers them.
            Ok(Answer::Acknowledged | Answer::GetAck) => self.store.introduced.forget(client),
            Err(fault) => {
                self.refuse(asked.session, asked.busy, |out| fault.write_error(out));
            }
        }
        Step::Started
    }

    /// Begins to make a client a replica.
    pub(super) fn begin_feeding(
        &mut self,
        pool: StorePool<'_>,
        asked: &mut RequestContext,
    ) -> Step {
        let request = match asked.request.command.verb {
            Verb::Sync => Ok(Request::sync()),
            _ => Request::parse(&words_of(&asked.request.args)),
        };
        let request = match request {
            Ok(request) => request,
            Err(wrong) => {
                let text = format!("ERR {wrong}");
                self.refuse(asked.session, asked.busy, |out| reply::error(out, &text));
                return Step::Started;
            }
        };
        if self.begin_to_wait_apart(pool, asked).is_some() {
            let client = asked.session.identity.id;
            let departing = Departing { session: asked.key, client, request };
            self.store.introduced.departing.push(departing);
        }
        Step::Started
    }

    /// Has a client wait for another thread. `None` if it is refused, and has been told.
    pub(super) fn begin_to_wait_apart(
        &mut self,
        StorePool { store, .. }: StorePool<'_>,
        asked: &mut RequestContext,
    ) -> Option<Arc<Waiter>> {
        let mut share = Share::new(&self.plan.transactions);
        if let Some(text) = self.refusal_to_wait(asked, &mut share) {
            self.refuse(asked.session, asked.busy, |out| reply::error(out, &text));
            return None;
        }
        let (client, worker) = (asked.session.identity.id, self.worker());
        let who = Who { client, worker, is_noloop: false };
        let waiter = store.wait_apart(asked.request, self.context_of(asked), who);
        self.begin_to_wait(asked, Arc::clone(&waiter), 0, share);
        Some(waiter)
    }

    /// Returns a function that gives a waiting client its reply, unless it waits no longer.
    pub(super) fn answering<T: 'static>(
        &self,
        StorePool { store, .. }: StorePool<'_>,
        waiter: Arc<Waiter>,
        write: impl FnOnce(T, &mut Vec<u8>) + Send + 'static,
    ) -> Box<dyn FnOnce(T) + Send> {
        let (plan, store) = (Arc::clone(&self.plan), Arc::clone(store));
        Box::new(move |outcome| {
            if !store.cancel(&waiter) {
                return;
            }
            let Who { client, worker, .. } = waiter.who;
            let mut reply = Vec::new();
            write(outcome, &mut reply);
            if plan.handouts.post(worker, Handout { client, reply }) {
                plan.post_published(worker);
            }
        })
    }

    /// Starts WAIT.
    pub(super) fn wait_for_replicas(
        &mut self,
        pool: StorePool<'_>,
        role: &dyn Replication,
        asked: &mut RequestContext,
    ) -> Step {
        let (count, millis) = match wait_of(&asked.request.args) {
            Ok(_) if pool.store.is_replica() => {
                let text = "ERR WAIT cannot be used with replica instances. Please also note that \
                            since Redis 4.0 if a replica is configured to be writable (which is \
                            not the default) writes to replicas are just local and are not \
                            propagated.";
                self.refuse(asked.session, asked.busy, |out| reply::error(out, text));
                return Step::Started;
            }
            Ok(wait) => wait,
            Err(text) => {
                self.refuse(asked.session, asked.busy, |out| reply::error(out, text));
                return Step::Started;
            }
        };
        let acknowledged = role.acknowledged();
        if acknowledged >= count {
            self.answer_locally(asked, |out| reply::integer(out, acknowledged as i64));
            return Step::Started;
        }
        if let Some(waiter) = self.begin_to_wait_apart(pool, asked) {
            let (store, waits) = (Arc::clone(pool.store), Arc::clone(&waiter));
            role.wait(ReplicaWait {
                count,
                timeout: (millis > 0).then(|| Duration::from_millis(millis)),
                is_over: Box::new(move || !store.is_waiting(&waits)),
                done: self.answering(pool, waiter, |count: Result<u64, String>, out| match count {
                    Ok(count) => reply::integer(out, count as i64),
                    Err(text) => reply::error(out, &text),
                }),
            });
        }
        Step::Started
    }

    /// Starts FAILOVER. The reply says that it has begun.
    pub(super) fn begin_failover(
        &mut self,
        pool: StorePool<'_>,
        role: &dyn Replication,
        asked: &mut RequestContext,
    ) -> Step {
        let failover = match failover_of(&asked.request.args) {
            Ok(failover) => failover,
            Err(text) => {
                self.refuse(asked.session, asked.busy, |out| reply::error(out, text));
                return Step::Started;
            }
        };
        if let Some(waiter) = self.begin_to_wait_apart(pool, asked) {
            role.fail_over(failover, self.answering(pool, waiter, write_role_reply));
        }
        Step::Started
    }
}

/// Appends the reply to a change of the role.
pub(super) fn write_role_reply(outcome: RoleReply, out: &mut Vec<u8>) {
    match outcome {
        Ok(text) => reply::simple(out, text),
        Err(text) => reply::error(out, &text),
    }
}

fn words_of<'a>(args: &'a Args<'a>) -> Vec<&'a [u8]> {
    args.from(1).collect()
}

/// The number of replicas and the milliseconds of a WAIT.
pub(super) fn wait_of(args: &Args<'_>) -> Result<(u64, u64), &'static str> {
    let count = parse_integer(&args[1]).ok_or("ERR value is not an integer or out of range")?;
    let millis = parse_integer(&args[2]).ok_or("ERR timeout is not an integer or out of range")?;
    let millis = u64::try_from(millis).map_err(|_| "ERR timeout is negative")?;
    Ok((u64::try_from(count).unwrap_or(0), millis.min(TIME_MAX)))
}

fn failover_of(args: &Args<'_>) -> Result<Failover, &'static str> {
    let (mut to, mut timeout, mut is_forced, mut is_abort) = (None, None, false, false);
    let mut at = 1;
    while let Some(word) = args.get(at) {
        let is = |text: &[u8]| word.eq_ignore_ascii_case(text);
        match (args.get(at + 1), args.get(at + 2)) {
            _ if is(b"abort") && !is_abort => is_abort = true,
            _ if is(b"force") && !is_forced => is_forced = true,
            (Some(millis), _) if is(b"timeout") && timeout.is_none() => {
                let millis =
                    parse_integer(millis).ok_or("ERR value is not an integer or out of range")?;
                let millis = u64::try_from(millis).ok().filter(|millis| *millis > 0);
                let millis = millis.ok_or("ERR FAILOVER timeout must be greater than 0")?;
                timeout = Some(Duration::from_millis(millis.min(TIME_MAX)));
                at += 1;
            }
            (Some(host), Some(port)) if is(b"to") && to.is_none() => {
                let port = parse_integer(port).and_then(|port| u16::try_from(port).ok());
                let port = port.ok_or("ERR value is not an integer or out of range")?;
                to = Some((String::from_utf8_lossy(host).into_owned(), port));
                at += 2;
            }
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    if is_abort {
        let is_alone = to.is_none() && timeout.is_none() && !is_forced;
        return if is_alone { Ok(Failover::Abort) } else { Err(SYNTAX) };
    }
    if is_forced && (to.is_none() || timeout.is_none()) {
        return Err(
            "ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
        );
    }
    Ok(Failover::Begin { to, timeout, is_forced })
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::ByteRange;

    fn failover(line: &str) -> Result<Failover, &'static str> {
        let mut ranges = Vec::new();
        let mut start = 0;
        for word in line.split(' ') {
            ranges.push(ByteRange::new(start, start + word.len()));
            start += word.len() + 1;
        }
        failover_of(&Args::new(line.as_bytes(), &ranges))
    }

    #[test]
    fn failover_takes_its_options_in_any_order_and_each_once() {
        let begin = |to: Option<(&str, u16)>, millis: Option<u64>, is_forced| {
            let to = to.map(|(host, port)| (host.to_owned(), port));
            Ok(Failover::Begin { to, timeout: millis.map(Duration::from_millis), is_forced })
        };
        assert_eq!(failover("FAILOVER"), begin(None, None, false));
        assert_eq!(failover("failover to h 7 timeout 5"), begin(Some(("h", 7)), Some(5), false));
        let forced = begin(Some(("h", 7)), Some(5), true);
        assert_eq!(failover("FAILOVER TIMEOUT 5 FORCE TO h 7"), forced);
        assert_eq!(failover("FAILOVER abort"), Ok(Failover::Abort));
        for line in [
            "FAILOVER TO h",
            "FAILOVER TO h p",
            "FAILOVER TIMEOUT",
            "FAILOVER TIMEOUT 0",
            "FAILOVER ABORT TIMEOUT 5",
            "FAILOVER FORCE",
            "FAILOVER TO h 7 FORCE",
            "FAILOVER ABORT ABORT",
            "FAILOVER x",
        ] {
            assert!(failover(line).is_err(), "{line}");
        }
    }
}
