//! How a workload is sent.

use crate::error::Error;
use std::time::Duration;

/// The most threads; more than machines have cores that one target can keep busy.
pub const THREADS_MAX: usize = 1024;

/// The most connections of all threads; about as many as one address can have ports.
pub const CONNECTIONS_MAX: usize = 60_000;

/// The most requests in flight on a connection. What is in flight is kept, 32 bytes for each.
pub const PIPELINE_MAX: usize = 65_536;

/// The longest run: every second of it has a row in the outcome.
pub const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// When a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so long, warm-up not counted.
    Time(Duration),
    /// After so many requests, warm-up not counted.
    Requests(u64),
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: a connection sends its next batch when the last one is answered.
    Closed,
    /// Open loop: so many requests a second by all connections, at even distances, whatever the
    /// server does. Latency counts from when a request was due.
    Even(f64),
    /// The same with distances as of many independent users (a Poisson process).
    Poisson(f64),
}

/// How a workload is sent.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Threads of the generator.
    pub threads: usize,
    /// Connections of each thread.
    pub connections: usize,
    /// Requests in flight on a connection: sent as one batch in a closed loop, a bound in an open
    /// one.
    pub pipeline: usize,
    /// When it is over.
    pub until: Until,
    /// Sent before, and not counted.
    pub warm_up: Duration,
    /// When requests are sent.
    pub pace: Pace,
    /// The same seed gives each connection the same requests.
    pub seed: u64,
    /// A connection is closed behind so many replies, and another opened.
    pub calls: Option<u64>,
    /// A server that answers nothing for so long ends the run.
    pub silence_max: Duration,
}

impl Default for Plan {
    /// One thread with 50 connections for ten seconds, one request at a time on each.
    fn default() -> Plan {
        Plan {
            threads: 1,
            connections: 50,
            pipeline: 1,
            until: Until::Time(Duration::from_secs(10)),
            warm_up: Duration::ZERO,
            pace: Pace::Closed,
            seed: 1,
            calls: None,
            silence_max: Duration::from_secs(10),
        }
    }
}

impl Plan {
    /// Connections of all threads.
    pub fn clients(&self) -> usize {
        self.threads.saturating_mul(self.connections)
    }

    /// Requests a second that are due; `None` in a closed loop.
    pub fn rate(&self) -> Option<f64> {
        match self.pace {
            Pace::Closed => None,
            Pace::Even(rate) | Pace::Poisson(rate) => Some(rate),
        }
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// [`Error::Asked`].
    pub fn check(&self) -> Result<(), Error> {
        let within = |what: &str, value: usize, max: usize| {
            let message =
                || Error::asked(format!("{what} is {value}: from 1 to {max} is possible"));
            if (1..=max).contains(&value) { Ok(()) } else { Err(message()) }
        };
        within("the number of threads (--threads, -t)", self.threads, THREADS_MAX)?;
        within(
            "the number of all connections (--connections, -c, of all threads)",
            self.clients(),
            CONNECTIONS_MAX,
        )?;
        within("the pipeline's depth (--pipeline, -P)", self.pipeline, PIPELINE_MAX)?;
        let length = match self.until {
            Until::Time(length) => length,
            Until::Requests(0) => {
                return Err(Error::asked(
                    "the number of requests (--requests, -n) is 0: 1 or more are possible",
                ));
            }
            Until::Requests(_) => Duration::from_secs(1),
        };
        if length.is_zero() || length + self.warm_up > DURATION_MAX {
            return Err(Error::asked(
                "a run takes longer than nothing and at most a day: --duration, --warm-up",
            ));
        }
        if self.calls == Some(0) {
            return Err(Error::asked("a connection has at least one call: --calls"));
        }
        match self.rate() {
            Some(rate) if !(rate > 0.0 && rate <= 1e9) => {
                Err(Error::asked("a rate is above 0 and at most 1000000000 a second: --rate"))
            }
            _ => Ok(()),
        }
    }
}
