//! Turns a client's bytes into requests, and passes them to pools.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `input` | a client's bytes come in; its session pauses and resumes |
//! | `read` | the loop that starts the requests among them, for both protocols |
//! | `resp` | one request of Redis's protocol is read and started |
//! | `waits` | how long requests have waited for room, and when their time is over |
//! | `dispatch` | a request goes to its pool, or is answered here |
//! | `answers` | replies that are known at once, and errors that clients have caused |
//! | `caching` | the commands of client-side caching that all pools handle alike |
//! | `queued` | MULTI and DISCARD, and the commands that wait for EXEC |
//! | `access` | requests of clients that may not do everything are looked at |
//! | `cut_off` | requests without a reply are told so when their worker ends |
//! | `rights` | clients lose what their users may not do any more |
//!
//! The codec of `pools::memcached` reads and starts one request of memcached's protocols.
//!
//! The doors, which code outside of the room calls, by file:
//!
//! - `access`: `awaits_login`, `has_begun`, `bring_to_its_pool`, `tell_failed_login`
//! - `answers`: `is_silent`, `end_skip`, `unheard`, `answer`, `answer_noted`, `answer_locally`,
//!   `refuse`, `refuse_request`, `refuse_route`, `answer_unrouted`
//! - `caching`: `answer_tracking`, `read_tracking`
//! - `cut_off`: `answer_unanswered`
//! - `dispatch`: `dispatch`, `dispatch_led`, `dispatch_special_on_store`, `send_on`,
//!   `holds_back_led`, `forward`, `answer_without_server`, `compose_local`, `follow`
//! - `input`: `on_client_bytes`, `resume_sessions`, `on_client_end`, `parse_kept`, `parse`
//! - `queued`: `begin_or_drop`, `end_transaction`, `keep_queued`, `refuse_queued`
//! - `read`: `read_requests`
//! - `resp`: `on_broken_frame`
//! - `rights`: `has_old_rights`, `renew_rights`
//! - `waits`: `counts_from`, `late`, `lateness`

mod access;
mod answers;
mod caching;
pub(super) mod cut_off;
mod dispatch;
mod input;
pub(super) mod queued;
pub(super) mod read;
mod resp;
pub(super) mod rights;
pub(super) mod waits;
