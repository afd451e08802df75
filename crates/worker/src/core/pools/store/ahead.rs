//! A pipeline on the embedded store: while a request is served, the memory that
//! those behind it need can already be on its way. Without that, a worker
//! spends half of its time waiting for it.

use crate::core::Plane;
use crate::core::pools::store::state::Scratch;
use keyway_proxy::Session;
use keyway_resp::{ParseLimits, Parsed, parse_request};

/// Requests looked at in one go: enough for their reads to overlap, too few to
/// push each other's data out of the first cache.
const REQUESTS_MAX: usize = 16;

impl Plane {
    /// Tells the store which keys the requests at the start of `bytes` name
    /// first. Returns how many bytes those requests take; nothing is done with
    /// them yet.
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
