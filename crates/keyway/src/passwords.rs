//! The thread that works out hashes of passwords that take long, where users have some.

use keyway_users::Verifier;
use keyway_worker::Plan;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// Starts it, unless there is nothing to do.
///
/// # Errors
/// When the system has no thread for it.
pub fn start(plan: &Plan) -> io::Result<()> {
    // All listeners have the same.
    let verifier = plan.listeners.iter().find_map(|listener| listener.users.verifier());
    let Some(verifier) = verifier.map(Arc::clone) else { return Ok(()) };
    std::thread::Builder::new()
        .name("keyway-passwords".into())
        .spawn(move || look_at(&verifier))?;
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "a thread of its own, which may wait")]
fn look_at(verifier: &Verifier) {
    loop {
        let was_right = {
            let job = verifier.next();
            let began = Instant::now();
            (job.work(), began.elapsed())
        };
        // Who only tries has half of one processor at most.
        if let (false, took) = was_right {
            std::thread::sleep(took);
        }
    }
}
