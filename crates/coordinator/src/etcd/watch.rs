use super::Inner;
use super::http::Sender;
use super::wire::{self, gather};
use crate::clock::Moment;
use crate::coordinator::{Answer, Follow};
use crate::limits::{LINE_LEN_MAX, WATCH_IDLE};
use crate::{Batch, Event, Fault, FaultKind, Prefix, Revision};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Pause between two tries to open a stream.
const PAUSE: Duration = Duration::from_millis(50);

/// A watch: one answer that lasts, with a line of JSON for each event.
///
/// An answer that is silent for a while is given up for another from the same revision, behind a
/// question to the quorum. So a connection that was cut without a word, a member that hangs and
/// a state from a backup are found out, and nothing is missed.
pub(super) struct EtcdWatch {
    inner: Arc<Inner>,
    prefix: Prefix,
    /// All up to here was returned or is in `pending`.
    read_to: Revision,
    pending: VecDeque<Batch>,
    stream: Option<Stream>,
    is_over: bool,
    /// Since when nothing has answered.
    failing_since: Option<Moment>,
}

/// What a line of the stream means.
enum Line {
    Nothing,
    ListAgain,
    Reconnect(Fault),
}

impl EtcdWatch {
    pub(super) fn new(inner: Arc<Inner>, prefix: Prefix, after: Revision) -> EtcdWatch {
        EtcdWatch {
            inner,
            prefix,
            read_to: after,
            pending: VecDeque::new(),
            stream: None,
            is_over: false,
            failing_since: None,
        }
    }

    /// Reads one line, or opens the stream.
    async fn step(&mut self) -> Result<(), Fault> {
        let Some(stream) = &mut self.stream else {
            self.stream = Some(self.open().await?);
            return Ok(());
        };
        let line = match tokio::time::timeout(WATCH_IDLE, stream.line()).await {
            Err(_) => {
                // It may be well, or not: the next one tells.
                self.stream = None;
                return Ok(());
            }
            Ok(line) => line,
        };
        let line = line.inspect_err(|_| self.stream = None)?;
        let Some(line) = line else {
            // One event is longer than we hold.
            self.is_over = true;
            return Ok(());
        };
        match self.take(&line)? {
            Line::Nothing => Ok(()),
            Line::ListAgain => {
                self.is_over = true;
                Ok(())
            }
            Line::Reconnect(fault) => {
                self.stream = None;
                Err(fault)
            }
        }
    }

    /// Opens a stream from behind what was read.
    async fn open(&self) -> Result<Stream, Fault> {
        let tried = "watch";
        let mark = self.inner.probe(tried, &self.prefix).await?;
        if mark.revision < self.read_to {
            let what = format!("the revision is {}, below {}", mark.revision, self.read_to);
            let place = self.inner.http.dialer().all();
            return Err(Fault::new(FaultKind::RolledBack, place, tried, what));
        }
        let (key, range_end) = self.inner.names.range(&self.prefix);
        let from = self.read_to.0 + 1;
        let request = json!({"create_request": {
            "key": key,
            "range_end": range_end,
            "start_revision": from.to_string(),
            "fragment": true,
        }});
        let at = self.inner.http.dialer().preferred();
        let opened = self.inner.http.open(at, "/v3/watch", &request, tried).await;
        let (response, sender) = opened.inspect_err(|_| self.inner.http.dialer().leave(at))?;
        let place = self.inner.http.dialer().place(at);
        let status = response.status();
        let mut stream = Stream {
            body: response.into_body(),
            buffer: Vec::new(),
            searched: 0,
            _sender: sender,
            place,
            partial: Vec::new(),
        };
        if !status.is_success() {
            self.inner.http.dialer().leave(at);
            return Err(stream.fault(&format!("HTTP status {status}")));
        }
        // The first line says that the watch exists. It is read again as the first of all.
        let waited = tokio::time::timeout(self.inner.patience.request, stream.fill()).await;
        let filled = waited.unwrap_or_else(|_| Err(stream.fault("no answer in time")));
        filled.inspect_err(|_| self.inner.http.dialer().leave(at))?;
        Ok(stream)
    }

    fn take(&mut self, line: &[u8]) -> Result<Line, Fault> {
        let Some(stream) = &mut self.stream else { return Ok(Line::Nothing) };
        let damaged = |place: &str| {
            Fault::new(FaultKind::Damaged, place, "watch", "the answer is not etcd's")
        };
        let line: Value = serde_json::from_slice(line).map_err(|_| damaged(&stream.place))?;
        if !line["error"].is_null() {
            return Ok(Line::Reconnect(self.refusal(&line["error"]["message"])));
        }
        let result = &line["result"];
        if result["canceled"] == true {
            if wire::revision(&result["compact_revision"]).is_some_and(|at| at.0 > 0) {
                return Ok(Line::ListAgain);
            }
            return Ok(Line::Reconnect(self.refusal(&result["cancel_reason"])));
        }
        let changes = self.inner.names.events(&result["events"]);
        gather(changes.ok_or_else(|| damaged(&stream.place))?, &mut stream.partial);
        // Within fragments the last revision may go on.
        let is_fragment = result["fragment"] == true;
        let whole = stream.partial.len() - usize::from(is_fragment).min(stream.partial.len());
        for batch in stream.partial.drain(..whole) {
            if batch.revision > self.read_to {
                self.read_to = batch.revision;
                self.pending.push_back(batch);
            }
        }
        Ok(Line::Nothing)
    }

    fn refusal(&self, reason: &Value) -> Fault {
        let reason: String =
            reason.as_str().unwrap_or("no reason given").chars().take(200).collect();
        let kind = if reason.contains("auth token") || reason.contains("auth store") {
            self.inner.http.forget_token();
            FaultKind::Unreachable
        } else if reason.contains("permission denied") || reason.contains("user name is empty") {
            FaultKind::Denied
        } else {
            FaultKind::Unreachable
        };
        let place = self.stream.as_ref().map_or("etcd", |stream| stream.place.as_str());
        Fault::new(kind, place, "watch", reason)
    }
}

impl Follow for EtcdWatch {
    fn next(&mut self) -> Answer<'_, Event> {
        Box::pin(async move {
            loop {
                if let Some(batch) = self.pending.pop_front() {
                    return Ok(Event::Changes(batch));
                }
                if self.is_over {
                    self.stream = None;
                    return Ok(Event::ListAgain);
                }
                let began = Moment::now();
                let Err(fault) = self.step().await else {
                    self.failing_since = None;
                    continue;
                };
                let since = *self.failing_since.get_or_insert(began);
                let is_transient = matches!(fault.kind(), FaultKind::Unreachable | FaultKind::Busy);
                if !is_transient || since.after(self.inner.patience.call).has_passed() {
                    self.failing_since = None;
                    return Err(fault);
                }
                tokio::time::sleep(PAUSE).await;
            }
        })
    }
}

/// The lines of an answer.
struct Stream {
    body: Incoming,
    buffer: Vec<u8>,
    /// Bytes of the buffer that have no end of a line.
    searched: usize,
    /// Batches of a revision whose fragments are still coming.
    partial: Vec<Batch>,
    place: String,
    /// The connection ends with it.
    _sender: Sender,
}

impl Stream {
    /// Returns the next line, or nothing if it is longer than we hold. Dropping the future loses
    /// nothing.
    async fn line(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        let Some(end) = self.fill().await? else { return Ok(None) };
        let rest = self.buffer.split_off(end);
        self.searched = 0;
        Ok(Some(std::mem::replace(&mut self.buffer, rest)))
    }

    /// Waits until the buffer begins with a line, and returns its length.
    async fn fill(&mut self) -> Result<Option<usize>, Fault> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(at) = unsearched.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.searched + at + 1));
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > LINE_LEN_MAX {
                return Ok(None);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(_)) => return Err(self.fault("the connection was lost")),
                None => return Err(self.fault("the answer has ended")),
            }
        }
    }

    fn fault(&self, what: &str) -> Fault {
        Fault::new(FaultKind::Unreachable, self.place.clone(), "watch", what)
    }
}
