//! From a client's bytes to a request, and to the pool that gets it.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `input` | bytes of a client become requests; sessions pause and resume |
//! | `dispatch` | a request goes to its pool, or is answered here |
//! | `access` | requests of clients that may not do everything are looked at |
//! | `rights` | clients lose what their users may not do any more |

pub(in crate::core) mod access;
pub(in crate::core) mod dispatch;
pub(in crate::core) mod input;
pub(in crate::core) mod rights;
