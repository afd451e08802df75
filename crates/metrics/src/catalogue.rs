//! Every metric, declared once: the exposition, its tests and
//! `docs/metrics.md` are all made from this table.

use std::fmt::Write;

/// The behaviour of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A count that only grows while the process lives.
    Counter,
    /// A level.
    Gauge,
    /// Counts per range of values, with their sum.
    Histogram,
}

impl Kind {
    /// Returns the word of the Prometheus `# TYPE` line.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// The labels. All their values come from the configuration or from closed sets in the code, never
/// from clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// Name of a pool.
    Pool,
    /// Name of a backend.
    Backend,
    /// Number of a worker, from 0.
    Worker,
    /// Class of a command, such as `read`.
    Command,
    /// A fault, from a closed set.
    Fault,
    /// A bound on latency, such as `8ms`: counts requests above it.
    Over,
    /// Number of a database of the embedded store.
    Database,
    /// The key prefix of a quota, as configured.
    Prefix,
    /// Role of a server: `primary`, `replica` or `none`.
    Role,
    /// The primary of a server: its address, or its name for Sentinel.
    Of,
    /// Address of a listener, as configured.
    Listener,
    /// Path of a file, as configured.
    File,
    /// Kind of a connection of the bus: `upstream`, `standby`, `below`, `sibling` or `stranger`.
    Link,
    /// Reason of a failure on the bus (docs/protocol/bus.md), or of a fail-over. From closed sets.
    Reason,
    /// State of a member of the fleet, or of a group of servers, from closed sets: docs/control.md.
    State,
    /// Result of a reload: `done`, or the reason of a refusal; or of a rollout. From a closed set.
    Result,
    /// Version of this build. Only `keyway_process_build_info` has it.
    Version,
}

impl Label {
    /// Returns the label's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Label::Pool => "pool",
            Label::Backend => "backend",
            Label::Worker => "worker",
            Label::Command => "command",
            Label::Fault => "fault",
            Label::Over => "over",
            Label::Database => "database",
            Label::Prefix => "prefix",
            Label::Role => "role",
            Label::Of => "of",
            Label::Listener => "listener",
            Label::File => "file",
            Label::Link => "link",
            Label::Reason => "reason",
            Label::State => "state",
            Label::Result => "result",
            Label::Version => "version",
        }
    }
}

/// The declaration of one metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// `keyway_<subsystem>_<thing>_<unit>[_total]`.
    pub name: &'static str,
    /// How its values behave.
    pub kind: Kind,
    /// Its unit, in the plural. The name ends with it.
    pub unit: &'static str,
    /// The labels of each of its series, in order.
    pub labels: &'static [Label],
    /// A sentence that says what it measures.
    pub measures: &'static str,
    /// A sentence that says what it leaves out; empty if a reader would miss nothing.
    pub leaves_out: &'static str,
}

macro_rules! catalogue {
    ($($id:ident: $kind:ident $name:literal in $unit:literal by [$($label:ident)*]
       measures $measures:literal leaves_out $leaves_out:literal)*) => {
        $(pub(crate) const $id: Metric = Metric {
            name: $name,
            kind: Kind::$kind,
            unit: $unit,
            labels: &[$(Label::$label),*],
            measures: $measures,
            leaves_out: $leaves_out,
        };)*

        /// Every metric, subsystem by subsystem.
        pub const CATALOGUE: &[Metric] = &[$($id),*];
    };
}

catalogue! {
    POOL_REQUESTS: Counter "keyway_pool_requests_total" in "requests" by [Pool Command]
        measures "Requests taken for serving, counted when parsed; a request that is split over shards counts once."
        leaves_out "Leaves out what was refused before its command was known: keyway_pool_refused_requests_total."
    POOL_LATENCY: Histogram "keyway_pool_reply_latency_seconds" in "seconds" by [Pool Command]
        measures "Time from a request being parsed to its reply, or an error of Keyway's own, being written into the client's output, on a clock that is read once per turn of the worker. For requests answered without a backend (embedded store, PING and the like): from the poll that found the client readable until every reply of the turn was given to the kernel, with one more look at the clock; so a slow command shows in all requests of its turn."
        leaves_out "Leaves out the time the request waited unread in the kernel, before the poll, and the time the reply takes to reach the client; and commands sent to wait on a server, or waiting on the store (BLPOP and the like)."
    POOL_SLOW: Counter "keyway_pool_slow_requests_total" in "requests" by [Pool Command Over]
        measures "Requests whose latency was above 1, 8 and 64 ms; each counts in every bound it exceeds. As a share: divided by the count of keyway_pool_reply_latency_seconds."
        leaves_out "Leaves out what keyway_pool_reply_latency_seconds leaves out, of which it is made."
    POOL_ERRORS: Counter "keyway_pool_errors_total" in "errors" by [Pool Command Fault]
        measures "Requests answered with an error of Keyway's own, by what went wrong; store_full: writes that the embedded store refused with -OOM."
        leaves_out "Leaves out other error replies of the embedded store, and those of a backend, which are passed on: keyway_backend_error_replies_total."
    COMMAND_CALLS: Counter "keyway_pool_command_calls_total" in "calls" by [Pool Command]
        measures "Requests taken for serving, by command: its name in lower case, that of a subcommand behind its command and a bar. A command has a series from its first request on. keyway_pool_requests_total has the same requests by class."
        leaves_out "Leaves out what keyway_pool_requests_total leaves out."
    COMMAND_ERRORS: Counter "keyway_pool_command_errors_total" in "errors" by [Pool Command]
        measures "Requests answered with an error, by command: Keyway's own, the embedded store's, and those of a backend, which are passed on."
        leaves_out "Leaves out requests refused before routing: keyway_pool_refused_requests_total."
    COMMAND_SECONDS: Counter "keyway_pool_command_reply_seconds_total" in "seconds" by [Pool Command]
        measures "Sum of the latencies of keyway_pool_reply_latency_seconds, by command; divided by the calls it is the mean latency."
        leaves_out "Leaves out what keyway_pool_reply_latency_seconds leaves out."
    POOL_REFUSED: Counter "keyway_pool_refused_requests_total" in "requests" by [Pool Fault]
        measures "Requests refused before routing (client: broken frames; denied: unknown and unsupported commands, wrong arity, missing permission, keys on several servers) and clients refused at once (limit)."
        leaves_out "Leaves out requests that were routed and then failed: keyway_pool_errors_total."
    CLIENT_CONNECTIONS: Gauge "keyway_client_connections" in "connections" by [Pool]
        measures "Clients connected now."
        leaves_out "Leaves out connections still in the kernel's accept queue and those of the admin listener."
    CLIENT_ACCEPTED: Counter "keyway_client_accepted_connections_total" in "connections" by [Pool]
        measures "Client connections accepted, including those refused at once because of a bound."
        leaves_out "Leaves out connections of the admin listener."
    CLIENT_CLOSED: Counter "keyway_client_closed_connections_total" in "connections" by [Pool Fault]
        measures "Client connections ended, by why: none (the client left or sent QUIT), reset, client (broke the protocol), limit (did not read its replies), killed (CLIENT KILL, or a reload has taken its user or a right), drained, idle (`idle_timeout`), backend (a server failed in the middle of a large reply), log (the log of a store has lost writes, perhaps those of the client)."
        leaves_out "Leaves out clients refused at once, which keyway_pool_refused_requests_total counts, and connections of the admin listener."
    CLIENT_RECEIVED: Counter "keyway_client_received_bytes_total" in "bytes" by [Pool]
        measures "Bytes read from clients, with the framing of their protocol."
        leaves_out "Leaves out what the kernel received and nobody has read yet, and the headers of TCP and TLS."
    CLIENT_SENT: Counter "keyway_client_sent_bytes_total" in "bytes" by [Pool]
        measures "Bytes the kernel took for clients, with the framing of their protocol."
        leaves_out "Leaves out replies still in Keyway's output buffers, and the headers of TCP and TLS."
    CLIENT_PAUSES: Counter "keyway_client_pauses_total" in "pauses" by [Pool]
        measures "Times a client's input was left unread because its own queue of replies or the queue of a backend was full."
        leaves_out "Leaves out how long each pause lasted."
    LISTENER_CONNECTIONS: Gauge "keyway_listener_client_connections" in "connections" by [Listener]
        measures "Clients of the listener connected now."
        leaves_out "Leaves out those whose connections are still being secured, or that have yet to say whose they are."
    LISTENER_SECURED: Counter "keyway_listener_secured_connections_total" in "connections" by [Listener]
        measures "Connections of clients whose TLS handshake succeeded."
        leaves_out ""
    LISTENER_REFUSED: Counter "keyway_listener_refused_connections_total" in "connections" by [Listener Fault]
        measures "Clients turned away, by why: not_allowed (by `allow` and `deny`), not_proxy (not in `proxy_from`), proxy_header (none, or a wrong one), timeout (`handshake_timeout`), crowded (`handshakes_max`), gone (closed without a word, as checks of health do), clients_max (any of them), and of TLS handshakes not_tls, no_certificate, unknown_issuer, expired, revoked, bad_certificate (of the client's), version (or ciphers: nothing in common), refused_ours (the client does not believe our certificate), closed and broken; unwatched (the system watches no more connections)."
        leaves_out ""
    PUBSUB_CHANNELS: Gauge "keyway_pubsub_active_channels" in "channels" by [Pool]
        measures "Channels and shard channels that clients have subscribed to, now; one counts for each worker with such clients."
        leaves_out "Leaves out what clients of the servers themselves have subscribed to."
    PUBSUB_PATTERNS: Gauge "keyway_pubsub_active_patterns" in "patterns" by [Pool]
        measures "Patterns that clients have subscribed to, now; one counts for each worker with such clients."
        leaves_out "Leaves out what clients of the servers themselves have subscribed to."
    PUBSUB_CLIENTS: Gauge "keyway_pubsub_subscribed_clients" in "clients" by [Pool]
        measures "Clients that have subscribed to something, now."
        leaves_out "Leaves out clients whose first subscription is not confirmed yet."
    PUBSUB_UPSTREAM: Gauge "keyway_pubsub_upstream_subscriptions" in "subscriptions" by [Pool]
        measures "Channels and patterns subscribed at servers, now: one for each worker, server and name, however many clients want it."
        leaves_out "Always 0 on the embedded store, which has no servers."
    PUBSUB_DELIVERED: Counter "keyway_pubsub_delivered_messages_total" in "messages" by [Pool]
        measures "Messages written into the outputs of subscribers, one for each subscriber and subscription it came by."
        leaves_out "Leaves out messages that nobody had subscribed to, and the time a subscriber takes to read."
    PUBSUB_DROPPED: Counter "keyway_pubsub_dropped_clients_total" in "clients" by [Pool]
        measures "Subscribers disconnected because more than pubsub_output_len_hard, or for too long more than pubsub_output_len_soft, was undelivered, or because their worker had no room for a message."
        leaves_out "Leaves out other reasons to close a client: keyway_client_closed_connections_total."
    BACKEND_REQUESTS: Counter "keyway_backend_requests_total" in "requests" by [Pool Backend]
        measures "Requests and fragments of split requests queued for the backend, each repetition included."
        leaves_out "Leaves out the handshake and health probes of a link."
    BACKEND_LATENCY: Histogram "keyway_backend_latency_seconds" in "seconds" by [Pool Backend]
        measures "Time from a request being queued for the backend to its reply being read whole, on the clock that is read once per turn of the worker."
        leaves_out "Leaves out requests that got no reply in time, late replies included (keyway_backend_late_replies_total counts them); and commands sent to wait (BLPOP and the like); it includes the wait behind earlier requests of the same link."
    BACKEND_ERRORS: Counter "keyway_backend_errors_total" in "errors" by [Pool Backend Fault]
        measures "Requests and fragments that failed because of the backend, by what went wrong: each one lost with its link, timed out, or refused at once while the backend could not be reached."
        leaves_out "Leaves out links lost or not made while no request needed them, and error replies of the server: keyway_backend_error_replies_total."
    BACKEND_ERROR_REPLIES: Counter "keyway_backend_error_replies_total" in "replies" by [Pool Backend]
        measures "Replies of the server that were errors, such as -OOM or -WRONGTYPE."
        leaves_out "Leaves out late replies that were skipped, and replies to handshakes and health probes."
    BACKEND_SENT: Counter "keyway_backend_sent_bytes_total" in "bytes" by [Pool Backend]
        measures "Bytes the kernel took for the backend."
        leaves_out "Leaves out requests still queued: keyway_backend_unsent_bytes."
    BACKEND_RECEIVED: Counter "keyway_backend_received_bytes_total" in "bytes" by [Pool Backend]
        measures "Bytes read from the backend, late replies included."
        leaves_out "Leaves out what the kernel received and nobody has read yet."
    BACKEND_IN_FLIGHT: Gauge "keyway_backend_in_flight_requests" in "requests" by [Pool Backend]
        measures "Requests and fragments queued or sent whose reply has not come, now."
        leaves_out "Leaves out requests that timed out and whose late reply is still awaited."
    BACKEND_UNSENT: Gauge "keyway_backend_unsent_bytes" in "bytes" by [Pool Backend]
        measures "Bytes queued for the backend that the kernel has not taken, now: the depth of the queue."
        leaves_out "Leaves out what waits in the kernel's send buffer."
    BACKEND_CONNECTING: Gauge "keyway_backend_connecting_links" in "links" by [Pool Backend]
        measures "Links being established now: connecting or in their handshake."
        leaves_out "Leaves out links that wait before their next try."
    BACKEND_READY: Gauge "keyway_backend_ready_links" in "links" by [Pool Backend]
        measures "Links that take requests now, over all workers."
        leaves_out "Leaves out links still being established: keyway_backend_connecting_links."
    BACKEND_CONNECTS: Counter "keyway_backend_connects_total" in "connects" by [Pool Backend]
        measures "Links established, handshake included."
        leaves_out "Leaves out tries that failed: the log tells of them."
    BACKEND_RECONNECTS: Counter "keyway_backend_reconnects_total" in "reconnects" by [Pool Backend]
        measures "Links established in place of one that had been lost; each is also a connect."
        leaves_out "Leaves out tries that failed."
    BACKEND_LATE: Counter "keyway_backend_late_replies_total" in "replies" by [Pool Backend]
        measures "Replies that came after their request had timed out, and were skipped."
        leaves_out "Leaves out replies that never came before their link was closed, and those that a client asked not to see (CLIENT REPLY)."
    BACKEND_UNCLAIMED: Counter "keyway_backend_unclaimed_replies_total" in "replies" by [Pool Backend]
        measures "Replies that came after their client had left, and were dropped."
        leaves_out "Leaves out replies to parts of requests that were split or went to every server, and late replies: keyway_backend_late_replies_total."
    BACKEND_UNASKED: Counter "keyway_backend_unasked_pushes_total" in "pushes" by [Pool Backend]
        measures "Pushes of RESP3 that came on a link whose clients had asked for none, and were dropped."
        leaves_out "Leaves out connections for subscriptions, and replies that nobody had asked for: these end the link (fault protocol)."
    BACKEND_EJECTIONS: Counter "keyway_backend_ejections_total" in "ejections" by [Pool Backend]
        measures "Times the backend was taken out of use, for all workers at once."
        leaves_out "Leaves out single failures that ejected nothing."
    BACKEND_HEALTH: Gauge "keyway_backend_health_state" in "state" by [Pool Backend]
        measures "How usable the process finds the backend: -1 not known (it has neither answered nor failed yet, and is in use), 0 up, 1 failing but in use, 2 ejected (or rejoining: being probed), 3 quarantined, 4 its cluster or the sentinels say that it is down. All workers share the finding."
        leaves_out "Leaves out other processes over the same backend."
    BACKEND_ROLE: Gauge "keyway_backend_role_info" in "info" by [Pool Backend Role Of]
        measures "Always 1; the labels say what the server does in a cluster or beside Sentinel (primary, replica, or none while it has no keys) and which primary it copies, or what Sentinel calls its primary."
        leaves_out "Leaves out pools whose servers are listed, but for those of kind replicated."
    BACKEND_CIRCUIT: Gauge "keyway_backend_circuit_state" in "state" by [Pool Backend]
        measures "Whether the backend is asked, in a pool with a circuit: 0 closed (it is), 1 half-open (a few requests find out), 2 open (it is not, and requests fail at once). All workers share the state."
        leaves_out "Leaves out requests that were refused: keyway_backend_errors_total with the fault backend_circuit_open. Always 0 without a circuit."
    BACKEND_CIRCUIT_OPENS: Counter "keyway_backend_circuit_opens_total" in "opens" by [Pool Backend]
        measures "Times the circuit of the backend opened, probes that failed counted."
        leaves_out "Leaves out how long it was open."
    BACKEND_OUTLIER: Gauge "keyway_backend_outlier_state" in "state" by [Pool Backend]
        measures "Whether the backend is left out of those that reads may go to, as it is much slower than the others or fails: 1 or 0. The sum over a pool is how many are left out now."
        leaves_out "Leaves out writes, which go to it all the same where it is a primary."
    BACKEND_OUTLIERS: Counter "keyway_backend_outliers_total" in "outliers" by [Pool Backend]
        measures "Times the backend was left out of those that reads may go to."
        leaves_out "Leaves out how long."
    BACKEND_READ_ESTIMATE: Gauge "keyway_backend_read_latency_estimate_seconds" in "seconds" by [Pool Backend]
        measures "How long the backend takes to reply, as the choice of a server for reads estimates it: it rises at once to what a reply took and falls in about a second. All workers share it."
        leaves_out "Leaves out pools whose reads go to primaries alone, where it is 0, as it is before the first reply."
    BACKEND_READS_CHOSEN: Counter "keyway_backend_chosen_reads_total" in "reads" by [Pool Backend]
        measures "Reads for which the backend was chosen among the servers that have the data."
        leaves_out "Leaves out reads that primaries answer in any case, and pools whose reads go to primaries alone."
    WORKER_TURNS: Counter "keyway_worker_turns_total" in "turns" by [Worker]
        measures "Turns of the worker's loop."
        leaves_out ""
    WORKER_EVENTS: Counter "keyway_worker_events_total" in "events" by [Worker]
        measures "Readiness events or completions the worker handled."
        leaves_out "Leaves out timers."
    WORKER_BATCH: Histogram "keyway_worker_batch_requests" in "requests" by [Worker]
        measures "Requests parsed in one turn of the loop."
        leaves_out "Leaves out turns that parsed none."
    WORKER_WAKEUPS: Counter "keyway_worker_wakeups_total" in "wakeups" by [Worker]
        measures "Polls that waited at least 5 microseconds for an event, so that the worker slept and was woken."
        leaves_out "Leaves out polls that returned at once with what was there already."
    WORKER_LOOKED: Counter "keyway_worker_spin_seconds_total" in "seconds" by [Worker]
        measures "Time in which the worker looked for bytes in shared memory instead of sleeping, whether some came or not; part of keyway_worker_busy_seconds_total."
        leaves_out "Leaves out the looks that each turn begins with."
    WORKER_RECV_CALLS: Counter "keyway_worker_recv_calls_total" in "calls" by [Worker]
        measures "Reads from connections: a system call each, but for those through shared memory."
        leaves_out "Leaves out accept calls."
    WORKER_SEND_CALLS: Counter "keyway_worker_send_calls_total" in "calls" by [Worker]
        measures "Writes to connections: a system call each, but for those through shared memory."
        leaves_out "Leaves out connect and shutdown calls."
    WORKER_POLL_CALLS: Counter "keyway_worker_poll_calls_total" in "calls" by [Worker]
        measures "Polls for events: a system call each, but for those that find bytes in shared memory."
        leaves_out "Leaves out calls that register interest."
    WORKER_LINGERING: Gauge "keyway_worker_lingering_connections" in "connections" by [Worker]
        measures "Connections of clients that have their last reply and the end behind it, kept for up to 2 s since they may still be sending: what comes is thrown away."
        leaves_out "Leaves out clients."
    WORKER_BUSY: Counter "keyway_worker_busy_seconds_total" in "seconds" by [Worker]
        measures "CPU time of the worker's thread, user and system, in steps of 10 ms; read when scraped."
        leaves_out "Leaves out workers that run on no thread of their own, and systems without /proc."
    STORE_ITEMS: Gauge "keyway_store_items" in "items" by [Pool Database]
        measures "Keys in the embedded store now."
        leaves_out "May include keys that have expired and were not met since."
    STORE_EXPIRING: Gauge "keyway_store_expiring_items" in "items" by [Pool Database]
        measures "Keys in the embedded store that have an expiry, now."
        leaves_out "May include keys that have expired and were not met since."
    STORE_MEMORY: Gauge "keyway_store_memory_bytes" in "bytes" by [Pool]
        measures "Memory the embedded store holds for items and its tables: what the memory bound is compared with."
        leaves_out "Leaves out clients' buffers and the allocator's own overhead: keyway_process_resident_memory_bytes."
    STORE_HITS: Counter "keyway_store_hits_total" in "hits" by [Pool]
        measures "Look-ups by reading commands that found their key."
        leaves_out "Leaves out look-ups by writing commands."
    STORE_MISSES: Counter "keyway_store_misses_total" in "misses" by [Pool]
        measures "Look-ups by reading commands that found no key, or an expired one."
        leaves_out "Leaves out look-ups by writing commands."
    STORE_EVICTIONS: Counter "keyway_store_evictions_total" in "evictions" by [Pool]
        measures "Keys removed to stay within the memory bound."
        leaves_out "Leaves out keys that had expired."
    STORE_EXPIRATIONS: Counter "keyway_store_expirations_total" in "expirations" by [Pool]
        measures "Keys removed because they had expired."
        leaves_out "Leaves out expired keys that were not met since."
    STORE_EXPIRED_FIELDS: Counter "keyway_store_expired_fields_total" in "fields" by [Pool]
        measures "Fields of hashes removed because they had expired."
        leaves_out "Leaves out those of hashes that expired as a whole."
    STORE_QUOTA_MEMORY: Gauge "keyway_store_quota_memory_bytes" in "bytes" by [Pool Prefix]
        measures "Memory that the keys of a quota take, with their values."
        leaves_out "Leaves out keys for which a longer prefix has a quota."
    STORE_QUOTA_ITEMS: Gauge "keyway_store_quota_items" in "items" by [Pool Prefix]
        measures "Keys of a quota now, in all databases."
        leaves_out "May include keys that have expired and were not met since."
    STORE_QUOTA_EVICTIONS: Counter "keyway_store_quota_evictions_total" in "evictions" by [Pool Prefix]
        measures "Keys of a quota removed to stay within it."
        leaves_out "Leaves out those removed to stay within the memory bound of the store; both are in keyway_store_evictions_total."
    STORE_QUOTA_REFUSALS: Counter "keyway_store_quota_refusals_total" in "refusals" by [Pool Prefix]
        measures "Writes answered with an OOM error because a quota was used up."
        leaves_out "Leaves out those refused because the store was full."
    SNAPSHOTS: Counter "keyway_store_snapshots_total" in "snapshots" by [Pool]
        measures "Snapshots of the embedded store that are in their file, whole and on the disk."
        leaves_out "Leaves out those that failed: keyway_store_snapshot_failures_total."
    SNAPSHOT_FAILURES: Counter "keyway_store_snapshot_failures_total" in "failures" by [Pool]
        measures "Snapshots of the embedded store that were given up; the file before stayed. The log says why."
        leaves_out "Leaves out those that were refused, as one was being written."
    SNAPSHOT_FAILED: Gauge "keyway_store_snapshot_failed" in "failed" by [Pool]
        measures "1 if the latest snapshot of the embedded store failed, else 0."
        leaves_out "Says nothing before the first one."
    SNAPSHOT_RUNNING: Gauge "keyway_store_snapshot_running" in "running" by [Pool]
        measures "1 while a snapshot of the embedded store is written, else 0."
        leaves_out "Leaves out those that wait for their turn."
    SNAPSHOT_SAVED: Gauge "keyway_store_snapshot_last_save_timestamp_seconds" in "seconds" by [Pool]
        measures "When the latest whole snapshot of the embedded store was in its file, since the Unix epoch; the start of the process before the first one."
        leaves_out "Says nothing of a file that was loaded."
    SNAPSHOT_BYTES: Gauge "keyway_store_snapshot_bytes" in "bytes" by [Pool]
        measures "Length of the file of the latest whole snapshot of the embedded store."
        leaves_out "Is 0 before the first one."
    SNAPSHOT_SECONDS: Gauge "keyway_store_snapshot_duration_seconds" in "seconds" by [Pool]
        measures "How long the latest snapshot of the embedded store took, from its moment to its place on the disk."
        leaves_out "Is 0 before the first one."
    SNAPSHOT_BUFFER: Gauge "keyway_store_snapshot_buffer_bytes" in "bytes" by [Pool]
        measures "The most memory that the latest snapshot of the embedded store held above the data: what `buffer` bounds."
        leaves_out "Leaves out data of databases that were emptied meanwhile, which counts as data until it is written."
    STORE_LOADING: Gauge "keyway_store_loading" in "loading" by [Pool]
        measures "1 while the embedded store is loaded from its snapshot or log and clients get the error LOADING, else 0."
        leaves_out "Leaves out pools without a snapshot and a log."
    LOG_FAILED: Gauge "keyway_store_log_failed" in "failed" by [Pool]
        measures "1 while the log of the embedded store takes no writes: it could not be written, and has not begun anew yet. Else 0."
        leaves_out "Leaves out compactions that failed, after which the log goes on: keyway_store_log_compaction_failures_total."
    LOG_LOSSES: Counter "keyway_store_log_losses_total" in "losses" by [Pool]
        measures "How often the log of the embedded store could not take writes. The process log says why."
        leaves_out "Leaves out attempts to begin anew that failed: keyway_store_log_failed_attempts_total."
    LOG_FAILED_ATTEMPTS: Counter "keyway_store_log_failed_attempts_total" in "attempts" by [Pool]
        measures "Attempts of a log that has failed to begin anew which failed as well. They come every 4 seconds, or as far apart as one takes."
        leaves_out "Leaves out the failure before: keyway_store_log_losses_total."
    LOG_WRITTEN: Counter "keyway_store_log_written_bytes_total" in "bytes" by [Pool]
        measures "Bytes of writes that the log of the embedded store has written."
        leaves_out "Leaves out compactions, and the 32 bytes in front of what is written at once."
    LOG_BYTES: Gauge "keyway_store_log_bytes" in "bytes" by [Pool]
        measures "Length of the log of the embedded store: what is read at a start."
        leaves_out "Leaves out a compaction that is being written."
    LOG_FSYNCS: Counter "keyway_store_log_fsyncs_total" in "fsyncs" by [Pool]
        measures "Calls of fsync for the log of the embedded store."
        leaves_out "Leaves out those for new files and compactions."
    LOG_FSYNC_SECONDS: Counter "keyway_store_log_fsync_seconds_total" in "seconds" by [Pool]
        measures "How long keyway_store_log_fsyncs_total took together."
        leaves_out ""
    LOG_COMPACTIONS: Counter "keyway_store_log_compactions_total" in "compactions" by [Pool]
        measures "Bases of the log of the embedded store that were written whole, the first one included."
        leaves_out "Leaves out those that failed: keyway_store_log_compaction_failures_total."
    LOG_COMPACTION_FAILURES: Counter "keyway_store_log_compaction_failures_total" in "failures" by [Pool]
        measures "Compactions of the log of the embedded store that failed. The log goes on and grows; the next attempt comes after a minute."
        leaves_out "Leaves out those that were never begun."
    REPLICA_LINK_UP: Gauge "keyway_replica_link_up" in "up" by [Pool]
        measures "1 while the embedded store gets its primary's stream of commands, else 0."
        leaves_out "Leaves out stores that are primaries. Is 0 while a snapshot comes."
    REPLICA_LAST_IO: Gauge "keyway_replica_last_io_seconds" in "seconds" by [Pool]
        measures "Time since the last byte from the primary of the embedded store: a primary that has nothing to send says so every repl-ping-replica-period."
        leaves_out "Leaves out stores that are primaries. Is 0 before the first byte."
    REPLICA_OFFSET: Gauge "keyway_replica_offset_bytes" in "bytes" by [Pool]
        measures "Replication offset up to which the embedded store has executed its primary's stream: the primary's master_repl_offset less this is the lag in bytes."
        leaves_out "Leaves out stores that are primaries."
    REPLICA_FULL_RESYNCS: Counter "keyway_replica_full_resyncs_total" in "resyncs" by [Pool]
        measures "Snapshots of a primary that the embedded store took whole."
        leaves_out "Leaves out snapshots that were cut off: keyway_replica_link_failures_total."
    REPLICA_PARTIAL_RESYNCS: Counter "keyway_replica_partial_resyncs_total" in "resyncs" by [Pool]
        measures "Links to a primary that went on from where the one before had ended."
        leaves_out "Leaves out links that began with a snapshot."
    REPLICA_FAILURES: Counter "keyway_replica_link_failures_total" in "failures" by [Pool]
        measures "Links to a primary that ended or did not come about. The log says why."
        leaves_out "Leaves out links that REPLICAOF has ended."
    REPLICA_COMMANDS: Counter "keyway_replica_commands_total" in "commands" by [Pool]
        measures "Commands of the primary's stream that the embedded store has executed."
        leaves_out "Leaves out PING, SELECT and other commands that concern the stream alone."
    REPLICA_FAILED_COMMANDS: Counter "keyway_replica_failed_commands_total" in "commands" by [Pool]
        measures "Commands of the primary's stream that failed in the embedded store: the data of the two may differ."
        leaves_out "Leaves out commands that the store does not have: these stop the link."
    FEED_REPLICAS: Gauge "keyway_feed_replicas" in "replicas" by [Pool]
        measures "Replicas that the embedded store feeds now, those included that get a snapshot."
        leaves_out ""
    FEED_GOOD_REPLICAS: Gauge "keyway_feed_good_replicas" in "replicas" by [Pool]
        measures "Replicas that follow the embedded store and have spoken within min_replicas_max_lag: writes need min_replicas of them."
        leaves_out "Leaves out replicas that get a snapshot."
    FEED_OFFSET: Gauge "keyway_feed_offset_bytes" in "bytes" by [Pool]
        measures "Replication offset of the embedded store's data: master_repl_offset."
        leaves_out "Stands still while a primary has no replica."
    FEED_LAG: Gauge "keyway_feed_lag_bytes" in "bytes" by [Pool]
        measures "Bytes of the stream that the latest of the replicas that follow has not acknowledged. Replicas acknowledge once a second."
        leaves_out "Leaves out replicas that get a snapshot. Is 0 without replicas."
    FEED_STREAM: Gauge "keyway_feed_stream_bytes" in "bytes" by [Pool]
        measures "Memory of the stream of writes that replicas and a log read: mem_replication_backlog. It counts towards memory_max."
        leaves_out "Leaves out what is on its way to replicas."
    FEED_UNSENT: Gauge "keyway_feed_unsent_bytes" in "bytes" by [Pool]
        measures "Memory of what is on its way to replicas, and to the next process of an upgrade: mem_clients_slaves."
        leaves_out "Does not count towards memory_max."
    FEED_ATTACHED: Counter "keyway_feed_attached_replicas_total" in "replicas" by [Pool]
        measures "How often a replica came to the embedded store, after a lost connection included."
        leaves_out "Leaves out replicas that were refused."
    FEED_CUT_OFF: Counter "keyway_feed_cut_off_replicas_total" in "replicas" by [Pool]
        measures "Replicas that were cut off as they were slower than the writes by half of the buffer. They take a snapshot."
        leaves_out "Leaves out replicas that were silent, or left by themselves: the log tells them."
    TRANSACTION_HELD: Gauge "keyway_transaction_held_bytes" in "bytes" by []
        measures "Memory held for all clients' commands between MULTI and EXEC, and on the embedded store for those that block and keys under WATCH, now: what transactions_len_max bounds."
        leaves_out "Leaves out what goes with commands that a server runs: blocking ones and WATCH on a sharded pool."
    TRANSACTION_LIMIT: Gauge "keyway_transaction_limit_bytes" in "bytes" by []
        measures "What keyway_transaction_held_bytes may come to: transactions_len_max."
        leaves_out ""
    TRANSACTION_REFUSED: Counter "keyway_transaction_refused_commands_total" in "commands" by []
        measures "Commands answered with an OOM error because transactions_len_max was used up."
        leaves_out "Leaves out those refused because their own transaction was too long."
    LOGIN_FAILURES: Counter "keyway_login_failures_total" in "failures" by [Listener Fault]
        measures "Logins of clients that failed, for want of such a user (user), of one that is on (disabled), of the right password (password), or not looked at since too many had failed before (limited)."
        leaves_out "Leaves out requests of clients that have not logged in at all: keyway_pool_refused_requests_total."
    SCRIPT_RUNS: Counter "keyway_script_runs_total" in "runs" by [Pool]
        measures "Scripts and functions that the embedded store has run."
        leaves_out "Leaves out those refused before they ran (no such script, BUSY), and the loading of libraries."
    SCRIPT_ERRORS: Counter "keyway_script_errors_total" in "errors" by [Pool]
        measures "Runs of scripts and functions whose reply was an error, those that were ended included."
        leaves_out "Leaves out errors of commands that a script caught with redis.pcall."
    SCRIPT_ENDED: Counter "keyway_script_ended_runs_total" in "runs" by [Pool]
        measures "Runs of scripts and functions ended before they were done: by script_time_max, by script_memory_max, or killed."
        leaves_out "Leaves out libraries whose loading was ended."
    SCRIPT_SECONDS: Counter "keyway_script_run_seconds_total" in "seconds" by [Pool]
        measures "Time that scripts and functions ran, each until its reply was written."
        leaves_out "Leaves out the time to compile a script, and to wait for another script."
    SCRIPT_CACHED: Gauge "keyway_script_cached_scripts" in "scripts" by [Pool]
        measures "Scripts that are kept for EVALSHA now, those of SCRIPT LOAD and those seen in EVAL."
        leaves_out "Leaves out libraries of functions."
    SCRIPT_MEMORY: Gauge "keyway_script_memory_bytes" in "bytes" by [Pool]
        measures "Memory of Lua in all workers, garbage included, as it was when each last ran a script: at most script_memory_max for each worker."
        leaves_out "Leaves out the texts of scripts and libraries."
    WARM_NEW_HITS: Counter "keyway_warm_new_hits_total" in "hits" by [Pool]
        measures "Keys read and found in the pool itself, of those whose place in the old pool is another server. Divided by the sum of this and keyway_warm_lookups_total: the share that needs the old pool no more."
        leaves_out "Leaves out keys whose server is the same in both pools, and counts nothing once the warm-up is over."
    WARM_LOOKUPS: Counter "keyway_warm_lookups_total" in "lookups" by [Pool]
        measures "Keys looked for in the old pool: for reads that missed, and for writes that need the item there."
        leaves_out "Leaves out what set and delete remove there without looking."
    WARM_OLD_HITS: Counter "keyway_warm_old_hits_total" in "hits" by [Pool]
        measures "Keys looked for in the old pool and found."
        leaves_out "Leaves out items that are stale there."
    WARM_FILLS: Counter "keyway_warm_moved_fills_total" in "fills" by [Pool]
        measures "Items moved from the old pool."
        leaves_out "Leaves out those that another request had moved or written first."
    WARM_FAILED: Counter "keyway_warm_failed_fills_total" in "fills" by [Pool]
        measures "Items found in the old pool that the new server did not take, or not in time."
        leaves_out "Leaves out those that another request had written first."
    WARM_WITHDRAWN: Counter "keyway_warm_withdrawn_fills_total" in "fills" by [Pool]
        measures "Items taken back out of the new pool, since the old one lost them while they were moved: a client deleted or overwrote them at that moment, or the old server failed."
        leaves_out ""
    WARM_STRANDED: Counter "keyway_warm_stranded_fills_total" in "fills" by [Pool]
        measures "Items that were to be taken back and may still be in the new pool, since its server failed at that moment: they may be out of date."
        leaves_out ""
    WARM_OLD_ERRORS: Counter "keyway_warm_old_errors_total" in "errors" by [Pool]
        measures "Requests to the old pool that failed: a read is a miss then, a write is answered with an error."
        leaves_out "Leaves out requests of the old pool's own clients."
    WARM_ACTIVE: Gauge "keyway_warm_active_pools" in "pools" by [Pool]
        measures "1 while items are brought over, 0 once warm_for is over."
        leaves_out ""
    CLUSTER_MOVED: Counter "keyway_cluster_moved_requests_total" in "requests" by [Pool]
        measures "Requests (of one for many keys, parts) that a server sent to another with MOVED. A few for each slot that moves; many without an end mean that nobody tells who has which slot."
        leaves_out "Leaves out those whose client had left."
    CLUSTER_ASKED: Counter "keyway_cluster_asked_requests_total" in "requests" by [Pool]
        measures "Requests (of one for many keys, parts) that a server sent to another with ASK, while their slot was moving."
        leaves_out "Leaves out those whose client had left."
    CLUSTER_RETRIED: Counter "keyway_cluster_retried_requests_total" in "requests" by [Pool]
        measures "Times that a request was sent again: a little later, after TRYAGAIN, CLUSTERDOWN, LOADING, MASTERDOWN or READONLY, or to another server, a read whose connection was lost or that a replica could not answer yet."
        leaves_out ""
    CLUSTER_RETRIES_REFUSED: Counter "keyway_cluster_refused_retries_total" in "retries" by [Pool]
        measures "Times that a request was not sent again since retry_budget was used up."
        leaves_out ""
    CLUSTER_HEDGED: Counter "keyway_cluster_hedged_reads_total" in "reads" by [Pool]
        measures "Reads (of one for many keys, parts) that a second server was sent, as the first had not answered within hedge_after."
        leaves_out ""
    CLUSTER_HEDGES_WON: Counter "keyway_cluster_won_hedges_total" in "hedges" by [Pool]
        measures "Of these, those whose answer was the second server's."
        leaves_out ""
    CLUSTER_HEDGES_REFUSED: Counter "keyway_cluster_refused_hedges_total" in "hedges" by [Pool]
        measures "Reads that no second server was sent since hedge_budget was used up."
        leaves_out "Leaves out those for which no other server could be read."
    CLUSTER_GIVEN_UP: Counter "keyway_cluster_given_up_requests_total" in "requests" by [Pool]
        measures "Requests whose client got such an error after all: too many redirections, no time left, the budget for retries used up, others of the same client were on their way behind it, no place for the server or not one of the cluster, or what was asked runs a script, which may have said so itself."
        leaves_out "Leaves out those whose client had left."
    CLUSTER_WAITING: Gauge "keyway_cluster_primary_waiting_clients" in "clients" by [Pool]
        measures "Clients whose next request is held back by wait_for_primary now."
        leaves_out "Leaves out requests that were queued on a connection when it was lost, and those that a server has refused and that are sent again."
    CLUSTER_WAITS: Counter "keyway_cluster_primary_waits_total" in "waits" by [Pool]
        measures "Requests that have waited for a primary, as wait_for_primary allows."
        leaves_out "Leaves out what a client has sent behind such a request."
    CLUSTER_WAITS_OVER: Counter "keyway_cluster_primary_failed_waits_total" in "waits" by [Pool]
        measures "Of these, those whose client got the error since no primary came in time."
        leaves_out "Leaves out what the client had sent behind them, which fails at once then."
    CLUSTER_VIEWS: Counter "keyway_cluster_told_views_total" in "views" by [Pool]
        measures "Times that a server told who has which slot."
        leaves_out ""
    CLUSTER_UNANSWERED: Counter "keyway_cluster_unanswered_questions_total" in "questions" by [Pool]
        measures "Times that nobody could be asked who has which slot, or the one asked did not tell."
        leaves_out ""
    CLUSTER_NOTICES: Counter "keyway_cluster_sentinel_notices_total" in "notices" by [Pool]
        measures "What sentinels told unasked of the pool's primaries: +switch-master, +slave, +sdown, -sdown, +reboot. Each sentinel tells for itself. All sentinels are asked then, ten times a second at most."
        leaves_out "Leaves out what is about primaries of others."
    CLUSTER_STALE: Counter "keyway_cluster_stale_views_total" in "views" by [Pool]
        measures "Times that a server or a sentinel told something of an earlier epoch than is known, which is believed once most of them have told the same. Many without an end mean that one of them is cut off from the others."
        leaves_out ""
    CLUSTER_SLOTS: Gauge "keyway_cluster_served_slots" in "slots" by [Pool]
        measures "Slots of which the server is known; 16384 when the cluster is whole."
        leaves_out "Leaves out whether the server can be reached: keyway_cluster_reachable_slots. Pools of kind replicated have none."
    CLUSTER_REACHABLE_SLOTS: Gauge "keyway_cluster_reachable_slots" in "slots" by [Pool]
        measures "Slots whose primary is known and not failing, neither here nor as the cluster says; 16384 when all keys can be written."
        leaves_out "Leaves out replicas, which may still be read. Pools of kind replicated have none."
    CLUSTER_REACHABLE_PRIMARIES: Gauge "keyway_cluster_reachable_primaries" in "primaries" by [Pool]
        measures "Primaries with keys that are known and not failing: of a cluster those with slots, of a pool of kind replicated as many as it has when all is well."
        leaves_out ""
    CLUSTER_UNREPLICATED: Gauge "keyway_cluster_unreplicated_shards" in "shards" by [Pool]
        measures "Shards without a replica for 5 seconds, as their cluster or the sentinels tell, that had one or are in a pool in which another shard has had one. What was known goes on over reloads and upgrades. Their keys cannot be served once their primary fails as well."
        leaves_out "Leaves out pools in which no shard had a replica, and what a replica holds or how far it is behind."
    ROUTE_FAILOVERS: Counter "keyway_route_failovers_total" in "failovers" by [Pool]
        measures "Requests (of one for many keys, parts) that were asked of another child because one could not serve them: failover pools, and reads of mirrors."
        leaves_out ""
    ROUTE_CHILD_FAILURES: Counter "keyway_route_child_failures_total" in "failures" by [Pool]
        measures "Times that a child could not serve what it was asked: its server is down, ejected, too slow, or answers that it cannot. With a mirror, writes that a child lacks."
        leaves_out "Leaves out errors that are the client's own doing."
    ROUTE_LOOKUPS: Counter "keyway_route_lookups_total" in "lookups" by [Pool]
        measures "Reads (of one for many keys, parts) that were asked of another child because one had nothing: miss-then pools."
        leaves_out ""
    ROUTE_FILLS: Counter "keyway_route_stored_fills_total" in "fills" by [Pool]
        measures "Items found in a later child that were stored in the first."
        leaves_out "Leaves out those that were there by then."
    ROUTE_FAILED_FILLS: Counter "keyway_route_failed_fills_total" in "fills" by [Pool]
        measures "Items found in a later child that the first did not take, or not in time."
        leaves_out "Leaves out those that were there by then."
    ROUTE_SHADOWED: Counter "keyway_route_shadowed_requests_total" in "requests" by [Pool]
        measures "Requests that were sent to the shadow as well."
        leaves_out ""
    ROUTE_SHADOW_DROPS: Counter "keyway_route_shadow_dropped_requests_total" in "requests" by [Pool]
        measures "Requests that were to be sent to the shadow and were not, since too many wait for it."
        leaves_out ""
    ROUTE_RATE_LIMITED: Counter "keyway_route_rate_limited_requests_total" in "requests" by [Pool]
        measures "Requests refused because more came than requests_per_second and burst allow."
        leaves_out ""
    TLS_EXPIRY: Gauge "keyway_tls_certificate_expiry_seconds" in "seconds" by [File]
        measures "When the first certificate in a file expires, as seconds since 1970: of every `cert_file`, and every `ca_file` with a single certificate, as they were read last."
        leaves_out "Leaves out the certificates that clients and servers show."
    CONFIG_RELOADS: Counter "keyway_config_reloads_total" in "reloads" by [Result]
        measures "Reloads of the configuration that were asked for, by SIGHUP or otherwise: `done`, or refused because a file is wrong (`invalid`), because a restart is needed (`needs-restart`), because what earlier ones have replaced is still being ended (`draining`), or because an upgrade was going on (`upgrading`)."
        leaves_out ""
    CONFIG_GENERATION: Gauge "keyway_config_generation_number" in "number" by []
        measures "Which settings are in force: 1 are those of the start, and each reload that changed something adds one."
        leaves_out ""
    CONFIG_RELOADED: Gauge "keyway_config_last_reload_seconds" in "seconds" by []
        measures "When the configuration was last reloaded without being refused, as seconds since 1970; 0 if it never was."
        leaves_out ""
    CONFIG_ENDING: Gauge "keyway_config_ending_pools" in "pools" by []
        measures "Pools that a reload has removed or replaced and that still answer what was begun in them."
        leaves_out ""
    BUS_LINKS: Gauge "keyway_bus_links" in "links" by [Link]
        measures "Connections of a node of the bus (keyway bus node) now, by what they are to it."
        leaves_out "Leaves out those whose TLS handshake goes on."
    BUS_BELOW: Gauge "keyway_bus_below_nodes" in "nodes" by []
        measures "Nodes and guests below this node, however far."
        leaves_out ""
    BUS_ROOTED: Gauge "keyway_bus_rooted_upstreams" in "upstreams" by []
        measures "1 if a root is above this node, or it is one; 0 while it is cut off."
        leaves_out ""
    BUS_CHANGES: Counter "keyway_bus_upstream_changes_total" in "changes" by []
        measures "Times that messages began to go up another way, or none."
        leaves_out ""
    BUS_SENT: Counter "keyway_bus_sent_messages_total" in "messages" by []
        measures "Messages and commands of this node's own."
        leaves_out "Leaves out what it passed on."
    BUS_DELIVERED: Counter "keyway_bus_delivered_messages_total" in "messages" by []
        measures "Messages for this node."
        leaves_out "Leaves out commands and their results."
    BUS_RELAYED: Counter "keyway_bus_relayed_frames_total" in "frames" by []
        measures "Frames of others that this node passed on."
        leaves_out "Leaves out pushes, which every node keeps and sends anew."
    BUS_FULL_PUSHES: Counter "keyway_bus_full_pushes_total" in "pushes" by []
        measures "Versions of topics sent to nodes below as a whole."
        leaves_out ""
    BUS_DELTA_PUSHES: Counter "keyway_bus_delta_pushes_total" in "pushes" by []
        measures "Versions of topics sent to nodes below as what changed."
        leaves_out ""
    BUS_RECEIVED_BYTES: Counter "keyway_bus_received_bytes_total" in "bytes" by []
        measures "Bytes of frames that came, on all connections."
        leaves_out "Leaves out the headers of TCP and TLS."
    BUS_SENT_BYTES: Counter "keyway_bus_sent_bytes_total" in "bytes" by []
        measures "Bytes of frames that were handed to connections."
        leaves_out "Leaves out the headers of TCP and TLS."
    BUS_QUEUED: Gauge "keyway_bus_queued_bytes" in "bytes" by [Link]
        measures "Bytes that wait for peers to take them."
        leaves_out "Leaves out what the kernel has taken."
    BUS_INBOX: Gauge "keyway_bus_inbox_bytes" in "bytes" by []
        measures "Bytes of messages that the user of the node has not taken."
        leaves_out ""
    BUS_FAILED: Counter "keyway_bus_failed_messages_total" in "messages" by [Reason]
        measures "Messages and commands of this node's own that did not arrive, or of which nobody knows."
        leaves_out "Leaves out those of others: keyway_bus_refused_messages_total."
    BUS_REFUSED: Counter "keyway_bus_refused_messages_total" in "messages" by []
        measures "Messages and commands of others that could not go on from here, and went back."
        leaves_out ""
    BUS_UNTOLD: Counter "keyway_bus_untold_failures_total" in "failures" by []
        measures "Failures that nobody could be told, for too many waited for a way back."
        leaves_out ""
    BUS_REFUSED_LINKS: Counter "keyway_bus_refused_links_total" in "links" by [Reason]
        measures "Connections that did not come to be: of each dial once, whatever number of addresses it had, and who was turned away here."
        leaves_out ""
    BUS_LOST_LINKS: Counter "keyway_bus_lost_links_total" in "links" by [Reason]
        measures "Registered connections that ended."
        leaves_out ""
    BUS_ROUND_TRIP: Histogram "keyway_bus_round_trip_seconds" in "seconds" by []
        measures "Time from a ping being composed to its answer being read, on all connections."
        leaves_out "Leaves out connections at rest, but for one ping in 30 seconds of who was dialled, in five minutes within a host."
    FLEET_LEADING: Gauge "keyway_fleet_leading_nodes" in "nodes" by []
        measures "1 if this control node leads, else 0. The sum over all control nodes is 1, but for the moments of a take-over."
        leaves_out ""
    FLEET_EPOCH: Gauge "keyway_fleet_leader_epoch_number" in "number" by []
        measures "The epoch of the leader that this control node knows; 0 if it knows none. Each election adds one."
        leaves_out ""
    FLEET_REVISION: Gauge "keyway_fleet_document_revision_number" in "number" by []
        measures "The revision of the current document; 0 without one."
        leaves_out ""
    FLEET_MEMBERS: Gauge "keyway_fleet_members" in "members" by [State]
        measures "Members of the fleet, by state. `known` ones are seen by a control node that does not lead."
        leaves_out "Leaves out members that have been silent for a day."
    FLEET_ELECTIONS: Counter "keyway_fleet_elections_total" in "elections" by []
        measures "Times that this control node began to lead."
        leaves_out ""
    FLEET_FAULTS: Counter "keyway_fleet_coordinator_faults_total" in "faults" by []
        measures "Times that the coordinator did not answer or refused."
        leaves_out ""
    FLEET_ROLLING_OUT: Gauge "keyway_fleet_rolling_out_documents" in "documents" by []
        measures "1 while a document is rolled out to a share of the members, else 0."
        leaves_out ""
    FLEET_ROLLOUTS: Counter "keyway_fleet_rollouts_total" in "rollouts" by [Result]
        measures "Rollouts whose end this control node saw as the leader, by result: `went-on` or `went-back`."
        leaves_out ""
    GROUP_STATE: Gauge "keyway_fleet_group_state_info" in "info" by [Pool State]
        measures "1 for the state that a group of servers is in, else 0, by pool and state: `healthy`, `no-replica`, `primary-silent`, `primary-down`, `failing-over`, `undecided`, `ahead` or `unknown`."
        leaves_out "Is told by the control node that leads alone."
    GROUP_EPOCH: Gauge "keyway_fleet_group_epoch_number" in "number" by [Pool]
        measures "The epoch of the decision that names the primary of a group; 0 without one. Each fail-over has a larger one."
        leaves_out "Is told by the control node that leads alone."
    GROUP_REPLICAS: Gauge "keyway_fleet_group_replicas" in "replicas" by [Pool]
        measures "Replicas of a group that answer control and are connected to the decided primary."
        leaves_out "Is told by the control node that leads alone."
    GROUP_DOWN: Gauge "keyway_fleet_group_down_observers" in "observers" by [Pool]
        measures "Observers for which the primary of a group is down: proxies that use it, and the leader."
        leaves_out "Leaves out observers that have not reported for 4 s. Is told by the control node that leads alone."
    FLEET_FAILOVERS: Counter "keyway_fleet_failovers_total" in "failovers" by [Reason]
        measures "Fail-overs of groups that this control node began, by reason: `primary-down` or `order`."
        leaves_out ""
    FLEET_AUDIT_ENTRY: Gauge "keyway_fleet_audit_entry_number" in "number" by []
        measures "The number of the last entry of the audit log."
        leaves_out ""
    FLEET_AUDIT_TAMPERED: Gauge "keyway_fleet_audit_tampered_entries" in "entries" by []
        measures "1 while an entry of the audit log does not fit, as when somebody has changed it past control; else 0."
        leaves_out "Leaves out entries that have left the coordinator."
    FLEET_EVENTS: Gauge "keyway_fleet_kept_events" in "events" by []
        measures "Events that this control node keeps."
        leaves_out ""
    FLEET_EVENTS_DROPPED: Counter "keyway_fleet_dropped_events_total" in "events" by []
        measures "Events that made room for later ones before their time."
        leaves_out "Leaves out events that members have dropped: the event `events-lost` tells of those."
    PROCESS_BUILD: Gauge "keyway_process_build_info" in "info" by [Version]
        measures "Always 1; the label says which version runs."
        leaves_out ""
    PROCESS_WORKERS: Gauge "keyway_process_workers" in "workers" by []
        measures "Workers running now."
        leaves_out "Leaves out the threads of the control plane."
    PROCESS_START: Gauge "keyway_process_start_time_seconds" in "seconds" by []
        measures "When the process started, in seconds since the Unix epoch."
        leaves_out ""
    PROCESS_CPU: Counter "keyway_process_cpu_seconds_total" in "seconds" by []
        measures "CPU time of all threads, user and system, in steps of 10 ms."
        leaves_out "Absent on systems without /proc."
    PROCESS_RESIDENT: Gauge "keyway_process_resident_memory_bytes" in "bytes" by []
        measures "Memory of the process that is in RAM now."
        leaves_out "Leaves out socket buffers in the kernel. Absent on systems without /proc."
    PROCESS_FDS: Gauge "keyway_process_open_fds" in "fds" by []
        measures "File descriptors open now."
        leaves_out "Leaves out the one that counting them takes. Absent on systems without /proc."
}

/// Returns `docs/metrics.md`, made from [`CATALOGUE`].
pub fn catalogue_markdown() -> String {
    let mut text = String::from(concat!(
        "# Metrics\n\n",
        "Made from the catalogue in `crates/metrics/src/catalogue.rs` by ",
        "`cargo run -q -p keyway-metrics --example catalogue > docs/metrics.md`; ",
        "a test fails when this page is stale.\n\n",
        "`GET /metrics` on the admin listener serves them in the Prometheus text format. ",
        "Values are summed over workers unless `worker` is a label. ",
        "No label holds a key or a client's address, so the number of series depends on the ",
        "configuration and on the commands in use, of which there are some 400.\n\n",
        "Histograms double from bound to bound: latencies from 62.5 us to 8.192 s (1, 8 and ",
        "64 ms are bounds), sizes from 1 to 8192. A value on a bound counts at or below it.\n",
    ));
    let mut subsystem = "";
    for metric in CATALOGUE {
        let of = metric.name.split('_').nth(1).unwrap_or_default();
        if of != subsystem {
            subsystem = of;
            let _ = write!(text, "\n## {of}\n\n| name | kind | unit | labels | help |\n");
            text.push_str("| --- | --- | --- | --- | --- |\n");
        }
        let labels: Vec<&str> = metric.labels.iter().map(|label| label.as_str()).collect();
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} |",
            metric.name,
            metric.kind.as_str(),
            metric.unit,
            labels.join(", "),
            [metric.measures, metric.leaves_out].join(" ").trim_end(),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_follow_the_rule() {
        for metric in CATALOGUE {
            let name = metric.name;
            assert!(name.starts_with("keyway_"), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
            let stem = name.strip_suffix("_total").unwrap_or(name);
            assert!(stem.ends_with(&format!("_{}", metric.unit)), "{name}: {}", metric.unit);
        }
    }

    #[test]
    fn every_metric_is_declared_once_and_says_what_it_measures() {
        let names: BTreeSet<_> = CATALOGUE.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), CATALOGUE.len());
        for metric in CATALOGUE {
            assert!(metric.measures.len() > 15, "{}", metric.name);
            assert!(metric.measures.ends_with('.'), "{}", metric.name);
            assert!(!metric.measures.contains(['\n', '|', '\\']), "{}", metric.name);
            assert!(!metric.leaves_out.contains(['\n', '|', '\\']), "{}", metric.name);
        }
    }

    #[test]
    fn a_metric_named_in_a_help_text_exists() {
        let names: BTreeSet<_> = CATALOGUE.iter().map(|metric| metric.name).collect();
        for metric in CATALOGUE {
            let help = format!("{} {}", metric.measures, metric.leaves_out);
            let words = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for word in words.filter(|word| word.starts_with("keyway_")) {
                assert!(names.contains(word), "{} names {word}", metric.name);
            }
        }
    }

    #[test]
    fn metrics_of_one_subsystem_stand_together() {
        let mut seen = Vec::new();
        for metric in CATALOGUE {
            let subsystem = metric.name.split('_').nth(1).expect("names have parts");
            if seen.last() != Some(&subsystem) {
                assert!(!seen.contains(&subsystem), "{subsystem} comes twice");
                seen.push(subsystem);
            }
        }
    }
}
