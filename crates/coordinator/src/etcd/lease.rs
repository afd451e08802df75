use super::Inner;
use super::http::{Refusal, Retry};
use crate::clock::Moment;
use crate::session::{Renew, Renewed};
use crate::{Key, SessionId};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Keeps a lease of etcd alive, by a request each time: etcd's stream for it needs HTTP/2.
pub(super) struct Renewer {
    inner: Arc<Inner>,
    id: i64,
    /// A key that is to be bound to the lease. If it is not, the session is lost.
    bound: Option<Key>,
}

impl Renewer {
    pub(super) fn new(inner: Arc<Inner>, id: i64, bound: Option<Key>) -> Renewer {
        Renewer { inner, id, bound }
    }

    /// Returns whether the key is certainly not bound to this lease.
    async fn has_lost_key(&self) -> bool {
        let Some(key) = &self.bound else { return false };
        let owner = self.inner.owner_of(key).await;
        owner.is_ok_and(|owner| owner != Some(SessionId(self.id.cast_unsigned())))
    }
}

impl Renew for Renewer {
    async fn renew(&mut self) -> Renewed {
        let tried = "renew the session";
        let until = Moment::now().after(self.inner.patience.call);
        let request = json!({"ID": self.id.to_string()});
        let call =
            self.inner.http.call("/v3/lease/keepalive", &request, tried, Retry::Always, until);
        match call.await {
            Ok(reply) => {
                let ttl = super::wire::number(&reply["result"]["TTL"]).unwrap_or(0);
                match u64::try_from(ttl) {
                    Ok(1..) if self.has_lost_key().await => Renewed::Gone,
                    Ok(ttl @ 1..) => Renewed::For(Duration::from_secs(ttl)),
                    _ => Renewed::Gone,
                }
            }
            Err(Refusal::NoLease(_)) => Renewed::Gone,
            Err(refusal) => Renewed::Failed(refusal.into_fault()),
        }
    }

    async fn end(&mut self) {
        let until = Moment::now().after(self.inner.patience.call);
        let request = json!({"ID": self.id.to_string()});
        let tried = "end the session";
        let path = "/v3/lease/revoke";
        let _ = self.inner.http.call(path, &request, tried, Retry::Always, until).await;
    }
}
