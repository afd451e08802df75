//! Reads, and what replicas may answer.

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

    /// Whether a replica may answer what is asked now; notes a write.
    pub(super) fn may_be_stale(&mut self, ask: &Ask) -> bool {
        let is_write = match ask {
            Ask::Set { .. } | Ask::SetMany { .. } | Ask::Increment { .. } | Ask::Delete { .. } => {
                true
            }
            Ask::Begun(Begun { what: What::Exec { parts, .. }, .. }) => parts.iter().any(is_write),
            Ask::Begun(Begun { what: What::Push { .. } | What::Pop { .. }, .. }) => true,
            _ => false,
        };
        self.has_written |= is_write;
        match self.habits.staleness {
            Staleness::Never => false,
            Staleness::UntilWrite => !self.has_written,
            Staleness::Always => true,
        }
    }
}

fn is_write(part: &Expected) -> bool {
    let is_note = matches!(&part.ask, Ask::Begun(_));
    is_note || matches!(part.ask, Ask::Set { .. } | Ask::Increment { .. })
}
