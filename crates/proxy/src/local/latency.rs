//! LATENCY. Keyway times every request, but shows that as metrics; Redis's
//! event monitor is off here, which is its default too, and so has no events.

use keyway_command::{Request, Verb};
use keyway_resp::{Protocol, reply};

const DOCTOR: &str = "Keyway keeps no latency events. Read keyway_pool_reply_latency_seconds and \
     keyway_backend_latency_seconds on the metrics page of the admin listener.\n";

/// Appends the reply to a LATENCY subcommand.
pub(super) fn answer(request: &Request, protocol: Protocol, out: &mut Vec<u8>) {
    match request.command.verb {
        Verb::LatencyReset => reply::integer(out, 0),
        Verb::LatencyDoctor => protocol.text(out, DOCTOR.as_bytes()),
        Verb::LatencyGraph => {
            let event = String::from_utf8_lossy(&request.args[2]);
            reply::error(out, &format!("ERR No samples available for event '{event}'"));
        }
        Verb::LatencyHistogram => protocol.map(out, 0),
        _ => reply::array(out, 0),
    }
}
