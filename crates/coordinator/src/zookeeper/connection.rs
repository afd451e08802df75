//! One connection to a server of ZooKeeper, as a task that owns the socket.

use super::wire::{AUTH_XID, EVENT_XID, Granted, PING_XID, Reply, Request, code};
use crate::clock::Moment;
use crate::limits::FRAME_LEN_MAX;
use crate::net::{Dialer, Socket, in_words};
use crate::{Fault, FaultKind};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// Groups of requests that wait for the task. More wait in their callers.
const JOBS_MAX: usize = 16;

/// Requests whose replies are outstanding. More are not read from the callers.
const OUTSTANDING_MAX: usize = 64 * 1024;

/// Bytes that are read at once.
const READ_LEN: usize = 64 << 10;

/// Requests that are sent together, and who waits for all of their replies.
struct Job {
    requests: Vec<Request>,
    answer: oneshot::Sender<Vec<Reply>>,
}

/// A connection. Its task ends with it.
pub(super) struct Connection {
    jobs: mpsc::Sender<Job>,
    /// Counts events of watches.
    events: watch::Receiver<u64>,
    task: JoinHandle<()>,
    /// The session that the server has granted.
    pub(super) granted: Granted,
    pub(super) place: String,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why requests of a connection have no replies.
pub(super) enum Lost {
    /// They were not sent.
    Unsent(Fault),
    /// They may have been executed.
    Maybe(Fault),
}

impl Connection {
    /// Connects to an endpoint, and begins or continues a session.
    ///
    /// # Errors
    /// Returns [`FaultKind::SessionLost`] if the session does not exist any more.
    pub(super) async fn open(
        dialer: &Dialer,
        at: usize,
        asked: &Granted,
        credentials: Option<&str>,
        timeout: Duration,
    ) -> Result<Connection, Fault> {
        let place = dialer.place(at);
        let mut socket = dialer.dial(at).await?;
        let shaken = tokio::time::timeout(timeout, shake_hands(&mut socket, asked, credentials));
        let fault = |what: &str| Fault::new(FaultKind::Unreachable, place.clone(), "connect", what);
        let granted = match shaken.await {
            Ok(Ok(Some(granted))) => granted,
            Ok(Ok(None)) => return Err(Fault::session_lost(place, "connect")),
            Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                let what = "the credentials are refused";
                return Err(Fault::new(FaultKind::Denied, place, "connect", what));
            }
            Ok(Err(error)) => return Err(fault(&error.to_string())),
            Err(_) => return Err(fault("no answer in time")),
        };
        let (reader, writer) = tokio::io::split(socket);
        let (jobs, from_callers) = mpsc::channel(JOBS_MAX);
        let (to_watches, events) = watch::channel(0);
        let millis = u64::try_from(granted.timeout_ms).unwrap_or(0);
        let driver = Driver {
            reader,
            writer,
            arrived: Vec::new(),
            outstanding: VecDeque::new(),
            xid: 0,
            events: to_watches,
            ping_every: Duration::from_millis(millis / 4),
            dead_after: Duration::from_millis(millis),
        };
        let task = tokio::spawn(driver.run(from_callers));
        Ok(Connection { jobs, events, task, granted, place })
    }

    /// Returns whether its task still runs.
    pub(super) fn is_alive(&self) -> bool {
        !self.task.is_finished()
    }

    /// Returns the count of events, which changes with each.
    pub(super) fn events(&self) -> watch::Receiver<u64> {
        self.events.clone()
    }

    /// Sends requests together and waits for all replies, in their order.
    pub(super) async fn ask(
        &self,
        requests: Vec<Request>,
        tried: &'static str,
        timeout: Duration,
    ) -> Result<Vec<Reply>, Lost> {
        let fault =
            |what: &str| Fault::new(FaultKind::Unreachable, self.place.clone(), tried, what);
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let until = Moment::now().after(timeout);
        let (answer, answered) = oneshot::channel();
        let queued = tokio::time::timeout(timeout, self.jobs.send(Job { requests, answer })).await;
        match queued {
            Err(_) => return Err(Lost::Unsent(fault("the connection is busy"))),
            Ok(Err(_)) => return Err(Lost::Unsent(fault("the connection was lost"))),
            Ok(Ok(())) => {}
        }
        match tokio::time::timeout(until.left(), answered).await {
            Ok(Ok(replies)) => Ok(replies),
            Ok(Err(_)) => Err(Lost::Maybe(fault("the connection was lost"))),
            Err(_) => Err(Lost::Maybe(fault(&format!("no answer within {}", in_words(timeout))))),
        }
    }
}

/// Returns what the server grants, or nothing if the session has ended.
async fn shake_hands(
    socket: &mut Socket,
    asked: &Granted,
    credentials: Option<&str>,
) -> io::Result<Option<Granted>> {
    socket.write_all(&asked.frame()).await?;
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let frame = read_frame(socket).await?;
    let granted = Granted::read(&frame).ok_or_else(invalid)?;
    if granted.timeout_ms <= 0 || granted.id == 0 {
        return Ok(None);
    }
    if let Some(id) = credentials {
        let auth = Request::Auth { id: id.to_owned() };
        socket.write_all(&auth.frame(AUTH_XID)).await?;
        let reply = Reply::read(&read_frame(socket).await?).ok_or_else(invalid)?;
        if reply.xid != AUTH_XID || reply.code != code::OK {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
    }
    Ok(Some(granted))
}

async fn read_frame(socket: &mut Socket) -> io::Result<Vec<u8>> {
    /// Of the first two frames.
    const LEN_MAX: usize = 1024;
    let len = usize::try_from(socket.read_i32().await?).unwrap_or(usize::MAX);
    if len > LEN_MAX {
        return Err(io::Error::other("the answer is not ZooKeeper's"));
    }
    let mut frame = vec![0; len];
    socket.read_exact(&mut frame).await?;
    Ok(frame)
}

/// What the task owns.
struct Driver {
    reader: ReadHalf<Socket>,
    writer: WriteHalf<Socket>,
    arrived: Vec<u8>,
    outstanding: VecDeque<Outstanding>,
    xid: i32,
    events: watch::Sender<u64>,
    ping_every: Duration,
    dead_after: Duration,
}

/// A job whose replies are coming.
struct Outstanding {
    first_xid: i32,
    count: usize,
    replies: Vec<Reply>,
    answer: oneshot::Sender<Vec<Reply>>,
}

impl Driver {
    /// Serves until the connection or its owner is gone. Who waits then is told by its channel.
    async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut ping_at = Moment::now().after(self.ping_every);
        let mut heard_until = Moment::now().after(self.dead_after);
        loop {
            let in_flight: usize = self.outstanding.iter().map(|job| job.count).sum();
            let sleep = ping_at.left().min(heard_until.left());
            let served = tokio::select! {
                job = jobs.recv(), if in_flight < OUTSTANDING_MAX => match job {
                    Some(job) => self.send(job).await,
                    None => return,
                },
                read = self.reader.read_buf(&mut self.arrived) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {
                        heard_until = Moment::now().after(self.dead_after);
                        self.read()
                    }
                },
                () = tokio::time::sleep(sleep) => {
                    if heard_until.has_passed() {
                        return;
                    }
                    ping_at = Moment::now().after(self.ping_every);
                    self.writer.write_all(&Request::Ping.frame(PING_XID)).await.ok()
                }
            };
            if served.is_none() {
                return;
            }
        }
    }

    async fn send(&mut self, job: Job) -> Option<()> {
        let first_xid = self.xid.checked_add(1)?;
        let mut frames = Vec::new();
        for request in &job.requests {
            // A connection of two thousand million requests ends, and another begins.
            self.xid = self.xid.checked_add(1)?;
            frames.extend_from_slice(&request.frame(self.xid));
        }
        let count = job.requests.len();
        let replies = Vec::with_capacity(count);
        self.outstanding.push_back(Outstanding { first_xid, count, replies, answer: job.answer });
        // A server that does not read while it is written to is no server of ours any more.
        tokio::time::timeout(self.dead_after, self.writer.write_all(&frames)).await.ok()?.ok()
    }

    /// Takes all frames that have arrived.
    fn read(&mut self) -> Option<()> {
        let mut taken = 0;
        while let Some(start) = self.arrived.get(taken..taken + 4) {
            let len = i32::from_be_bytes(start.try_into().ok()?);
            let len = usize::try_from(len).ok().filter(|len| *len <= FRAME_LEN_MAX)?;
            let Some(frame) = self.arrived.get(taken + 4..taken + 4 + len) else { break };
            let reply = Reply::read(frame)?;
            taken += 4 + len;
            self.take(reply)?;
        }
        self.arrived.drain(..taken);
        self.arrived.reserve(READ_LEN);
        Some(())
    }

    fn take(&mut self, reply: Reply) -> Option<()> {
        match reply.xid {
            PING_XID | AUTH_XID => return Some(()),
            EVENT_XID => {
                self.events.send_modify(|count| *count = count.wrapping_add(1));
                return Some(());
            }
            _ => {}
        }
        let job = self.outstanding.front_mut()?;
        // Replies come in the order of requests.
        let expected = i32::try_from(job.replies.len()).ok()?.checked_add(job.first_xid)?;
        if reply.xid != expected {
            return None;
        }
        job.replies.push(reply);
        if job.replies.len() == job.count {
            let job = self.outstanding.pop_front()?;
            // Its caller may have left.
            let _ = job.answer.send(job.replies);
        }
        Some(())
    }
}
