//! Log lines that are events of the fleet as well.
//!
//! A line is one if its target begins with `keyway::event::`; the kind of the event follows, such as
//! `reload-failed`. The kind `server` and `circuit` get the state behind them that the field `to`
//! has. Lines wait here, bounded, until the thread that has joined the control plane takes them. A
//! process that has joined none keeps none.

use keyway_fleet::{Event, Severity};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterFn, filter_fn};
use tracing_subscriber::layer::{Context, Layer};

const TARGET: &str = "keyway::event::";

/// Events that wait for their thread, which takes them at least once a second. More lose the oldest.
const WAITING_MAX: usize = 256;

static IS_WANTED: AtomicBool = AtomicBool::new(false);
static WAITING: Mutex<VecDeque<Event>> = Mutex::new(VecDeque::new());

/// Keeps events from now on, for [`take`].
pub fn want() {
    // ORDER: the flag itself is the only data
    IS_WANTED.store(true, Ordering::Relaxed);
}

/// Returns the events since the last call.
pub fn take() -> VecDeque<Event> {
    std::mem::take(&mut *WAITING.lock())
}

/// Takes an event that has no line of the log.
pub fn push(event: Event) {
    // ORDER: the flag itself is the only data
    if !IS_WANTED.load(Ordering::Relaxed) {
        return;
    }
    let mut waiting = WAITING.lock();
    if waiting.len() >= WAITING_MAX {
        waiting.pop_front();
    }
    waiting.push_back(event);
}

/// The part of the log that finds events.
pub struct Events;

/// Returns the filter of [`Events`], whatever level the log has.
pub fn filter() -> FilterFn<impl Fn(&Metadata<'_>) -> bool + Clone> {
    let is_event = |metadata: &Metadata<'_>| {
        *metadata.level() <= Level::INFO && metadata.target().starts_with(TARGET)
    };
    filter_fn(is_event).with_max_level_hint(LevelFilter::INFO)
}

impl<S: Subscriber> Layer<S> for Events {
    fn on_event(&self, line: &tracing::Event<'_>, _: Context<'_, S>) {
        // ORDER: the flag itself is the only data
        if !IS_WANTED.load(Ordering::Relaxed) {
            return;
        }
        let Some(kind) = line.metadata().target().strip_prefix(TARGET) else { return };
        let severity = match *line.metadata().level() {
            Level::ERROR => Severity::Error,
            Level::WARN => Severity::Warning,
            _ => Severity::Info,
        };
        let mut fields = Fields::default();
        line.record(&mut fields);
        let at = crate::serve::wall_clock().unix_micros / 1_000_000;
        push(fields.event(at, kind, severity));
    }
}

/// The fields of a line that an event has.
#[derive(Default)]
struct Fields {
    message: String,
    pool: Option<String>,
    backend: Option<String>,
    from: Option<String>,
    to: Option<String>,
    reason: Option<String>,
}

impl Fields {
    fn event(self, at: u64, kind: &str, severity: Severity) -> Event {
        let kind = match (kind, &self.to) {
            ("server" | "circuit", Some(to)) => format!("{kind}-{to}"),
            _ => kind.to_owned(),
        };
        let mut text = self.message;
        if let Some((from, to)) = self.from.zip(self.to) {
            let _ = write!(text, ": from {from} to {to}");
        }
        if let Some(reason) = self.reason.filter(|reason| !reason.is_empty()) {
            let _ = write!(text, ": {reason}");
        }
        let event = Event::new(at, &kind, severity, &text);
        match self.pool {
            Some(pool) => event.of_pool(&pool, self.backend.as_deref()),
            None => event,
        }
    }

    fn set(&mut self, name: &str, text: String) {
        match name {
            "message" => self.message = text,
            "pool" => self.pool = Some(text),
            "backend" => self.backend = Some(text),
            "from" => self.from = Some(text),
            "to" => self.to = Some(text),
            "reason" => self.reason = Some(text),
            _ => {}
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), value.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    /// The waiting events are one list of the process, so there is one test.
    #[test]
    fn a_line_is_an_event_by_its_target_and_the_oldest_make_room() {
        let log = tracing_subscriber::registry().with(Events.with_filter(filter()));
        tracing::subscriber::with_default(log, || {
            tracing::warn!(target: "keyway::event::server", pool = "a", "before anybody wants it");
            want();
            let (pool, backend, from, to, reason) = ("a", "h:1", "up", "ejected", "timeout");
            tracing::warn!(
                target: "keyway::event::server", pool, backend, from, to, reason, "health changed"
            );
            tracing::info!("no event");
            tracing::debug!(target: "keyway::event::server", "not important");
            tracing::error!(target: "keyway::event::reload-failed", "line 3: wrong");
        });
        let events = take();
        assert_eq!(events.len(), 2, "{events:?}");
        let first = &events[0];
        assert_eq!((first.kind.as_str(), first.severity), ("server-ejected", Severity::Warning));
        assert_eq!((first.pool.as_deref(), first.server.as_deref()), (Some("a"), Some("h:1")));
        assert_eq!(first.text, "health changed: from up to ejected: timeout");
        assert_eq!((events[1].kind.as_str(), events[1].pool.as_deref()), ("reload-failed", None));
        for nth in 0..WAITING_MAX as u64 + 3 {
            push(Event::new(nth, "test", Severity::Info, ""));
        }
        let events = take();
        assert_eq!((events.len(), events[0].at), (WAITING_MAX, 3));
        assert!(take().is_empty());
    }
}
