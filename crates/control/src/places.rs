//! The places that connections have, and which connection makes room for a new one.
//!
//! A connection holds a place from its accept to its end. If all places are taken, a new connection
//! displaces another one. Connections whose request is incomplete go first, the oldest of them
//! before the others. After them go connections that do not read their reply. A request that is
//! being executed is never displaced: `routes.rs` bounds how many of those take long.

use crate::limits::AdminLimits;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep};

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Its handshake, or the head or body of its request, is not complete.
    Asking,
    /// Its reply is being sent.
    Replying,
    /// Its request is being executed.
    Working,
}

/// All places.
pub(crate) struct Places {
    held: Mutex<Held>,
    freed: Notify,
    limits: AdminLimits,
}

#[derive(Default)]
struct Held {
    /// Number of the next connection. Later connections have larger numbers.
    next: u64,
    connections: BTreeMap<u64, Connection>,
}

struct Connection {
    stage: Stage,
    /// Start of that stage.
    since: Instant,
    /// Dropped to end the connection.
    _keep: oneshot::Sender<()>,
}

/// One place. Dropping it frees the place.
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
}

/// Resolves when the connection has to make room.
pub(crate) type Displaced = oneshot::Receiver<()>;

impl Places {
    pub(crate) fn new(limits: AdminLimits) -> Arc<Self> {
        Arc::new(Self { held: Mutex::default(), freed: Notify::new(), limits })
    }

    /// A place for a connection that was accepted. Waits until one is free or another
    /// connection may be displaced.
    pub(crate) async fn take(self: &Arc<Self>) -> (Arc<Place>, Displaced) {
        loop {
            let freed = self.freed.notified();
            let wait = match self.try_take() {
                Ok(taken) => return taken,
                Err(wait) => wait,
            };
            tokio::select! {
                () = freed => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Returns a place, or the time to wait before another try.
    fn try_take(self: &Arc<Self>) -> Result<(Arc<Place>, Displaced), Duration> {
        let mut held = self.held.lock();
        if held.connections.len() >= self.limits.connections_max.max(1) {
            let number = self.displaced(&held, Instant::now())?;
            held.connections.remove(&number);
        }
        let number = held.next;
        held.next += 1;
        let (keep, displaced) = oneshot::channel();
        let connection = Connection { stage: Stage::Asking, since: Instant::now(), _keep: keep };
        held.connections.insert(number, connection);
        Ok((Arc::new(Place { places: Arc::clone(self), number }), displaced))
    }

    /// Returns the connection to displace, or the time until there may be one.
    fn displaced(&self, held: &Held, now: Instant) -> Result<u64, Duration> {
        let room = |(number, connection): (&u64, &Connection)| {
            let granted = match connection.stage {
                Stage::Asking => self.limits.asking_time,
                Stage::Replying => self.limits.reading_time,
                Stage::Working => return None,
            };
            let left = granted.saturating_sub(now.duration_since(connection.since));
            Some((left, connection.stage, *number))
        };
        let first = held.connections.iter().filter_map(room).min();
        match first {
            Some((Duration::ZERO, _, number)) => Ok(number),
            Some((left, ..)) => Err(left),
            // All places have requests in work: the end of any of them notifies.
            None => Err(self.limits.connection_time),
        }
    }

    #[cfg(test)]
    fn numbers(&self) -> Vec<u64> {
        self.held.lock().connections.keys().copied().collect()
    }
}

impl Place {
    /// Notes the stage of this place's connection.
    pub(crate) fn enter(&self, stage: Stage) {
        let mut held = self.places.held.lock();
        // A connection that was displaced meanwhile has no place any more.
        if let Some(connection) = held.connections.get_mut(&self.number) {
            connection.stage = stage;
            connection.since = Instant::now();
        }
        drop(held);
        // A connection that waits for a place may displace this one later.
        self.places.freed.notify_one();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.held.lock().connections.remove(&self.number);
        self.places.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AdminLimits = AdminLimits {
        connections_max: 3,
        header_time: Duration::from_secs(5),
        connection_time: Duration::from_secs(40),
        asking_time: Duration::from_millis(100),
        reading_time: Duration::from_secs(1),
        stop_time: Duration::from_secs(1),
    };

    fn later(places: &Places, millis: u64) -> Result<u64, Duration> {
        places.displaced(&places.held.lock(), Instant::now() + Duration::from_millis(millis))
    }

    #[test]
    fn incomplete_requests_make_room_first_and_the_oldest_before_the_others() {
        let places = Places::new(LIMITS);
        let taken: Vec<_> =
            (0..3).map(|_| places.try_take().map_err(drop).expect("free").0).collect();
        taken[0].enter(Stage::Replying);
        assert_eq!(later(&places, 100), Ok(1));
        taken[1].enter(Stage::Working);
        assert_eq!(later(&places, 2000), Ok(2));
        taken[2].enter(Stage::Replying);
        assert_eq!(later(&places, 2000), Ok(0), "its reply is not read");
        assert!(later(&places, 500).is_err_and(|left| left <= LIMITS.reading_time));
        taken[0].enter(Stage::Working);
        taken[2].enter(Stage::Working);
        assert_eq!(later(&places, 60_000), Err(LIMITS.connection_time));
        drop(taken);
        assert!(places.numbers().is_empty());
    }

    #[test]
    fn a_request_has_its_time_before_it_makes_room() {
        let places = Places::new(LIMITS);
        let taken: Vec<_> =
            (0..3).map(|_| places.try_take().map_err(drop).expect("free")).collect();
        let wait = places.try_take().err().expect("nothing is displaced yet");
        assert!(wait <= LIMITS.asking_time, "{wait:?}");
        assert_eq!(places.numbers(), [0, 1, 2]);
        drop(taken);
    }
}
