//! The operators of an admin address, and the log of what they ask for.

use keyway_base::Time;
use keyway_channel::clock;
use keyway_config::OperatorConfig;
use keyway_control::{Access, Credential, NotedRequest};
use keyway_topology::Password;
use parking_lot::Mutex;
use std::time::Duration;

/// Refused requests that get a line of the log in [`EVERY`]. More lines of somebody who tries tokens
/// would fill the disk.
const LINES_MAX: u32 = 20;
/// See [`LINES_MAX`].
const EVERY: Duration = Duration::from_secs(60);

/// Admits the operators of a file from the next request on, and who shows `admin_token`.
pub fn admit(access: &Access, admin_token: Option<&Password>, operators: &[OperatorConfig]) {
    let credential = |one: &OperatorConfig| {
        let token = one.token.as_ref().map(Password::expose);
        Credential::new(one.operator.clone(), token, one.certificate.as_deref())
    };
    access.set(admin_token.map(Password::expose), operators.iter().map(credential).collect());
}

/// Logs changes that were asked for, and requests that were refused.
#[derive(Default)]
pub struct RequestLog {
    refused: Mutex<Lines>,
}

/// Lines about refused requests.
#[derive(Default)]
struct Lines {
    since: Option<Time>,
    count: u32,
    left_out: u64,
}

impl Lines {
    /// Returns whether another line is written now, and how many were not since the one before.
    fn next(&mut self, now: Time) -> Option<u64> {
        if self.since.is_none_or(|since| now.since(since) >= EVERY) {
            (self.since, self.count) = (Some(now), 0);
        }
        self.count = self.count.saturating_add(1);
        if self.count > LINES_MAX {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        Some(std::mem::take(&mut self.left_out))
    }
}

impl RequestLog {
    /// Logs a request. A token is never part of it.
    pub fn note(&self, request: &NotedRequest<'_>) {
        let NotedRequest { operator, address, method, path, status, detail } = *request;
        let operator = operator.unwrap_or("unknown");
        if !matches!(status, 401 | 403) {
            // Changes of the fleet have an entry in the audit log, which is an event.
            match path.starts_with("/v1/fleet/") {
                true => tracing::info!(
                    operator, %address, method, path, status,
                    "{operator} asks for {method} {path}"
                ),
                false => tracing::info!(
                    target: "keyway::event::operator-request",
                    operator, %address, method, path, status,
                    "{operator} asks for {method} {path}"
                ),
            }
            return;
        }
        let next = self.refused.lock().next(clock());
        if let Some(left_out) = next {
            let left_out = (left_out > 0).then_some(left_out);
            tracing::warn!(
                target: "keyway::event::operator-refused",
                operator, %address, method, path, status, left_out,
                "{method} {path} of {operator} is refused: {detail}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refused_requests_has_few_lines_and_all_are_counted() {
        let mut lines = Lines::default();
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        let written = (0..1000).filter(|_| lines.next(at(1)).is_some()).count();
        assert_eq!(written, LINES_MAX as usize);
        assert_eq!(lines.next(at(61)), Some(1000 - u64::from(LINES_MAX)));
        assert_eq!(lines.next(at(62)), Some(0));
    }
}
