//! From a client's bytes to a request, and to the pool that gets it.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `input` | a client's bytes come in; its session pauses and resumes |
//! | `read` | the loop that starts the requests among them, for both protocols |
//! | `resp` | one request of Redis's protocol is read and started |
//! | `waits` | how long requests have waited for room, and when their time is over |
//! | `dispatch` | a request goes to its pool, or is answered here |
//! | `access` | requests of clients that may not do everything are looked at |
//! | `cut_off` | requests without a reply are told so when their worker ends |
//! | `rights` | clients lose what their users may not do any more |
//!
//! One request of memcached's protocols is read and started by `pools::memcached`.

pub(in crate::core) mod access;
pub(in crate::core) mod cut_off;
pub(in crate::core) mod dispatch;
pub(in crate::core) mod input;
pub(in crate::core) mod read;
pub(in crate::core) mod resp;
pub(in crate::core) mod rights;
pub(in crate::core) mod waits;
