//! The thread that computes slow password hashes, if users have some.

use keyway_users::Verifier;
use keyway_worker::Plan;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// The verifier of slow hashes. Its thread starts with the first settings that have some.
#[derive(Default)]
pub struct Passwords {
    verifier: Arc<Verifier>,
    is_started: bool,
}

impl Passwords {
    /// Returns the verifier for the logins of all users.
    pub fn verifier(&self) -> &Arc<Verifier> {
        &self.verifier
    }

    /// Starts the thread, unless there are no slow hashes or it runs already.
    ///
    /// # Errors
    /// Returns an error if the system cannot start a thread.
    pub fn start_for(&mut self, plan: &Plan) -> io::Result<()> {
        if self.is_started || !plan.listeners.iter().any(|listener| listener.users.are_slow()) {
            return Ok(());
        }
        let verifier = Arc::clone(&self.verifier);
        std::thread::Builder::new()
            .name("keyway-passwords".into())
            .spawn(move || look_at(&verifier))?;
        self.is_started = true;
        Ok(())
    }
}

#[allow(clippy::disallowed_methods, reason = "a thread of its own, which may wait")]
fn look_at(verifier: &Verifier) {
    loop {
        let was_right = {
            let job = verifier.next();
            let began = Instant::now();
            (job.work(), began.elapsed())
        };
        // An attacker who tries passwords can so use at most half of one processor.
        if let (false, took) = was_right {
            std::thread::sleep(took);
        }
    }
}
