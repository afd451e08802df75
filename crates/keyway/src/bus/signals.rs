//! Signals to a process that is a node of the bus.

use anyhow::{Context, Result};
use keyway_channel::Driver;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The orders that signals have given.
#[derive(Default)]
pub struct Signalled {
    /// The node is to end.
    pub is_over: AtomicBool,
    /// The certificates are to be read again.
    pub is_to_reread: AtomicBool,
    /// An upgrade was asked for, which such a process does not have. The node says so.
    pub is_to_upgrade: AtomicBool,
}

impl Signalled {
    /// Notes a signal of the process.
    fn note(&self, signal: i32) {
        let flag = match signal {
            SIGHUP => &self.is_to_reread,
            SIGUSR2 => &self.is_to_upgrade,
            _ => &self.is_over,
        };
        // ORDER: the flag itself is the only data
        flag.store(true, Ordering::Relaxed);
    }
}

/// Starts a thread that waits for signals, so that the node need not poll for them.
///
/// # Errors
/// The system's, if there are no signals or no thread to be had.
pub fn watch_signals(driver: &Driver) -> Result<Arc<Signalled>> {
    let told = Arc::new(Signalled::default());
    let (tell, wake) = (Arc::clone(&told), driver.waker());
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR2]).context("cannot watch for signals")?;
    std::thread::Builder::new().name("keyway-bus-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            tell.note(signal);
            let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
        }
    })?;
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_signals_of_the_end_end_a_node() {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let told = Signalled::default();
        told.note(SIGUSR2);
        assert!(is_set(&told.is_to_upgrade) && !is_set(&told.is_over));
        told.note(SIGHUP);
        assert!(is_set(&told.is_to_reread) && !is_set(&told.is_over));
        for signal in [SIGTERM, SIGINT] {
            let told = Signalled::default();
            told.note(signal);
            assert!(is_set(&told.is_over) && !is_set(&told.is_to_upgrade));
        }
    }
}
