//! Turns Ctrl-C and SIGTERM into an ordinary error, so that every guard runs and no process of the
//! run outlives it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::Error;

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Turns SIGINT, SIGTERM and SIGHUP into [`Error::Interrupted`] at the next [`check`]. A second
/// signal ends the process at once, as by default.
///
/// # Errors
/// Returns [`Error::Io`] if the handlers cannot be installed.
pub fn install() -> Result<(), Error> {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let failed = || Error::io("installing the signal handlers");
        // The order matters: for the first signal this handler finds the flag clear, and the
        // handler registered after it sets the flag.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(flag))
            .map_err(failed())?;
        signal_hook::flag::register(signal, Arc::clone(flag)).map_err(failed())?;
    }
    Ok(())
}

/// Returns the flag that is set when the run must end.
pub fn flag() -> &'static AtomicBool {
    INTERRUPTED.get_or_init(Arc::default)
}

/// Fails if the run must end.
///
/// # Errors
/// Returns [`Error::Interrupted`].
pub fn check() -> Result<(), Error> {
    if flag().load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}
