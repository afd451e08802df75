//! The thread that follows a primary.

use crate::dial::{Dialler, Failed};
use crate::fault::{LinkFault, Stage};
use crate::link::{Ended, Link};
use crate::pause::Pauses;
use crate::settings::FollowerSettings;
use crate::status::{Board, State, Status};
use crate::system::{System, Thread, real};
use crate::target::{Position, Target};
use crate::wake::Wake;
use crate::wire::Wire;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A thread that follows a primary and feeds a [`Target`], until it is stopped
/// or dropped. It connects again whenever a link ends.
#[derive(Debug)]
pub struct Follower {
    wake: Arc<Wake>,
    board: Arc<Board>,
    thread: Option<Thread>,
    /// The position at which the thread has ended.
    end: Arc<Mutex<Option<Position>>>,
}

impl Follower {
    /// Starts to follow.
    ///
    /// # Errors
    /// The system has no more threads or descriptors.
    pub fn start(settings: FollowerSettings, target: Box<dyn Target>) -> std::io::Result<Self> {
        Self::start_in(&real(), settings, target)
    }

    /// As [`Follower::start`], on another system.
    ///
    /// # Errors
    /// The system has no more threads or descriptors.
    pub fn start_in(
        system: &Arc<dyn System>,
        settings: FollowerSettings,
        target: Box<dyn Target>,
    ) -> std::io::Result<Self> {
        Self::begin(system, settings, target, None)
    }

    /// Starts to follow a primary at the other end of a connected socket, which must not block.
    /// The follower stops when that one link ends. The settings' address is only shown.
    ///
    /// # Errors
    /// The system has no more threads or descriptors.
    pub fn start_on(
        socket: OwnedFd,
        settings: FollowerSettings,
        target: Box<dyn Target>,
    ) -> std::io::Result<Self> {
        Self::begin(&real(), settings, target, Some(socket))
    }

    fn begin(
        system: &Arc<dyn System>,
        settings: FollowerSettings,
        target: Box<dyn Target>,
        given: Option<OwnedFd>,
    ) -> std::io::Result<Self> {
        let wake = Arc::new(Wake::new(system)?);
        let board = Arc::new(Board::new(settings.resume, system));
        let following = Following {
            is_given: given.is_some(),
            given,
            position: settings.resume,
            address: settings.primary.to_string(),
            settings,
            target,
            wake: Arc::clone(&wake),
            board: Arc::clone(&board),
        };
        let end = Arc::new(Mutex::new(None));
        let ended = Arc::clone(&end);
        let work = Box::new(move || *ended.lock() = following.run());
        let thread = Some(system.spawn("keyway-replica".to_owned(), work)?);
        Ok(Self { wake, board, thread, end })
    }

    /// The follower as it is now.
    pub fn status(&self) -> Status {
        self.board.read()
    }

    /// Stops, at once but for a call of the target that is under way. The target
    /// is dropped. The position is that of its data: another follower may resume
    /// from there. `None` where the data is no state of the primary's history.
    pub fn stop(mut self) -> Option<Position> {
        self.end()
    }

    fn end(&mut self) -> Option<Position> {
        self.wake.stop();
        // A panic of the thread was told when it happened.
        self.thread.take()?.join().ok()?;
        self.end.lock().take()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the thread owns.
struct Following {
    settings: FollowerSettings,
    address: String,
    target: Box<dyn Target>,
    position: Option<Position>,
    wake: Arc<Wake>,
    board: Arc<Board>,
    /// The one link that there is to be, until it begins.
    given: Option<OwnedFd>,
    is_given: bool,
}

/// Says that the thread has ended, however it does.
struct SaysStopped(Arc<Board>);

impl Drop for SaysStopped {
    fn drop(&mut self) {
        self.0.stopped();
    }
}

impl Following {
    fn run(mut self) -> Option<Position> {
        let _stopped = SaysStopped(Arc::clone(&self.board));
        let mut dialler = Dialler::new(Arc::clone(&self.wake));
        let mut pauses = Pauses::new(self.settings.pause_min, self.settings.pause_max);
        while let Err(LinkEnd { fault, online }) = self.link(&mut dialler) {
            if fault.loses_position() {
                self.position = None;
                self.board.position(None);
            }
            let is_last = fault.stops() || self.is_given;
            self.board.down(fault);
            if is_last {
                break;
            }
            let pause = pauses.next(online, self.wake.system().chance());
            let until = self.wake.now() + pause;
            if !self.wake.sleep_until(until) {
                break;
            }
        }
        self.position
    }

    /// One link; `Ok` where the follower stops.
    fn link(&mut self, dialler: &mut Dialler) -> Result<(), LinkEnd> {
        self.board.set_state(State::Connecting);
        let now = || self.wake.now();
        let end = |address: &str, stage, cause, online: Option<Instant>| LinkEnd {
            fault: LinkFault::new(address, stage, cause),
            online: online.map_or(Duration::ZERO, |since| now() - since),
        };
        let connected = match self.given.take() {
            Some(socket) => {
                Wire::new(socket, None).map_err(|cause| Failed::Fault(Stage::Connect, cause))
            }
            None => dialler.connect(&self.settings),
        };
        let mut wire = match connected {
            Ok(wire) => wire,
            Err(Failed::Stop) => return Ok(()),
            Err(Failed::Fault(stage, cause)) => return Err(end(&self.address, stage, cause, None)),
        };
        let mut online_since = None;
        let mut link = Link {
            settings: &self.settings,
            wake: &self.wake,
            board: &self.board,
            target: &mut *self.target,
            position: &mut self.position,
            online_since: &mut online_since,
        };
        match link.run(&mut wire) {
            Ended::Stop => Ok(()),
            Ended::Fault(stage, cause) => Err(end(&self.address, stage, cause, online_since)),
        }
    }
}

/// Why a link ended, and for how long it was online.
struct LinkEnd {
    fault: LinkFault,
    online: Duration,
}
