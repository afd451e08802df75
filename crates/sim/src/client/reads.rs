//! Reads, and the reads that replicas may answer.

use super::stateful::{Begun, What};
use super::*;

impl Client {
    pub(super) fn ask_get(&mut self, now: Nanos, ledger: &Ledger) {
        let key = self.pick_key_near(ledger);
        let name = self.name(key);
        if self.habits.mix == Mix::All && self.random.percent(10) {
            self.output.extend_from_slice(b"get ");
            self.output.extend_from_slice(&name);
            self.output.extend_from_slice(b"\r\n");
        } else {
            write_request(&mut self.output, &[b"GET", &name]);
        }
        let circumstances = self.circumstances(ledger, &[key]);
        self.expect(now, Ask::Get { key }, circumstances);
    }

    /// Returns whether a replica may answer what is asked now. Also notes a write.
    pub(super) fn may_be_stale(&mut self, ask: &Ask) -> bool {
        let is_write = is_asked_to_write(ask);
        self.has_written |= is_write;
        match self.habits.staleness {
            Staleness::Never => false,
            Staleness::UntilWrite => !self.has_written,
            Staleness::Always => true,
        }
    }
}

impl Client {
    /// Notes the outcome of a write. A write that was refused and not sent does not pin reads to
    /// the primary: a replica may have answered what was asked after it, before or after the write
    /// reached the replica.
    pub(super) fn note_write_over(&mut self, expected: &Expected, value: &Value) {
        if self.has_write_done || !is_asked_to_write(&expected.ask) {
            return;
        }
        let names = self.names_of(expected);
        let is_refused = match value {
            Value::Error(text) => {
                verdict::fate_of(&String::from_utf8_lossy(text), &names) == Ok(Fate::NotDone)
            }
            _ => false,
        };
        self.has_write_done = !is_refused;
        if !is_refused || self.habits.staleness != Staleness::UntilWrite {
            return;
        }
        for behind in &mut self.expected {
            if is_asked_to_write(&behind.ask) {
                return;
            }
            behind.may_be_stale = true;
        }
        self.has_written = false;
    }
}

fn is_asked_to_write(ask: &Ask) -> bool {
    match ask {
        Ask::Set { .. } | Ask::SetMany { .. } | Ask::Increment { .. } | Ask::Delete { .. } => true,
        Ask::Begun(Begun { what: What::Exec { parts, .. }, .. }) => parts.iter().any(is_write),
        Ask::Begun(Begun { what: What::Push { .. } | What::Pop { .. }, .. }) => true,
        _ => false,
    }
}

fn is_write(part: &Expected) -> bool {
    let is_note = matches!(&part.ask, Ask::Begun(_));
    is_note || matches!(part.ask, Ask::Set { .. } | Ask::Increment { .. })
}
