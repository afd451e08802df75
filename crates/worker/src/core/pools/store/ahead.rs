//! Fetches the memory for the requests of a pipeline on the embedded store ahead. While one request
//! is served, the memory that the requests behind it need is on its way. Without this, a worker
//! spends half of its time waiting for memory.

use crate::core::Plane;
use crate::core::pools::store::state::Scratch;
use keyway_proxy::Session;
use keyway_resp::{ParseLimits, Parsed, parse_request};

/// Number of requests that are looked at in one go. Fewer would not let their reads overlap. More
/// would push each other's data out of the first cache.
const REQUESTS_MAX: usize = 16;

impl Plane {
    /// Tells the store which keys the requests at the start of `bytes` name first. Returns the
    /// number of bytes of those requests. It does not execute them.
    pub(in crate::core) fn look_ahead(
        &mut self,
        session: &Session,
        bytes: &[u8],
        limits: &ParseLimits,
    ) -> usize {
        let Some(store) = self.plan.pools[session.pool as usize].kind.store() else {
            return usize::MAX / 2;
        };
        let Scratch { args, hints } = &mut self.store.ahead;
        hints.clear();
        let mut end = 0;
        for _ in 0..REQUESTS_MAX {
            let rest = &bytes[end..];
            if rest.first() != Some(&b'*') {
                break;
            }
            let Ok(Parsed::Ready { consumed }) = parse_request(rest, limits, args, &mut Vec::new())
            else {
                break;
            };
            if let Some(key) = args.get(1) {
                hints.push(store.hint(key.of(rest)));
            }
            end += consumed;
        }
        if hints.len() > 1 {
            store.prefetch(session.identity.database, hints);
        }
        end.max(1)
    }
}
