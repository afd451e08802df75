//! How a workload is sent.

use crate::error::Error;
use std::time::Duration;

/// Largest number of threads. It is more than the number of cores that one target can keep busy.
pub const THREADS_MAX: usize = 1024;

/// Largest number of connections of all threads. It is about the number of ports of one address.
pub const CONNECTIONS_MAX: usize = 60_000;

/// Largest number of requests in flight on a connection. Each takes 32 bytes of memory.
pub const PIPELINE_MAX: usize = 65_536;

/// Longest duration of a run. Every second has a row in the outcome.
pub const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The run ends after this time, without the warm-up.
    Time(Duration),
    /// The run ends after this number of requests, without the warm-up.
    Requests(u64),
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// A closed loop: a connection sends its next batch when the last one is answered.
    Closed,
    /// An open loop: all connections together send this number of requests per second at even
    /// distances, whatever the server does. Latency counts from the time at which a request was
    /// due.
    Even(f64),
    /// An open loop with the distances of a Poisson process, as of many independent users.
    Poisson(f64),
}

/// How a workload is sent.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of threads of the generator.
    pub threads: usize,
    /// Number of connections of each thread.
    pub connections: usize,
    /// Number of requests in flight on a connection. A closed loop sends them as one batch. For an
    /// open loop the number is a bound.
    pub pipeline: usize,
    /// The end of the run.
    pub until: Until,
    /// The time before the run during which requests are sent and not counted.
    pub warm_up: Duration,
    /// When requests are sent.
    pub pace: Pace,
    /// The seed of all draws. With the same seed each connection sends the same requests.
    pub seed: u64,
    /// Number of replies after which a connection is closed and another one opened.
    pub calls: Option<u64>,
    /// The run ends if a server answers nothing for this time.
    pub silence_max: Duration,
}

impl Default for Plan {
    /// Returns a plan of one thread with 50 connections for ten seconds, with one request at a time
    /// on each.
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
    /// Returns the number of connections of all threads.
    pub fn clients(&self) -> usize {
        self.threads.saturating_mul(self.connections)
    }

    /// Returns the number of requests per second that are due. `None` means a closed loop.
    pub fn rate(&self) -> Option<f64> {
        match self.pace {
            Pace::Closed => None,
            Pace::Even(rate) | Pace::Poisson(rate) => Some(rate),
        }
    }

    /// Refuses a plan that cannot be run.
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
