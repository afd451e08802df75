//! A simulated server remembers the keys that its connections have read, to send invalidations.

use super::*;
use std::collections::BTreeSet;

/// The tracking state of a connection.
#[derive(Default)]
pub(super) struct Tracking {
    is_on: bool,
    prefix: Option<Vec<u8>>,
    is_optin: bool,
    is_noloop: bool,
    /// True if `CLIENT CACHING YES` precedes the next request.
    is_caching: bool,
    read: BTreeSet<Vec<u8>>,
    /// Invalidations to be sent after the reply to the current request.
    pub(super) pushes: Vec<u8>,
}

const EVERYTHING: &[u8] = b">2\r\n$10\r\ninvalidate\r\n_\r\n";

fn write_invalidation(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b">2\r\n$10\r\ninvalidate\r\n*1\r\n");
    write_bulk(out, key);
}

impl Server {
    /// Answers `CLIENT TRACKING` and `CLIENT CACHING`. Returns whether it did.
    pub(super) fn answer_tracking(
        &mut self,
        position: usize,
        args: &[Vec<u8>],
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) -> bool {
        let conn = &mut self.conns[position];
        let is_about = args[0].eq_ignore_ascii_case(b"CLIENT");
        if is_about && args[1].eq_ignore_ascii_case(b"CACHING") {
            if !conn.tracking.is_optin || args[2] != b"YES" {
                ledger.fail(|| "a server was sent CLIENT CACHING for no reason".to_owned());
            }
            conn.tracking.is_caching = true;
        } else if is_about && args[1].eq_ignore_ascii_case(b"TRACKING") {
            let has = |word: &[u8]| args.iter().any(|arg| arg == word);
            let place = args.iter().position(|arg| arg == b"PREFIX");
            if !conn.is_resp3 || has(b"REDIRECT") || has(b"OFF") {
                ledger.fail(|| "a server was sent an odd CLIENT TRACKING".to_owned());
            }
            conn.tracking = Tracking {
                is_on: true,
                prefix: place.map(|place| args[place + 1].clone()),
                is_optin: has(b"OPTIN"),
                is_noloop: has(b"NOLOOP"),
                ..Tracking::default()
            };
        } else {
            return false;
        }
        reply.extend_from_slice(b"+OK\r\n");
        true
    }

    /// Notes that a connection reads keys.
    pub(super) fn note_read(&mut self, position: usize, keys: &[Vec<u8>]) {
        let tracking = &mut self.conns[position].tracking;
        let is_noted = tracking.is_on
            && tracking.prefix.is_none()
            && (!tracking.is_optin || tracking.is_caching);
        if is_noted {
            tracking.read.extend(keys.iter().cloned());
        }
    }

    /// Notes that a request was executed. `CLIENT CACHING` applies only to one.
    pub(super) fn end_caching(&mut self, position: usize, args: &[Vec<u8>]) {
        let says_so = args.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"CACHING"));
        self.conns[position].tracking.is_caching &= says_so;
    }

    /// Notes that a key was changed by the connection that is served now.
    pub(super) fn tell_of_change(&mut self, key: &[u8]) {
        let is_silent = self.defect == Some(Defect::LostInvalidation)
            && self.served >= self.defect_after
            && key.starts_with(b"c");
        let serving = self.serving;
        for (position, conn) in self.conns.iter_mut().enumerate() {
            let Tracking { prefix, read, is_noloop, pushes, .. } = &mut conn.tracking;
            let is_told = match prefix {
                Some(prefix) => key.starts_with(prefix),
                None => read.remove(key),
            };
            let is_own = position == serving;
            if !is_told || is_silent || (is_own && *is_noloop) || conn.dead || conn.closing {
                continue;
            }
            write_invalidation(key, if is_own { pushes } else { &mut conn.output });
        }
    }

    /// Notes that every key has changed.
    pub(super) fn tell_of_everything(&mut self) {
        for conn in self.conns.iter_mut().filter(|conn| conn.tracking.is_on && !conn.dead) {
            conn.tracking.read.clear();
            conn.tracking.pushes.extend_from_slice(EVERYTHING);
        }
    }

    /// Sends invalidations after the current reply.
    pub(super) fn release_pushes(&mut self) {
        for conn in &mut self.conns {
            match conn.closing {
                // Nothing follows a reply that was cut off.
                true => conn.tracking.pushes.clear(),
                false => conn.output.append(&mut conn.tracking.pushes),
            }
        }
    }
}
