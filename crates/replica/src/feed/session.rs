//! One replica: its thread, from PSYNC to the end of its connection.

use super::Lineage;
use super::outlet::{Ended, Outlet};
use super::registry::{Shown, Stage};
use super::settings::FeedSettings;
use super::source::{Snapshot, SnapshotStep, Source, SourceError, Stream};
use crate::wake::{Waited, Wake};
use keyway_base::Limits;
use keyway_rdb::replication::{
    CommandStep, CommandStream, Decision, MARK_LEN, ReplicaProfile, ReplicationId, Request,
    write_continue, write_full_resync, write_mark,
};
use keyway_resp::ParseLimits;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two looks at the stream while commands come. A write has nobody to wake: that
/// would cost it a call of the system.
const PAUSE: Duration = Duration::from_millis(1);
/// The same for a stream in which nothing has come for [`QUIET_AFTER`].
const PAUSE_QUIET: Duration = Duration::from_millis(10);
const QUIET_AFTER: Duration = Duration::from_secs(1);
/// Bytes of the stream that are worth a call of the system. If less has come, the next look is a
/// [`PAUSE`] later: under load each call otherwise carries a few writes, and takes the lock that
/// writers need.
const WORTH_SENDING: usize = 32 << 10;
/// Time between two empty lines for a replica whose snapshot has not begun.
const LINE_PERIOD: Duration = Duration::from_secs(1);
/// Pause behind the mark for a replica that acknowledges nothing. A shorter one may join the mark
/// with the stream, and redis-cli would not find it.
const MARK_PAUSE: Duration = Duration::from_secs(1);
/// Pause before a snapshot that cannot be had is asked for again.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// The reason why a replica is fed no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parting {
    /// The replica has closed the connection.
    Closed,
    /// The system reports an error of the connection.
    System(String),
    /// The replica has sent something that no replica sends.
    Nonsense,
    /// It has said nothing for [`FeedSettings::timeout`], nor taken anything of a snapshot.
    Silent,
    /// It was slower than the writes, and what it lacks is gone.
    TooSlow,
    /// The snapshot has failed. The text says why.
    Snapshot(String),
    /// It wanted a snapshot only, and has it.
    Served,
    /// The history has another name: the replica is to come back and learn it.
    Renamed,
    /// The feed has ended.
    Stopped,
}

impl fmt::Display for Parting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the replica closed the connection"),
            Self::System(text) => f.write_str(text),
            Self::Nonsense => f.write_str("the replica sent something that is not REPLCONF ACK"),
            Self::Silent => f.write_str("the replica was silent for longer than the timeout"),
            Self::TooSlow => {
                f.write_str("the replica was slower than the writes, and needs a new snapshot")
            }
            Self::Snapshot(why) => write!(f, "the snapshot failed: {why}"),
            Self::Served => f.write_str("the client has the snapshot that it wanted"),
            Self::Renamed => f.write_str("the role of this server has changed"),
            Self::Stopped => f.write_str("this server is no primary any longer"),
        }
    }
}

impl From<Ended> for Parting {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Closed => Self::Closed,
            Ended::System(text) => Self::System(text),
            Ended::TooMuchSaid => Self::Nonsense,
        }
    }
}

/// A replica that is served.
pub(super) struct Session {
    pub(super) source: Arc<dyn Source>,
    pub(super) lineage: Arc<Mutex<Lineage>>,
    pub(super) settings: FeedSettings,
    /// True if the replica came by SYNC: it never acknowledges anything.
    pub(super) is_old: bool,
    pub(super) outlet: Outlet,
    /// Told once the replica has its place in the stream.
    pub(super) placed: Box<dyn Fn() + Send>,
    pub(super) profile: ReplicaProfile,
    pub(super) wake: Arc<Wake>,
    pub(super) shown: Arc<Shown>,
    /// When the feed began: offsets are noted with milliseconds since then.
    pub(super) started_at: Instant,
    /// The time at which the replica last said something, or took a part of a snapshot.
    pub(super) heard_at: Instant,
}

impl Session {
    /// Serves the replica until it leaves.
    pub(super) fn run(mut self, request: &Request) -> Parting {
        match self.serve(request) {
            Ok(never) => match never {},
            Err(parting) => parting,
        }
    }

    fn serve(&mut self, request: &Request) -> Result<std::convert::Infallible, Parting> {
        let mut stream = match self.resumed(request) {
            Some(stream) => stream,
            None => self.resync()?,
        };
        let mut came_at = self.wake.now();
        loop {
            let mut read_len = 0;
            while self.outlet.has_room() {
                let start = self.outlet.out().len();
                let len = stream.read(self.outlet.out()).map_err(|_| Parting::TooSlow)?;
                if len == 0 {
                    break;
                }
                self.source.adapt(&self.profile, &mut self.outlet.out()[start..]);
                read_len += len;
                if let Ok(position) = stream.position() {
                    self.shown.set_sent(position);
                }
            }
            let now = self.wake.now();
            if read_len > 0 {
                came_at = now;
            }
            let pause = match now.saturating_duration_since(came_at) < QUIET_AFTER {
                true => PAUSE,
                false => PAUSE_QUIET,
            };
            self.turn(pause)?;
            if (1..WORTH_SENDING).contains(&read_len) {
                self.wait(now + PAUSE)?;
            }
        }
    }

    /// Lets the replica go on where it was, if the stream still has all from there on.
    fn resumed(&mut self, request: &Request) -> Option<Box<dyn Stream>> {
        let (_, offset) = request.resume()?;
        let history = self.lineage.lock().at(offset);
        let is_ours = history.decide(request) == Decision::Continue { offset };
        let stream = is_ours.then(|| self.source.resume(offset)).flatten()?;
        write_continue(&history, &self.profile, self.outlet.out());
        self.shown.set_stage(Stage::Online);
        self.shown.set_sent(offset);
        self.shown.acknowledge(offset, self.millis());
        (self.placed)();
        Some(stream)
    }

    /// Sends a snapshot. Returns the stream that follows it.
    fn resync(&mut self) -> Result<Box<dyn Stream>, Parting> {
        let mut line_at = self.wake.now() + LINE_PERIOD;
        let beginning = loop {
            match self.source.begin(self.profile.snapshot_version()) {
                Ok(beginning) => break beginning,
                Err(SourceError::Busy) => {}
                Err(SourceError::Failed(why)) => {
                    keyway_resp::reply::error(self.outlet.out(), &format!("ERR {why}"));
                    let _ = self.outlet.flush();
                    return Err(Parting::Snapshot(why));
                }
            }
            if self.wake.now() >= line_at {
                self.outlet.out().push(b'\n');
                line_at = self.wake.now() + LINE_PERIOD;
            }
            self.turn(BUSY_PAUSE)?;
        };
        let offset = beginning.stream.position().map_err(|_| Parting::TooSlow)?;
        if !self.is_old {
            let id = self.lineage.lock().id;
            write_full_resync(&id, offset, self.outlet.out());
        }
        self.shown.set_stage(Stage::Snapshot);
        (self.placed)();
        self.send(beginning.snapshot)?;
        // The replica acknowledges the snapshot itself, however long nothing is written behind it.
        self.shown.set_sent(offset);
        self.shown.set_stage(Stage::Loading);
        if self.profile.snapshot_only() || self.is_old {
            while self.outlet.unsent() > 0 {
                self.turn(PAUSE)?;
            }
        }
        if self.profile.snapshot_only() {
            return Err(Parting::Served);
        }
        let sent_at = self.wake.now();
        // redis-server finds the mark only at the end of what it reads: nothing may follow until
        // it has acknowledged the snapshot.
        while self.shown.stage() != Stage::Online {
            self.turn(PAUSE_QUIET)?;
            if self.is_old && self.wake.now() >= sent_at + MARK_PAUSE {
                self.shown.set_stage(Stage::Online);
            }
        }
        Ok(beginning.stream)
    }

    fn send(&mut self, mut snapshot: Box<dyn Snapshot>) -> Result<(), Parting> {
        let mark = random_mark().map_err(Parting::Snapshot)?;
        write_mark(&mark, self.outlet.out());
        loop {
            let mut step = SnapshotStep::More;
            while step == SnapshotStep::More && self.outlet.has_room() {
                step = snapshot.read(self.outlet.out()).map_err(Parting::Snapshot)?;
            }
            if step == SnapshotStep::End {
                self.outlet.out().extend_from_slice(&mark);
                return Ok(());
            }
            self.turn(PAUSE)?;
        }
    }

    /// Sends what there is, and hears the replica; waits up to `pause` if there is nothing to do.
    fn turn(&mut self, pause: Duration) -> Result<(), Parting> {
        let taken = self.outlet.flush()?;
        self.shown.set_buffered(self.outlet.buffered());
        let has_said = self.outlet.receive()?;
        let now = self.wake.now();
        // The system takes what is sent to a replica that hangs. One that follows has to speak.
        let speaks = self.shown.stage() == Stage::Online && !self.is_old;
        if has_said || taken > 0 && !speaks {
            self.heard_at = now;
        }
        if has_said {
            self.hear()?;
        }
        if now.saturating_duration_since(self.heard_at) > self.settings.timeout {
            return Err(Parting::Silent);
        }
        let is_blocked = !self.outlet.has_room();
        if taken > 0 && !is_blocked {
            // There may be more of the stream by now.
            return self.go_on();
        }
        let pause = if is_blocked { LINE_PERIOD } else { pause };
        self.wait(now + pause)
    }

    /// Waits until the replica says or takes something, but no longer than `until`.
    fn wait(&self, until: Instant) -> Result<(), Parting> {
        match self.outlet.wait(&self.wake, until) {
            Waited::Stop => Err(self.stopped()),
            Waited::Ready | Waited::Nudged | Waited::Late => Ok(()),
        }
    }

    /// Milliseconds since the feed began.
    fn millis(&self) -> u64 {
        super::millis_between(self.started_at, self.wake.now())
    }

    fn go_on(&self) -> Result<(), Parting> {
        if self.wake.is_stopping() { Err(self.stopped()) } else { Ok(()) }
    }

    fn stopped(&self) -> Parting {
        if self.shown.is_renamed() { Parting::Renamed } else { Parting::Stopped }
    }

    /// Takes whole commands out of what the replica has said.
    fn hear(&mut self) -> Result<(), Parting> {
        let said = std::mem::take(self.outlet.said());
        let mut used = 0;
        while used < said.len() {
            let mut stream = CommandStream::new(0, None, ParseLimits::of(&Limits::default()));
            let step = stream.read(&said[used..]).map_err(|_| Parting::Nonsense)?;
            let CommandStep::Command { consumed, command } = step else { break };
            let words: Vec<&[u8]> = command.words().collect();
            if let Some((name, rest)) = words.split_first()
                && name.eq_ignore_ascii_case(b"REPLCONF")
            {
                // An unknown option may be ignored.
                let _ = self.profile.replconf(rest);
            }
            used += consumed;
        }
        self.outlet.said().extend_from_slice(&said[used..]);
        self.outlet.check_said()?;
        if let Some(offset) = self.profile.acknowledged() {
            self.shown.set_stage(Stage::Online);
            if self.shown.acknowledge(offset, self.millis()) {
                self.source.on_acknowledged();
            }
        }
        Ok(())
    }
}

fn random_mark() -> Result<[u8; MARK_LEN], String> {
    let id = random_id()?;
    id.as_bytes().try_into().map_err(|_| "an id has another length than a mark".to_owned())
}

/// Makes an id by chance.
///
/// # Errors
/// The system has no random bytes.
pub fn random_id() -> Result<ReplicationId, String> {
    let mut bytes = [0; MARK_LEN / 2];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(len) => filled += len,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("the system has no random bytes: {error}")),
        }
    }
    Ok(ReplicationId::of_random(bytes))
}
