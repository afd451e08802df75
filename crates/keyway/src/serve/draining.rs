//! The end of a process that serves: the notice before the drain, and the drain.

use super::{Process, sample};
use crate::reload::{Live, Refusal, Wake};
use crate::workers::{SAMPLE_EVERY, Workers};
use keyway_control::AfterDrain;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time between two checks whether draining workers have ended.
const ENDED_EVERY: Duration = Duration::from_millis(5);

/// Time after which a drain is announced in the log. Most drains end sooner.
const DRAIN_TOLD_AFTER: Duration = Duration::from_millis(300);

/// A second signal within this time belongs to the same order: some programs signal a process and
/// its process group.
const SAME_ORDER_WITHIN: Duration = Duration::from_millis(300);

/// The order to end: what to do after the drain, and the signal that gave it, if one did.
#[derive(Clone, Copy)]
pub(super) struct Order {
    pub(super) then: AfterDrain,
    pub(super) signal: Option<i32>,
}

pub(super) fn name_of(signal: i32) -> &'static str {
    if signal == SIGTERM { "SIGTERM" } else { "SIGINT" }
}

/// Drains, for at most `drain_timeout`. A further signal ends the drain at once. Returns what to do
/// then.
#[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
pub(super) fn drain(
    mut workers: Workers,
    live: &Live,
    woken: &Receiver<Wake>,
    mut order: Order,
) -> AfterDrain {
    workers.drain();
    let began = Instant::now();
    let mut signalled = began;
    let mut is_told = false;
    while !workers.have_ended() {
        match woken.recv_timeout(ENDED_EVERY) {
            Ok(Wake::Signal(signal @ (SIGTERM | SIGINT))) => {
                if order.signal.is_none() {
                    // An operator had ordered the drain: this is the order to end.
                    order = Order { then: AfterDrain::Exit, signal: Some(signal) };
                    (signalled, is_told) = (Instant::now(), false);
                } else if signalled.elapsed() > SAME_ORDER_WITHIN {
                    tracing::warn!(
                        clients = live.version.plan.clients.len(),
                        "{} again: ending at once, clients are cut off",
                        name_of(signal)
                    );
                    return AfterDrain::Exit;
                }
            }
            Ok(Wake::Drain(AfterDrain::Exit)) => order.then = AfterDrain::Exit,
            Ok(other) => refuse(other),
            Err(RecvTimeoutError::Timeout) => {
                let elapsed = began.elapsed();
                let has_clients = !live.version.plan.clients.is_empty();
                if !is_told && has_clients && elapsed > DRAIN_TOLD_AFTER {
                    is_told = true;
                    tell_of_drain(live, elapsed, order);
                }
            }
            // No thread can send an order any more.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(ENDED_EVERY),
        }
    }
    order.then
}

fn tell_of_drain(live: &Live, elapsed: Duration, order: Order) {
    let left = live.config.server.drain_timeout.saturating_sub(elapsed);
    // The time is shown in whole seconds, rounded up.
    let left = Duration::from_secs(left.as_secs_f64().ceil() as u64);
    let sooner = match order.signal {
        Some(signal) => format!("another {} ends it now", name_of(signal)),
        None => "SIGTERM twice ends it now".to_owned(),
    };
    tracing::info!(
        clients = live.version.plan.clients.len(),
        "draining for up to {left:?} more (drain_timeout), as clients wait for replies; {sooner}"
    );
}

/// Goes on serving for at most that long, so that a load balancer notices that this process is
/// ending before it refuses clients. Returns what to do then, because an operator may have ordered
/// more meanwhile.
#[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
pub(super) fn give_notice(
    workers: &mut Workers,
    (process, woken): (&Process, &Receiver<Wake>),
    notice: Duration,
    mut order: Order,
) -> Order {
    let began = Instant::now();
    let mut sampled = began;
    if !notice.is_zero() {
        let sooner = match order.signal {
            Some(signal) => format!("{} comes again", name_of(signal)),
            None => "SIGTERM comes".to_owned(),
        };
        tracing::info!(
            "before that clients are accepted for {notice:?} more (drain_notice), while /readyz \
             says 503, unless {sooner}"
        );
    }
    loop {
        let left = notice.saturating_sub(began.elapsed());
        if left.is_zero() {
            return order;
        }
        match woken.recv_timeout(left.min(SAMPLE_EVERY)) {
            Ok(Wake::Signal(signal @ (SIGTERM | SIGINT))) => {
                return Order { then: AfterDrain::Exit, signal: Some(signal) };
            }
            Ok(Wake::Drain(AfterDrain::Exit)) => order.then = AfterDrain::Exit,
            Ok(other) => refuse(other),
            Err(RecvTimeoutError::Timeout) => {
                let elapsed = sampled.elapsed();
                sampled = Instant::now();
                process.note_elapsed(elapsed);
                sample(workers, elapsed);
            }
            Err(RecvTimeoutError::Disconnected) => return order,
        }
    }
}

/// Refuses a reload or an upgrade, because the process is ending.
fn refuse(wake: Wake) {
    match wake {
        Wake::Reload(tell) => drop(tell.send(Err(Refusal::stopping()))),
        Wake::Upgrade(asked) => {
            let _ = asked.tell.send(Err(vec!["this process is ending".to_owned()]));
        }
        Wake::Signal(_)
        | Wake::Drain(_)
        | Wake::Document(_)
        | Wake::Upgraded(_)
        | Wake::Hold(_)
        | Wake::Failed(_) => {}
    }
}

/// Waits, drained, for the order to end.
pub(super) fn wait_for_end(woken: &Receiver<Wake>) {
    tracing::info!("drained: waiting for SIGTERM, or for an operator to have it end");
    // Orders that came meanwhile come first. A thread that asks for more is told that the process
    // is ending.
    while let Ok(
        Wake::Signal(SIGHUP | SIGUSR2)
        | Wake::Drain(AfterDrain::Wait)
        | Wake::Reload(_)
        | Wake::Document(_)
        | Wake::Upgrade(_)
        | Wake::Upgraded(_)
        | Wake::Hold(_)
        | Wake::Failed(_),
    ) = woken.recv()
    {}
}
