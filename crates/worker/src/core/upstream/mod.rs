//! Connections to servers: their lifecycle, what is sent and answered on them, and the servers'
//! health.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `connections` | connecting, losing and retrying; timeouts |
//! | `probes` | how healthy a server is, by its replies and by probes |
//! | `leases` | connections that one client has for itself |
//! | `bypass` | ways around a large reply, and when a client may change connections |
//! | `streamed_replies` | large replies go to their clients as they come |
//! | `streamed_requests` | large requests go to their servers as they come |
//! | `waking` | a link is prepared for a request |
//! | `reply` | bytes of a server become replies in their order |
//! | `heard` | what replies tell of their server, put together |
//! | `circuits` | what is refused without asking, and how requests went |
//! | `failures` | what the log and clients are told of lost and refused connections |
//! | `first_look` | servers that nobody has asked yet |
//! | `foreign` | servers that speak another protocol than their pool's |
//! | `locked` | servers that refuse whoever asks |
//! | `unreached` | servers that cannot be connected to |
//! | `health_log` | what the log says of the servers' health |
//!
//! The doors, which code outside of the room calls, by file:
//!
//! - `bypass`: `choose_lane`, `clear_link`, `may_change_links`
//! - `circuits`: `refused`, `is_kept_from`, `admits`, `lets_through`, `is_full`, `has_no_room`
//! - `connections`: `preconnect`, `refresh_health`, `wants_connection`, `on_connecting`,
//!   `on_connected`, `on_connect_failed`, `on_tls_fault`, `on_link_lost`, `handle_timeouts`,
//!   `publish_gauges`, `link_options`, `end_counts`
//! - `failures`: `unreached`, `forget_failures`, `log_link_end`, `on_tls_fault`,
//!   `describe_backend`
//! - `health_log`: `name_backend`, `log_change`, `flush_command`
//! - `leases`: `lease`, `has_own`, `add_own`, `release`, `end_stateful`, `unwatch`, `lose_watch`,
//!   `end_lease`, `end_unsent`, `end_there`, `is_displaced`, `after_private_reply`,
//!   `on_private_lost`, `is_to_be_discarded`, `leases`, `private_links`
//! - `probes`: `tend_health`, `began`, `began_attempt`, `note_failure`, `on_rejoined`,
//!   `on_rejoin_failed`
//! - `reply`: `on_backend_block`, `deliver_aside`, `complete`, `end_unheard`,
//!   `fail`
//! - `streamed_replies`: `is_held`, `stalled_output`, `count_untaken`, `tend_large`,
//!   `look_at_hold`, `next_freed`, `read_on`, `end_streamed_reply`, `keep_behind`,
//!   `note_waiting_behind`
//! - `streamed_requests`: `begin_streaming`, `stream_on`, `cut_off_streaming`
//! - `unreached`: `fail_connecting`, `end_link`
//! - `waking`: `prepare_link`, `wake_link`

pub(super) mod bypass;
mod circuits;
pub(super) mod connections;
pub(super) mod failures;
mod first_look;
mod foreign;
mod health_log;
mod heard;
pub(super) mod leases;
mod locked;
mod probes;
pub(super) mod reply;
mod state;
pub(super) mod streamed_replies;
pub(super) mod streamed_requests;
mod unreached;
mod waking;

pub(crate) use state::State;
