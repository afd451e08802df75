//! What happened between two readings of a process.

use crate::figures::{Figure, Figures};
use crate::reading::{Faults, Reading, Server};
use std::collections::BTreeMap;

/// Levels now and counters by second, of a process and all it serves.
#[derive(Clone, Debug)]
pub struct Change {
    /// Over how many seconds; `None` after the first reading, when there are no rates yet.
    pub seconds: Option<f64>,
    /// Figures of the process.
    pub process: Figures,
    /// Of its pools.
    pub pools: BTreeMap<String, Figures>,
    /// Of its servers.
    pub servers: BTreeMap<(String, String), Server>,
    /// What went wrong, by second.
    pub faults: Faults,
}

/// Less time than this between two readings makes no rates.
const SECONDS_MIN: f64 = 0.05;

impl Change {
    /// From `earlier`, if there is one of the same process, to `now`.
    pub fn between(earlier: Option<&Reading>, now: &Reading) -> Change {
        let earlier = earlier.filter(|earlier| is_same_process(earlier, now));
        let seconds = earlier.map(|earlier| (now.at - earlier.at).as_secs_f64());
        let over = seconds.unwrap_or(f64::INFINITY).max(SECONDS_MIN);
        let (nothing, no_server) = (Figures::default(), Server::default());
        let pools = now.pools.iter().map(|(name, figures)| {
            let before = earlier.and_then(|reading| reading.pools.get(name)).unwrap_or(&nothing);
            (name.clone(), figures.since(before, over))
        });
        let servers = now.servers.iter().map(|(name, server)| {
            let before =
                earlier.and_then(|reading| reading.servers.get(name)).unwrap_or(&no_server);
            let figures = server.figures.since(&before.figures, over);
            (name.clone(), Server { figures, ..server.clone() })
        });
        let faults = now.faults.iter().map(|(what, count)| {
            let before = earlier.and_then(|reading| reading.faults.get(what)).unwrap_or(&0.0);
            (what.clone(), (count - before).max(0.0) / over)
        });
        let mut change = Change {
            seconds,
            process: now.process.since(earlier.map_or(&nothing, |it| &it.process), over),
            pools: pools.collect(),
            servers: servers.collect(),
            faults: faults.collect(),
        };
        if seconds.is_none() {
            change.forget_latencies();
        }
        change
    }

    /// Without an earlier reading latencies would be those since the start.
    fn forget_latencies(&mut self) {
        let servers = self.servers.values_mut().map(|server| &mut server.figures);
        for figures in self.pools.values_mut().chain(servers) {
            figures.latency = Default::default();
        }
    }

    /// A figure summed over all pools.
    pub fn of_pools(&self, figure: Figure) -> f64 {
        self.pools.values().map(|pool| pool.get(figure)).sum()
    }
}

/// Returns whether the counters of `now` go on from those of `earlier`.
fn is_same_process(earlier: &Reading, now: &Reading) -> bool {
    let start = |reading: &Reading| reading.process.get(Figure::StartTime);
    let cpu = |reading: &Reading| reading.process.get(Figure::Cpu);
    start(earlier) == start(now) && cpu(earlier) <= cpu(now) && earlier.at < now.at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Pages;
    use std::time::{Duration, Instant};

    fn reading(start: u32, requests: u32, at: Instant) -> Reading {
        let metrics = format!(
            "keyway_process_build_info{{version=\"1\"}} 1\n\
             keyway_process_start_time_seconds {start}\n\
             keyway_pool_requests_total{{pool=\"p\"}} {requests}\n\
             keyway_pool_reply_latency_seconds_bucket{{pool=\"p\",le=\"+Inf\"}} {requests}\n\
             keyway_pool_errors_total{{pool=\"p\",fault=\"timeout\"}} {requests}\n"
        );
        Reading::new(&Pages { metrics, ..Pages::default() }, at).expect("a reading")
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let at = Instant::now();
        let (before, now) = (reading(1, 100, at), reading(1, 400, at + Duration::from_secs(3)));
        let change = Change::between(Some(&before), &now);
        assert_eq!(change.seconds, Some(3.0));
        assert_eq!(change.of_pools(Figure::Requests), 100.0);
        assert_eq!(change.pools["p"].latency.count, 300.0);
        assert_eq!(change.faults.values().copied().collect::<Vec<_>>(), [100.0]);
    }

    #[test]
    fn a_process_that_was_started_again_begins_anew() {
        let at = Instant::now();
        let (before, now) = (reading(1, 100, at), reading(2, 400, at + Duration::from_secs(3)));
        for earlier in [Some(&before), None] {
            let change = Change::between(earlier, &now);
            assert_eq!(change.seconds, None);
            assert_eq!(change.of_pools(Figure::Requests), 0.0);
            assert_eq!(change.pools["p"].latency.count, 0.0);
        }
    }
}
