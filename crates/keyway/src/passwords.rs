//! The thread that works out hashes of passwords that take long, where users have some.

use keyway_users::Verifier;
use keyway_worker::Plan;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// Who looks at them, from the first version of the settings on that has some.
#[derive(Default)]
pub struct Passwords {
    verifier: Arc<Verifier>,
    is_started: bool,
}

impl Passwords {
    /// Who all users' logins are to be shown to.
    pub fn verifier(&self) -> &Arc<Verifier> {
        &self.verifier
    }

    /// Starts the thread, unless there is nothing to do or it is there.
    ///
    /// # Errors
    /// When the system has no thread for it.
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
        // Who only tries has half of one processor at most.
        if let (false, took) = was_right {
            std::thread::sleep(took);
        }
    }
}
