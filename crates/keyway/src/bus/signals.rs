//! Signals to a process that is a node of the bus.

use anyhow::{Context, Result};
use keyway_channel::Driver;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
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
}

/// Starts a thread that waits for signals, so that the node need not poll for them.
///
/// # Errors
/// The system's, if there are no signals or no thread to be had.
pub fn watch_signals(driver: &Driver) -> Result<Arc<Signalled>> {
    let told = Arc::new(Signalled::default());
    let (tell, wake) = (Arc::clone(&told), driver.waker());
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot watch for signals")?;
    std::thread::Builder::new().name("keyway-bus-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let flag = if signal == SIGHUP { &tell.is_to_reread } else { &tell.is_over };
            // ORDER: the flag itself is the only data
            flag.store(true, Ordering::Relaxed);
            let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
        }
    })?;
    Ok(told)
}
