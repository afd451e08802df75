//! The process and the system: clock, signals, files of sockets, and limits.

use crate::reload::{Live, Wake};
use anyhow::{Context, Result};
use keyway_base::{Clock, Time};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the wall clock.
#[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
pub fn wall_clock() -> Clock {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Clock { now: Time(0), unix_micros: unix.as_micros() as u64 }
}

/// Passes the signals of the process on to the main thread.
pub(super) fn watch_signals(tell: Sender<Wake>) -> Result<()> {
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR2]).context("cannot watch for signals")?;
    // A file that reaches the limit of its size is an error of who writes it, not the end.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).context("cannot watch for signals")?;
    std::thread::Builder::new()
        .name("keyway-signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                if tell.send(Wake::Signal(signal)).is_err() {
                    return;
                }
            }
        })
        .context("cannot start a thread")?;
    Ok(())
}

/// Removes the files of this process's unix sockets, except those that another process has.
pub(super) fn remove_unix_sockets(live: &Live, kept: &[u16]) {
    let there = (0..).zip(live.config.listeners.iter().zip(&live.version.plan.listeners));
    for (index, (listener, plan)) in there {
        use keyway_config::ListenAddr::{Shm, Unix};
        // Listeners that a reload has ended have no file any more; another process may use the path
        // by now.
        if plan.is_ended || kept.contains(&index) {
            continue;
        }
        if let Unix(path) | Shm(path) = &listener.bind {
            // A file that is gone already needs no removal.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Raises the limit of descriptors as far as allowed. Each client needs one.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // This fails only if the limit is fixed. Then the bound is met later and reported.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
